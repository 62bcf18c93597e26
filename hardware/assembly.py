"""From the parsed file of an accelerator or cluster to its record.

Files leave out what another entry already says (``like``); here the gaps are filled, and what was filled
is marked as assumed, so that nobody takes a borrowed figure for a measured one.
"""

from typing import Final

from pydantic import ValidationError

from hardware.errors import check_fields, flatten
from hardware.files import Document, entry
from hardware.links import Link
from hardware.records import Accelerator, Cluster, NodeGroup

_NOT_INHERITED: Final = ("name", "title", "price", "like", "sources", "usable_memory", "power_limit")
_GROUP_FIELDS: Final = (
    *(name for name in NodeGroup.model_fields if name != "name"),
    "power_limit",
    "scale_up",
    "network",
)
_TOP_FIELDS: Final = ("name", "title", "sources")
_TIER_FIELDS: Final = ("name", "domain", "oversubscription", "lanes")
_DEFAULT_NETWORK: Final = "ib-ndr400"


def accelerator_record(document: Document) -> Accelerator:
    """The record of an accelerator's file.

    Args:
        document: the parsed file; what it leaves out is taken from the entry named by ``like``.

    Raises:
        pydantic.ValidationError: fields are missing, unknown or wrong.
        UnknownName: ``like`` names no accelerator.
    """
    filled = _filled(document)
    filled.setdefault("title", filled.get("name", ""))
    filled.setdefault("usable_memory", filled.get("memory"))
    filled.setdefault("sources", {})
    return Accelerator.model_validate(filled)


def _filled(document: Document) -> Document:
    """The document with the gaps taken from the entry it is like, which may itself be like another."""
    own = {key: value for key, value in document.items() if key != "like"}
    if "like" not in document:
        return own
    like = str(document["like"])
    base = _filled(entry("accelerator", like))
    sources, kernels = _table(own.get("sources", {}), "sources"), _table(own.get("kernels", {}), "kernels")
    inherited = {key: value for key, value in base.items() if key not in _NOT_INHERITED}
    if not _same_silicon(base | own, base):
        inherited.pop("training_rate", None)
    inherited["kernels"] = _merged(_assumed(base["kernels"], like), kernels)
    if "attention" in kernels:  # attention kernels of another machine may not even run on this one
        inherited["kernels"]["attention"] = kernels["attention"]
    own.pop("kernels", None)
    borrowed = {path: key for path, key in base["sources"].items() if path.partition(".")[0] not in own}
    if "training_rate" not in inherited:
        borrowed.pop("training_rate", None)
    return inherited | own | {"sources": borrowed | sources}


def _same_silicon(document: Document, base: Document) -> bool:
    """Whether two accelerators share vendor and architecture, whatever is packaged with the die ("Hopper + Grace").

    What is left of kernels' rates in training is a matter of a die's clock and power: struck out in turn, the rates of
    machines are predicted better from others of their silicon than by none, and worse by those of other silicon
    (``benchmarks/unmeasured.py``).
    """
    return document.get("vendor") == base.get("vendor") and _silicon(document) == _silicon(base)


def _silicon(document: Document) -> str:
    return str(document.get("architecture", "")).partition(" ")[0]


def _assumed(kernels: Document, like: str) -> Document:
    """Kernel constants of another machine: the text says so, and its measured errors do not apply."""
    marked: Document = {}
    for key, value in kernels.items():
        if isinstance(value, dict):
            marked[key] = _assumed(value, like)
        elif key == "source":
            marked[key] = value if value.startswith("assumed like") else f"assumed like {like}: {value}"
        elif not key.startswith("error_"):
            marked[key] = value
    return marked


def _merged(base: Document, changes: Document) -> Document:
    """Nested tables merged, the changes winning."""
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if nested else value
    return merged


def cluster_record(document: Document) -> Cluster:
    """The record of a cluster's file: one node group at the top level, or several under ``groups``.

    Raises:
        pydantic.ValidationError: fields are missing or wrong.
        UnknownName: an accelerator or link that the catalogue does not hold.
        ValueError: an unknown field, a group without a network, or two forms of one.
    """
    mixed = "groups" in document
    check_fields(document, (*_TOP_FIELDS, "groups", "between") if mixed else (*_TOP_FIELDS, *_GROUP_FIELDS))
    top = {key: value for key, value in document.items() if key in _TOP_FIELDS}
    groups = document["groups"] if mixed else [{k: v for k, v in document.items() if k not in _TOP_FIELDS}]
    tables = _tables(groups, "groups")
    built = tuple(_group(table, position) for position, table in enumerate(tables))
    links = tuple(_between(table) for table in _tables(document.get("between", []), "between"))
    cluster = Cluster.model_validate(
        {"title": top.get("name", ""), "sources": {}} | top | {"groups": built, "between": links}
    )
    if mixed:
        _check_joined(cluster, tables)
    return cluster


def _between(table: Document) -> Document:
    """A link between two groups from a flat table, read like a tier."""
    link = {key: value for key, value in table.items() if key != "groups"}
    return {"groups": table.get("groups", ()), "link": _tier(link, "between")["link"]}


def _check_joined(cluster: Cluster, tables: list[Document]) -> None:
    """A group without a network has a link to every other."""
    names = [group.name for group in cluster.groups]
    alone = {name for name, table in zip(names, tables, strict=True) if not {"network", "tiers"} & table.keys()}
    joined = [set(link.groups) for link in cluster.between]
    for one in sorted(alone):
        for other in names:
            if one != other and {one, other} not in joined:
                raise ValueError(
                    f"groups: {one} has no network that {other} could be reached by; "
                    f'give [[between]] groups = ["{one}", "{other}"], bandwidth = "400 Gb/s"'
                )


def _group(given: Document, position: int) -> NodeGroup:
    check_fields(given, (*_GROUP_FIELDS, "name"))
    device = _device(given.get("accelerator"), {k: v for k, v in given.items() if k == "power_limit"})
    table = {k: v for k, v in given.items() if k not in ("scale_up", "network", "tiers", "power_limit")}
    table["accelerator"] = device
    table.setdefault("name", device.name if position == 0 else f"{device.name}-{position + 1}")
    table["tiers"] = _tiers(given, device)
    return NodeGroup.model_validate(table)


def _device(given: object, limit: Document) -> Accelerator:
    """The accelerator of a group, held to the power that the group says."""
    if isinstance(given, str):
        return accelerator_record(entry("accelerator", given) | limit)
    if isinstance(given, dict):
        return accelerator_record(given | limit)
    if given is None:
        raise ValueError("accelerator: required, but missing; a name such as 'h100-sxm', or a table")
    raise ValueError(f"accelerator: expected a name such as 'h100-sxm' or a table, got {given!r}")


def _tiers(group: Document, device: Accelerator) -> tuple[Document, ...]:
    """Every tier of a group, inner to outer; only a single node can do without a network."""
    if "network" in group and "tiers" in group:
        raise ValueError(
            "network and tiers: give only one, [network] for a flat network or [[tiers]] for several levels"
        )
    network = [{"name": "network"} | _table(group["network"], "network")] if "network" in group else []
    outer = _tables(group.get("tiers", network), "tiers")
    said = [_tier(tier, str(tier.get("name", "tiers"))) for tier in outer]
    if any("link" in tier for tier in outer):
        return tuple(said)
    tiers = [*_scale_up(group, device), *said]
    if not outer and group.get("nodes") != 1:
        raise ValueError(_without_network(group))
    if not tiers:  # a single device, which sends to nobody
        tiers = [_tier({"name": "node", "like": device.scale_up or _DEFAULT_NETWORK}, "node")]
    tiers[-1]["domain"] = 0
    return tuple(tiers)


def _without_network(group: Document) -> str:
    """What a group lacks; a wrong size of its nodes comes before the network between them."""
    size = group.get("gpus_per_node")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        return f"gpus_per_node: expected a whole number such as 8, got {size!r}"
    return "network: required with more than one node; give [network] bandwidth = '400 Gb/s', or nodes = 1"


def _scale_up(group: Document, device: Accelerator) -> list[Document]:
    """The tier inside the node: the accelerator's own link unless the file says otherwise."""
    given = _table(group.get("scale_up", {}), "scale_up")
    each = group.get("gpus_per_node")
    each = each if isinstance(each, int) and each > 0 else None  # its own field says what is wrong with another
    table = {"name": "node", "domain": each, "like": device.scale_up} | given
    if table["domain"] in (None, 1):
        return []
    if not table["like"]:
        raise ValueError(f"scale_up: {device.name} names no link; give [scale_up] like = 'pcie5'")
    return [_tier(table, "scale_up")]


def _tier(table: Document, where: str) -> Document:
    """A tier from a flat table: the fields of the tier, and of its link over those of ``like``.

    ``where`` is what the file calls it.
    """
    flat = {key: value for key, value in table.items() if key != "link"}
    flat |= _table(table.get("link", {}), "link")
    tier = {key: flat.pop(key) for key in _TIER_FIELDS if key in flat}
    short = "latency" in flat
    if short:
        if "step_latency" in flat:
            raise ValueError(f"{where}: latency and step_latency are the same; leave out one")
        flat["step_latency"] = flat.pop("latency")
    stated = bool({"bandwidth", "like"} & flat.keys())
    like = flat.pop("like", None if "efficiency" in flat else _DEFAULT_NETWORK)
    base = {} if like is None else entry("link", str(like))
    link = _link({"source": "as given in the file of the cluster"} | base | flat, where, short=short)
    if not stated:
        raise ValueError(
            f"{where}.bandwidth: required, such as '400 Gb/s', or like = {_DEFAULT_NETWORK!r} to have that link's"
        )
    if base and link != Link.model_validate(base):
        source = f"assumed like {like} but for {', '.join(sorted(flat))}: {link.source}"
        link = link.model_copy(update={"source": source})
    return {"name": "network", "domain": 0, "link": link} | tier


def _link(fields: Document, where: str, *, short: bool) -> Link:
    """The link of a tier; what is wrong with it in the words of the file, which may say latency for short."""
    try:
        return Link.model_validate(fields)
    except ValidationError as error:
        said = flatten(error)
        raise ValueError(f"{where}: {said.replace('step_latency', 'latency') if short else said}") from None


def _table(value: object, where: str) -> Document:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a table of fields, got {value!r}")  # noqa: TRY004 - about a file
    return value


def _tables(value: object, where: str) -> list[Document]:
    if not isinstance(value, list | tuple) or (not value and where == "groups"):
        raise ValueError(f"{where}: expected a list of tables ([[{where}]]), got {value!r}")
    return [_table(item, where) for item in value]
