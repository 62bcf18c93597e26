"""What several files tell of the same machines, joined; what they leave open, asked or assumed from the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hardware.catalogue import accelerator
from hardware.errors import UnknownName
from hardware.files import canonical, entry, names, source_texts
from hardware.units import parse_quantity
from planner.answer.text import plural
from planner.errors import BadRequest
from planner.machines.findings import Figure, Node, Port
from planner.machines.readers import FileRead

_DRIVERS: Final = ("gpu",)
"""Figures that a node tells better than a scheduler, which shortens names."""
_LINKS: Final = {
    "InfiniBand": ((100, "ib-edr100"), (200, "ib-hdr200"), (400, "ib-ndr400"), (800, "ib-xdr800")),
    "Ethernet": ((100, "ethernet-100"), (200, "roce-200"), (400, "roce-400")),
    "Omni-Path": ((100, "omni-path-100"),),
}
"""Links of the catalogue by the Gb/s of one port."""
USUAL_NODE: Final = 8


class Question(NamedTuple):
    """What is not known yet of a kind of node."""

    figure: str
    """Name of the figure, as of `Node`."""
    text: str
    suggested: str | None
    """What is taken where nobody answers; None where there is no such."""


class Network(NamedTuple):
    """The link between nodes, of one device and direction."""

    bandwidth: str
    like: str


def joined(files: Sequence[FileRead]) -> list[Node]:
    """Kinds of nodes: those that a scheduler counts with what single nodes tell of them, or those of single nodes."""
    counted = _merged([node for one in files if one.reader.counts for node in one.nodes])
    single = [node for one in files if not one.reader.counts for node in one.nodes]
    named = _merged([node for node in single if "gpu" in node.figures])
    nodes = counted or named or [Node()]
    for node in named if counted else ():
        same = [one for one in nodes if _alike(one, node)] or (nodes if len(nodes) == 1 else [])
        if not same:
            node.remarks.append(f"{node.figures['gpu'].source}: {node.value('gpu')} is none of what the scheduler has")
        for one in same:
            _add(one, node)
    for node in single:
        if "gpu" not in node.figures:
            for one in nodes:
                _add(one, node)
    return nodes


def _merged(nodes: Sequence[Node]) -> list[Node]:
    """Each kind of device once; several files about one kind add up."""
    kinds: list[Node] = []
    for node in nodes:
        same = next((one for one in kinds if _alike(one, node) and _equal(one, node, "gpus_per_node")), None)
        if same is None:
            kinds.append(node)
        else:
            _add(same, node)
    return kinds


def _equal(one: Node, other: Node, figure: str) -> bool:
    return None in (one.value(figure), other.value(figure)) or one.value(figure) == other.value(figure)


def _alike(one: Node, other: Node) -> bool:
    """Whether two names of devices may be one; who says none may mean any."""
    first, second = one.value("gpu"), other.value("gpu")
    return None in (first, second) or first == second or _catalogued(first) == _catalogued(second) is not None


def _catalogued(name: str) -> str | None:
    try:
        return canonical("accelerator", name)
    except UnknownName:
        return None


def _add(to: Node, other: Node) -> None:
    """Take what another file tells; what both tell differently is said."""
    for name, figure in other.figures.items():
        mine = to.figures.get(name)
        if mine and name == "gpu" and not _alike(to, other):
            to.remarks.append(f"{mine.source} says {mine.value}; {figure.value} is taken ({figure.source})")
        if mine is None or name in _DRIVERS:
            to.figures[name] = figure
        elif mine.value != figure.value and name == "gpus_per_node":
            to.remarks.append(
                f"{figure.source} says {figure.value} GPUs in a node; {mine.value} is taken ({mine.source})"
            )
    to.remarks += [remark for remark in other.remarks if remark not in to.remarks]


def chosen_kinds(nodes: Sequence[Node], name: str | None) -> list[Node]:
    """Of several kinds of nodes those whose device is known, or the one with the device that was named.

    Raises:
        BadRequest: none is known, or none has that device.
    """
    if len(nodes) < 2:
        return list(nodes)
    if name is not None:
        wanted = _catalogued(name)
        kept = [node for node in nodes if wanted and _catalogued(str(node.value("gpu"))) == wanted]
        if not kept:
            has = ", ".join(str(node.value("gpu")) for node in nodes)
            raise BadRequest(f"--accelerator {name}: the files tell of {has}; name one of these, or one file less")
        return kept
    unknown = [node for node in nodes if _catalogued(str(node.value("gpu"))) is None]
    if len(unknown) == len(nodes):
        identify(unknown[0])  # which says the nearest
    kept = [node for node in nodes if node not in unknown]
    kept[0].remarks += [_left_out(node) for node in unknown]
    return kept


def _left_out(node: Node) -> str:
    figure = node.figures.get("gpu")
    said = f"{figure.value} ({figure.source})" if figure else "a device that is not named"
    return f"left out: {plural(int(node.value('nodes') or 1), 'node')} with {said}, which the catalogue does not hold"


def identify(node: Node) -> None:
    """Add the catalogue's name of the device to the name that a file says.

    Raises:
        BadRequest: no such accelerator is known; with the nearest.
    """
    if "gpu" not in node.figures or "accelerator" in node.figures:
        return
    said, source = node.figures["gpu"]
    memory = node.value("gpu_memory")
    sized = [f"{said} {size}GB" for size in _sizes(memory)] if memory else []
    found = next((known for name in (said, *sized) if (known := _catalogued(name))), None)
    if found is None:
        try:
            canonical("accelerator", said)
        except UnknownName as error:
            raise BadRequest(f"{source}: {error}; --accelerator says which to take") from None
    assert found is not None
    if memory and not _fits(found, memory):
        found = next((k for name in sized if (k := _catalogued(name)) and _fits(k, memory)), found)
    node.say("accelerator", found, f'{source}: "{said}"')
    if memory is None and (others := _variants(said, found)):
        node.remarks.append(f'{source}: "{said}" may be {" or ".join(others)} too; {found} is taken')
    if memory and not _fits(found, memory):
        node.remarks.append(
            f"{source}: {memory / 2**30:.0f} GiB of memory, {found} has {accelerator(found).memory / 2**30:.0f}; "
            "--accelerator names another one"
        )


def _sizes(memory: float) -> tuple[int, ...]:
    """GB that a device of so many bytes may be called by: drivers keep some of it."""
    gib = memory / 2**30
    return tuple(size for size in (16, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 192) if 0.93 < gib / size < 1.08)


def _variants(said: str, found: str) -> list[str]:
    """What else a short name could mean: other forms and memories."""
    return [name for name in names("accelerator") if name != found and name.startswith(f"{said.lower()}-")]


def _fits(name: str, memory: float) -> bool:
    return abs(memory / accelerator(name).memory - 1.0) < 0.1


def usual_cluster(node: Node) -> str | None:
    """The cluster of the catalogue that a node is most like: of its cloud, or with its accelerator."""
    named = (_cluster_called(str(node.value(figure) or "")) for figure in ("machine", "accelerator"))
    return next(filter(None, named), None)


def _cluster_called(name: str) -> str | None:
    """A cluster of the catalogue, of a cloud's machine as "p5.48xlarge" too; None where there is none."""
    try:
        return canonical("cluster", name.replace(".", "-").replace("_", "-")) if name else None
    except UnknownName:
        return None


def open_questions(node: Node) -> list[Question]:
    """What is to be asked of a kind of node, five questions at most; its accelerator first, as the rest follows it."""
    if "accelerator" not in node.figures and "gpu" not in node.figures:
        return [Question("accelerator", "Accelerator, as `plan list accelerators` or the driver calls it", None)]
    near = usual_cluster(node)
    document = entry("cluster", near) if near else {}
    asked = [
        Question("gpus_per_node", "GPUs in a node", str(document.get("gpus_per_node", USUAL_NODE))),
        Question("nodes", "Nodes (Enter: as many as a plan asks for)", ""),
        Question("network", "Network between nodes, of one GPU and direction, or a link's name", _bandwidth_of(near)),
        Question("price", "Rent of one GPU in dollars an hour", _rent(node.value("accelerator"))),
    ]
    known = {*node.figures, *(["network"] if node.value("ports") or node.value("nodes") == 1 else [])}
    return [one for one in asked if one.figure not in known]


def _rent(name: str | None) -> str | None:
    price = accelerator(name).price if name else None
    return None if price is None else f"{price * 3600:.2f}"


def _bandwidth_of(cluster: str | None) -> str | None:
    found = network_of(cluster) if cluster else None
    return found.bandwidth if found else None


def network_of(cluster: str) -> Network | None:
    """The outermost link of a cluster of the catalogue."""
    document = entry("cluster", cluster)
    tier: dict[str, Any] = document.get("network") or next(iter(reversed(document.get("tiers", []))), {})
    like = tier.get("like")
    if like is None:
        return None
    return Network(str(tier.get("bandwidth") or entry("link", str(like))["bandwidth"]), str(like))


def answered(node: Node, figure: str, text: str, source: str) -> None:
    """Keep what a person said of a figure.

    Raises:
        BadRequest: it is no such figure.
    """
    try:
        node.say(figure, _READ[figure](text.strip()), source)
    except (ValueError, UnknownName) as error:
        raise BadRequest(f"{source}: {error}") from None


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**6:
        raise ValueError(f"expected a whole number such as 8, got {text!r:.40}")
    return int(text)


def _network(text: str) -> Network:
    """A bandwidth in bits or bytes a second, or the name of a link."""
    if text in names("link"):
        return Network(str(entry("link", text)["bandwidth"]), text)
    rate = 8e-9 * parse_quantity(text, "bandwidth")
    return Network(text, _nearest(_LINKS["InfiniBand"], rate))


def _nearest(known: Sequence[tuple[int, str]], rate: float) -> str:
    return min(known, key=lambda pair: abs(pair[0] - rate))[1]


def _price(text: str) -> str:
    plain = text.removeprefix("$")
    quantity = f"{plain} $/h" if plain.replace(".", "", 1).isdecimal() else text
    parse_quantity(quantity, "price")
    return quantity


_READ: Final = {
    "accelerator": lambda text: canonical("accelerator", text),
    "gpus_per_node": _count,
    "nodes": _count,
    "network": _network,
    "price": _price,
}


def settle_price(node: Node) -> None:
    """The rent of a device: as it was said, or assumed to be the catalogue's, where that has one."""
    name = str(node.value("accelerator"))
    if "price" not in node.figures and (rent := _rent(name)) is not None:
        source = source_texts().get(accelerator(name).sources.get("price", ""), "")
        whose = f"the catalogue's for {name}{source and f' ({source})'}"
        node.say("price", f"{rent} $/h", f"assumed: {whose}; --price sets yours")


def settle_network(node: Node, *, alone: bool) -> None:
    """The network of a kind of node: as it was said, by its ports, as its cloud has it, or assumed from its like.

    A node that is ``alone`` needs none.

    Raises:
        BadRequest: nobody tells it, and the catalogue has nothing like it.
    """
    if "network" in node.figures or (alone and node.value("nodes") == 1):
        return
    ports = node.figures.get("ports")
    if ports and ports.value:
        node.figures["network"] = Figure(*_of_ports(ports.value, int(node.value("gpus_per_node")), ports.source))
        return
    near = usual_cluster(node)
    found = network_of(near) if near else None
    if near is None or found is None:
        raise BadRequest('the network between nodes is not known; give --network, such as "400 Gb/s", or --nodes 1')
    machine = node.figures.get("machine")
    of_cloud = machine is not None and _cluster_called(machine.value) == near
    why = f"{machine.source}: {machine.value}, " if machine and of_cloud else "assumed: as "
    node.say("network", found, f"{why}the catalogue's {near}; --network says otherwise")


def _of_ports(ports: Sequence[Port], gpus: int, source: str) -> tuple[Network, str]:
    """Bits a second of one device: the ports of the fastest kind over the devices of the node, as many for each."""
    layers = [port for port in ports if port.layer != "Ethernet"] or list(ports)
    fastest = max(port.rate for port in layers)
    alike = [port for port in layers if port.rate == fastest]
    used = alike[: len(alike) // gpus * gpus] or alike  # beyond one or more a device they serve storage
    each = len(used) * fastest / gpus / 1e9
    like = _nearest(_LINKS.get(used[0].layer, _LINKS["Ethernet"]), fastest / 1e9)
    ports_used = f"{plural(len(used), f'{used[0].layer} port')} of {fastest / 1e9:g} Gb/s"
    rest = f", {len(alike) - len(used)} more left out: they look like storage's" if len(used) < len(alike) else ""
    said = f"{ports_used} for {plural(gpus, 'GPU')}{rest}"
    return Network(f"{each:.6g} Gb/s", like), f"{source}; {said}"
