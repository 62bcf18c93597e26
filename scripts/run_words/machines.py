"""From what a measured run says of its machines to a node group of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from hardware.catalogue import accelerator as find_accelerator
from hardware.catalogue import cluster, names
from hardware.errors import MeshwrightError, UnknownName
from hardware.files import canonical, entry
from hardware.links import Link, Tier
from hardware.records import Accelerator, BadNodeCount, Cluster, NodeGroup
from run_words import heard as re
from run_words.network_words import WITHIN, assumed, lane_bandwidth, link_name
from run_words.variants import (
    accelerator_name,
    as_run,
    catalogued,
    halved,
    naming,
    of_cores,
    with_memory,
)

Row = Mapping[str, Any]


class Unpriceable(MeshwrightError):
    """A measured run that cannot be priced; the message says what is missing."""


CLUSTERS: dict[str, str] = {
    "v100-sxm2-16gb": "v100-dgx1-edr",
    "v100-sxm2-32gb": "v100-dgx1-edr",
    "a100-sxm-40gb": "dgx-a100-40gb",
    "a100-sxm-80gb": "dgx-a100-80gb",
    "a100-pcie-40gb": "a100-80gb-pcie",
    "h100-sxm": "dgx-h100",
    "h100-pcie": "dgx-h100",
    "h200-sxm": "dgx-h200",
    "b200": "dgx-b200",
    "b300": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "l40s": "l40s-pcie",
    "mi300x": "mi300x-8x",
    "gh200": "gh200-slingshot",
    "rtx-a5000": "rtx-a6000-8x",
    "rtx3090-ti": "rtx3090-8x",
    "titan-rtx": "rtx2080ti-8x",
    "quadro-rtx-6000": "rtx2080ti-8x",
    "quadro-rtx-8000": "rtx2080ti-8x",
    "v100-pcie-16gb": "v100-pcie-4x",
    "v100s-pcie-32gb": "v100-pcie-4x",
}
"""The catalogue cluster whose node, links and tiers stand for an accelerator where a source names none; of others the
first that has it."""


def node_group(row: Row, notes: list[str]) -> tuple[Cluster, NodeGroup]:
    """The machines of a measured run, of any number of nodes and of its own; what is assumed is added to ``notes``.

    Raises:
        Unpriceable: the accelerator is not in the catalogue.
    """
    found = machines(row, notes)
    notes += _unlike(found, row)
    gpus = int(row["strategy"].get("gpus") or 0)
    sliced = _sliced(found, row, gpus)
    return sliced, _filled(sliced, gpus).groups[0]


def _unlike(found: Cluster, row: Row) -> list[str]:
    """Notes on what the run's words change of the cluster that stands for its own; its network where they name one."""
    words, (group,), usual = str(row["cluster"].get("inter_node") or ""), found.groups, cluster(found.name).groups[0]
    notes = list(_of_the_device(group.accelerator, usual.accelerator))
    if lane_bandwidth(words, group.gpus_per_node, _card(group)) is None:
        return notes
    return [_of_the_network(group, usual, found.name, link_name(words, group.accelerator.name)), *notes]


def _of_the_network(group: NodeGroup, usual: NodeGroup, cluster: str, link: str | None) -> str:
    """The cluster whose network stands for the run's, and what the run's words say that differs from it.

    Args:
        group: what is priced.
        usual: the nodes of that cluster in the catalogue.
        cluster: its name.
        link: the link of the catalogue that the run's words on its network name.
    """
    carried, known = (nodes.tiers[-1].link.bandwidth / 1e9 if nodes.tiers else 0.0 for nodes in (group, usual))
    differs = [f"{carried:.3g} GB/s a device in place of {known:.3g}"] if carried != known else []
    differs += [link] if link else []
    return f"network of {cluster}{' with ' if differs else ''}{', '.join(differs)}, by the run's words"


def _of_the_device(device: Accelerator, usual: Accelerator) -> Iterator[str]:
    """A note each where the run holds its devices to less power, or has other rates than they have elsewhere."""
    if device.name != usual.name:
        return
    if device.power_limit not in (None, usual.power_limit):
        yield f"{device.name} held to {device.power_limit:g} W, by the run's words"
    for name, peak in usual.peak.items():
        if name in device.peak and device.peak[name] != peak:
            yield f"{device.name} with {device.peak[name] / peak:.3g} of its peak in {name}, by the run's words"


def _sliced(found: Cluster, row: Row, gpus: int) -> Cluster:
    """The machines in slices of a torus as small as the run says, which meet over the network outside it."""
    said = re.search(r"across (\d+) slice", str(row.get("stack", {}).get("notes")))
    group = found.groups[0]
    inner, *outer = group.tiers
    if said is None or not inner.link.axes or not outer:
        return found
    slices = group.model_copy(update={"tiers": (inner.model_copy(update={"domain": gpus // int(said[1])}), *outer)})
    return found.model_copy(update={"groups": (slices,)})


def machines(row: Row, notes: list[str]) -> Cluster:
    """The cluster that a measured run describes, of any number of nodes; what had to be assumed goes to ``notes``.

    Raises:
        Unpriceable: the accelerator is not in the catalogue.
    """
    said = row["cluster"]
    name = _catalogued(accelerator_name(row))
    like = _machines(name, row)
    group = _with_accelerator(like.groups[0], find_accelerator(name))
    group = _devices_as_said(group, row, notes)
    group = _in_racks(group, row, notes)
    size = _node_size(group, int(said.get("gpus_per_node") or group.gpus_per_node), notes)
    group = _networked(group, like, row, size, notes)
    if size != group.gpus_per_node:
        notes.append(f"nodes of {size} joined as the {group.gpus_per_node} of {like.name} are assumed")
        group = _with_nodes_of(group, size)
    return like.model_copy(update={"groups": (group,)})


def _devices_as_said(group: NodeGroup, row: Row, notes: list[str]) -> NodeGroup:
    """The nodes with devices as the run has them: by their kin, as cores, with other memory, held to less power."""
    notes.extend(naming(row))
    name = group.accelerator.name
    if of_cores(row, name):
        notes.append(f"devices of {name} are cores, two to a chip, each with half of its arithmetic, memory and links")
        group = halved(group)
    return group.model_copy(update={"accelerator": with_memory(row, as_run(row, group.accelerator), notes)})


def _node_size(group: NodeGroup, said: int, notes: list[str]) -> int:
    """Devices of a node; who says as many as a domain of several nodes has, as the 72 of NVL72, counts its devices."""
    if said != group.tiers[0].domain or said <= group.gpus_per_node:
        return said
    notes.append(f"the {said} said of a node are one domain of nodes of {group.gpus_per_node}")
    return group.gpus_per_node


def _in_racks(group: NodeGroup, row: Row, notes: list[str]) -> NodeGroup:
    """The nodes in NVLink domains of the size that the words on them name, where their own span several nodes."""
    size, (inner, *outer) = _rack(row), group.tiers
    if inner.domain <= group.gpus_per_node or inner.link.axes or not group.gpus_per_node <= size != inner.domain:
        return group
    notes.append(f"NVLink domains of {size} joined as those of {inner.domain} are assumed")
    return group.model_copy(update={"tiers": (inner.model_copy(update={"domain": size}), *outer)})


def _rack(row: Row) -> int:
    """Devices of the NVLink domain that the words on the machines name, as NVL36 does; 0 where they name none."""
    words = " ".join(str(row["cluster"].get(key)) for key in ("accelerator", "accelerator_note", "intra_node"))
    found = re.search(r"\bnvl-?(\d+)\b", words, re.IGNORECASE)
    return int(found[1]) if found else 0


def _networked(group: NodeGroup, like: Cluster, row: Row, size: int, notes: list[str]) -> NodeGroup:
    """The nodes with the network that is said between them, or with their own and a note."""
    words = str(row["cluster"].get("inter_node") or "")
    fastest = _card(group)
    lane = lane_bandwidth(words, size, fastest)
    if lane is None:
        unread = f", of which {words!r:.60} names no bandwidth" if words and not WITHIN.search(words) else ""
        notes.append(f"network of {like.name} assumed{unread}")
        return group
    notes.extend(filter(None, [assumed(words, size, fastest)]))
    inside = _inside(group)
    outer = [_carrying(tier, link_name(words, group.accelerator.name), lane) for tier in group.tiers[inside:]]
    return group.model_copy(update={"tiers": (*group.tiers[:inside], *outer)})


def _inside(group: NodeGroup) -> int:
    """How many tiers join devices below the network: those of a node, or the domain of several nodes."""
    first, *others = group.tiers
    within = sum(0 < tier.domain <= group.gpus_per_node for tier in others)  # dies of other packages, other sockets
    return 1 + within if first.domain else 0


def _catalogued(said: str) -> str:
    """The catalogue's name of an accelerator, which may be said by a short one.

    Raises:
        Unpriceable: it has none, or no cluster stands for it.
    """
    try:
        name = canonical("accelerator", catalogued(said))
    except UnknownName as error:
        hint = f"; did you mean {' or '.join(error.near)}?" if error.near else ""
        raise Unpriceable(f"accelerator {said} is not in the catalogue{hint}") from None
    if name not in CLUSTERS and not _clusters_of(name):
        raise Unpriceable(f"no cluster of the catalogue has accelerator {name}")
    return name


@cache
def _clusters_of(accelerator: str) -> tuple[str, ...]:
    """The catalogue's clusters of one accelerator alone, by name."""
    whole = ((name, cluster(name).groups) for name in names("cluster"))
    return tuple(name for name, groups in whole if len(groups) == 1 and groups[0].accelerator.name == accelerator)


def _with_nodes_of(group: NodeGroup, size: int) -> NodeGroup:
    """The nodes with that many devices; a domain of several nodes, as of NVL72, stays as it is.

    Smaller domains in a node, as of NVLink pairs, stay too. The tier that joins what is left of a node is the first
    that holds so many devices, or the widest of a node; a node of one has none.
    """
    tiers = group.tiers
    if tiers[0].domain <= group.gpus_per_node:
        local, outer = tiers[: _inside(group)], tiers[_inside(group) :]
        kept = [tier for tier in local[:-1] if tier.domain < size]
        joins = [local[len(kept)].model_copy(update={"domain": size})] if size > 1 and local else []
        tiers = (*kept, *joins, *(tier for tier in outer if not tier.domain or tier.domain > size))
    return group.model_copy(update={"gpus_per_node": size, "tiers": tiers})


def _with_accelerator(group: NodeGroup, device: Accelerator) -> NodeGroup:
    """The nodes with other devices in them, joined by the links of these where they have their own kind."""
    inner, *outer = group.tiers
    if device.scale_up and device.scale_up != group.accelerator.scale_up:
        inner = inner.model_copy(update={"link": _link(device.scale_up)})
    return group.model_copy(update={"accelerator": device, "tiers": (inner, *outer)})


def _machines(accelerator: str, row: Row) -> Cluster:
    """The cluster that stands for an accelerator, or the first other with nodes or racks of the size that is said.

    Nodes that share a domain with others are no one's but whose words name it: a node of one GH200 may stand alone.
    """
    known, node = _clusters_of(accelerator), row["cluster"].get("gpus_per_node")
    usual = cluster(CLUSTERS.get(accelerator) or known[0])
    if node is None or usual.groups[0].gpus_per_node == node:
        return usual
    others = [(one, one.groups[0]) for one in map(cluster, known)]
    racks = (one for one, group in others if group.gpus_per_node < group.tiers[0].domain in (_rack(row), node))
    alone = (one for one, group in others if group.gpus_per_node == node >= group.tiers[0].domain)
    return next(racks, None) or next(alone, usual)


def _filled(machines: Cluster, gpus: int) -> Cluster:
    """The machines as a job of that size uses them; as they are where it does not fill whole nodes."""
    try:
        return machines.with_gpus(gpus)
    except BadNodeCount:
        return machines


def _card(group: NodeGroup) -> float:
    """Bytes/s of one network card of the nodes; 0 where it is not known how many there are."""
    outer = group.tiers[_inside(group) :]
    return outer[0].link.bandwidth * group.gpus_per_node / outer[0].lanes if outer and outer[0].lanes else 0.0


def _carrying(tier: Tier, link: str | None, lane: float) -> Tier:
    """A tier of the network with the bandwidth that is said, and the link that the words name."""
    base = tier.link if link is None else _link(link)
    return tier.model_copy(update={"link": base.model_copy(update={"bandwidth": lane})})


@cache
def _link(name: str) -> Link:
    return Link.model_validate(entry("link", name))
