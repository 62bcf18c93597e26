"""Links fitted to collectives: for every tier that a test reaches, what its link's formula has constants for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from costmodels.primitives.collectives import all_reduce_seconds, all_to_all_seconds, gather_seconds, send_seconds
from costmodels.primitives.rank_groups import Group
from hardware.errors import BadFile
from hardware.links import Tier
from hardware.records import BadNodeCount, Cluster, NodeGroup
from planner.runs.calibrate.identify import settle
from planner.runs.calibrate.records import Log, Transfer
from planner.runs.calibrate.summary import Part, Wording, check_units, errors, exponential, fitted, log_knob, source
from planner.runs.least_squares import Floats, Knob

NOISE: Final = 0.1
"""Spread of a collective's time around the formula: the shipped links err by some 14 % in the median."""
SMALLEST: Final = 64 * 1024
"""Bytes below which NCCL's protocols, not the link, make the time; the shipped links were fitted from here on."""
_LIMITS: Final[Mapping[str, tuple[float, float, float]]] = {
    "efficiency": (0.3, 0.01, 2.0),
    "saturation": (1.5, 1.0, 1e11),
    "base_latency": (1.0, 1e-8, 1.0),
    "step_latency": (1.0, 1e-8, 1.0),
    "all_reduce_gain": (0.3, 1.0, 10.0),
    "point_to_point": (0.3, 0.01, 2.0),
}
"""Spread of the logarithm before anything is measured, and bounds."""
_WORDS: Final = Wording(
    "cluster.",
    "these tests",
    {
        "efficiency": "larger messages, or all_gather_perf as well as all_reduce_perf",
        "saturation": "sizes from 1 MB to 1 GB",
        "base_latency": "sizes from 64 kB on",
        "step_latency": "the same test over another number of ranks",
        "all_reduce_gain": "all_gather_perf as well as all_reduce_perf",
        "point_to_point": "sendrecv_perf with larger messages",
    },
    exponential,
)


def fit_links(logs: Sequence[Log], cluster: Cluster) -> tuple[Cluster, Part]:
    """The cluster with the links of every tier that the tests reach, and what is said of them.

    Raises:
        BadFile: a test that this cluster cannot have run.
    """
    group = cluster.groups[0]
    used = [_used(log, group) for log in logs]
    tiers = {log: _outermost(log, group) for log in logs}
    knobs = _knobs(group, tiers)
    sizes = [np.array([one.size for one in transfers]) for transfers in used]
    measured = np.array([one.seconds for transfers in used for one in transfers])

    def residuals(values: Floats) -> Floats:
        tried = _changed(group.tiers, {k.field: math.exp(float(v)) for k, v in zip(knobs, values, strict=True)})
        found = [transfer_seconds(log, size, tried, group) for log, size in zip(logs, sizes, strict=True)]
        return np.asarray(np.log(np.concatenate(found) / measured))

    ends = list(accumulate(len(size) for size in sizes))
    parts = [slice(end - len(size), end) for end, size in zip(ends, sizes, strict=True)]
    started = residuals(np.array([knob.neutral for knob in knobs]))
    for log, part in zip(logs, parts, strict=True):
        check_units(log.file, log.line, started[part])
    fit = settle(residuals, knobs, noise=NOISE)
    said = source([log.file for log in logs], len(measured), "sizes", fit)
    changed, notes = _spread(_changed(group.tiers, fitted(fit, exponential)), group.tiers, set(tiers.values()), said)
    if left := sum(len(log.transfers) for log in logs) - len(measured):
        notes.append(f"{left} sizes below {SMALLEST // 1024} KiB were not used: protocols, not links, make their time")
    titles = (f"{log.operation} on {log.nodes} x {log.ranks_per_node}, {log.file}" for log in logs)
    missed = (errors(title, fit, part) for title, part in zip(titles, parts, strict=True))
    warnings = (*_WORDS.warnings(fit), *_far_off(changed))
    changed_group = group.model_copy(update={"tiers": changed})
    return (
        cluster.model_copy(update={"groups": (changed_group,)}),
        Part(_WORDS.constants(fit, said), tuple(missed), warnings, tuple(notes)),
    )


def _used(log: Log, group: NodeGroup) -> list[Transfer]:
    """The sizes that speak of links, all of them where few do.

    Raises:
        BadFile: more ranks than the cluster's nodes have.
    """
    if log.ranks_per_node > group.gpus_per_node:
        has = f"the cluster's nodes have {group.gpus_per_node} devices; give another --cluster"
        raise BadFile(log.file, f"line {log.line}: {log.ranks_per_node} ranks on one host, {has}")
    if group.nodes is not None and log.nodes > group.nodes:
        raise BadFile(log.file, f"line {log.line}: {log.nodes} hosts, the cluster has {group.nodes} nodes")
    large = [one for one in log.transfers if one.size >= SMALLEST]
    return large if len(large) >= len(_LIMITS) // 2 else list(log.transfers)


def transfer_seconds(log: Log, size: Floats, tiers: Sequence[Tier], group: NodeGroup) -> Floats:
    """Seconds of a test's collective at each of its sizes (N,) over those tiers."""
    tiers, ranks = _in_use(tiers, group, log), _group_of(log, np.ones(len(size), dtype=np.int64))
    match log.operation:
        case "all_reduce":
            return all_reduce_seconds(size, ranks, tiers)
        case "alltoall":
            return all_to_all_seconds(size, ranks, tiers)
        case "sendrecv":
            return send_seconds(size, np.ones(len(size)), np.full(len(size), float(log.ranks)), tiers)
        case _:
            return gather_seconds(size, ranks, tiers)


def _in_use(tiers: Sequence[Tier], group: NodeGroup, log: Log) -> tuple[Tier, ...]:
    """The tiers of nodes that had no devices but those of the test, so that seven ranks of eight are in one node."""
    whole, used = group.gpus_per_node, log.ranks_per_node
    domains = [tier.domain // whole * used if tier.domain >= whole else min(tier.domain, used) for tier in tiers]
    return tuple(tier.model_copy(update={"domain": each}) for tier, each in zip(tiers, domains, strict=True))


def _group_of(log: Log, ones: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Group:
    """The ranks of a test, numbered over the devices in use."""
    near, far = (log.ranks_per_node * ones, ones), (log.nodes * ones, log.ranks_per_node * ones)
    return Group(size=log.ranks * ones, parts=tuple(part for part in (near, far) if part[0][0] > 1))


def _outermost(log: Log, group: NodeGroup) -> int:
    """The outermost tier that a test reaches."""
    ranks, inside, reached = _group_of(log, np.ones(1, dtype=np.int64)), 1, 0
    for place, tier in enumerate(_in_use(_filled(log, group), group, log)):
        within = int(ranks.ranks_within(tier.domain)[0])
        if within > inside:
            inside, reached = within, place
    return reached


def _filled(log: Log, group: NodeGroup) -> tuple[Tier, ...]:
    """The tiers as the test's nodes use them."""
    try:
        whole = Cluster(name="", title="", groups=(group,), sources={})
        return whole.with_gpus(log.nodes * group.gpus_per_node).groups[0].tiers
    except BadNodeCount:
        return group.tiers


def _knobs(group: NodeGroup, reached: Mapping[Log, int]) -> list[Knob]:
    """Logarithms of the constants that the tests of each tier can speak of."""
    knobs = []
    for place in sorted(set(reached.values())):
        tier, logs = group.tiers[place], [log for log, at in reached.items() if at == place]
        kinds = {log.operation for log in logs}
        fields = ["base_latency"]
        if kinds - {"sendrecv"}:
            fields = ["efficiency", "saturation", "base_latency", "step_latency"]
        if tier.link.gain_ranks and any(
            log.operation == "all_reduce" and log.ranks >= tier.link.gain_ranks for log in logs
        ):
            fields.append("all_reduce_gain")
        if "sendrecv" in kinds:
            fields.append("point_to_point")
        knobs += [
            log_knob(f"{tier.name}.{field}", float(getattr(tier.link, field)), _LIMITS[field]) for field in fields
        ]
    return knobs


def _changed(tiers: Sequence[Tier], values: Mapping[str, float]) -> tuple[Tier, ...]:
    """Tiers with constants by tier and field."""
    changed = []
    for tier in tiers:
        update = {name.rpartition(".")[2]: v for name, v in values.items() if name.rpartition(".")[0] == tier.name}
        changed.append(tier.model_copy(update={"link": tier.link.model_copy(update=update)}))
    return tuple(changed)


def _far_off(tiers: Sequence[Tier]) -> list[str]:
    """A warning for links far from their nominal bandwidth: either is wrong, and a person knows which."""
    return [
        f"cluster.{tier.name}.efficiency {tier.link.efficiency:.2g} of the nominal "
        f"{8e-9 * tier.link.bandwidth:g} Gb/s a device: is that the bandwidth, and were all cards used?"
        for tier in tiers
        if not _PLAUSIBLE[0] < tier.link.efficiency < _PLAUSIBLE[1]
    ]


_PLAUSIBLE: Final = (0.5, 1.05)
"""Share of the nominal bandwidth that links reach where nothing is wrong."""


def _spread(
    fitted: tuple[Tier, ...], before: tuple[Tier, ...], reached: set[int], said: str
) -> tuple[tuple[Tier, ...], list[str]]:
    """Tiers further out that had the very link of a fitted one get its constants: they send through the same cards."""
    changed, notes = list(fitted), []
    for place in sorted(reached):
        link = fitted[place].link.model_copy(update={"source": said})
        changed[place] = fitted[place].model_copy(update={"link": link})
        for further in range(place + 1, len(before)):
            if further not in reached and before[further].link == before[place].link:
                changed[further] = before[further].model_copy(update={"link": link})
                notes.append(f"tier {before[further].name} takes the link of {before[place].name}: they were alike")
    return tuple(changed), notes
