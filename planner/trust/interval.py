"""How far one prediction can be trusted: its interval, the measured runs nearest to it, the validated region.

An interval is conformal between sources: a source's misses are divided by the miss that the sources comparable to it
lead one to expect, and the quantiles of what comes out, every group counting the same and no source judged by its own
runs, are multiplied with the miss that is expected here [Lei18], [Dunn22]. It is wider where comparable sources missed
by more, the further away the nearest run is, and the less of a step its products fill. It rests on the fit split, as
constants without a source would miss it, and on the check split, which no constant knows; the dev split checks.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Strategies
from hardware.catalogue import accelerator as find_accelerator
from hardware.records import Accelerator
from planner.answer.plan import Comparable, Interval, Trust
from planner.trust.similarity import EXTENTS, MIXTURE, Traits, apart, distance, traits
from planner.trust.table import ENOUGH, LEFT_OUT, Measured, Run, every_run, figures, measured, scale

COVERAGE = 0.9
NOTHING = 1.0
"""Weight of the usual miss, which rests on no comparable run, in sources that are like the plan in everything."""
SHOWN = 3
"""Measured runs that are named."""
NOTABLE = 0.25
"""What a trait must add to the distance of the nearest run to be named."""

SPREAD = 2.0
"""Peaks of one architecture that are further apart are of another kind of device, as of a card for games."""

WORDS = {
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
    "seq_length": "sequence length",
    "bits": "number format",
    "kind": "kind of layers",
    "sharding": "ZeRO stage",
    "recompute": "full recomputation",
    "attention": "attention kernel",
    "gpus": "number of GPUs",
    "parameters": "model size",
}


def expected_miss(away: Floats, known: Measured, usual: float) -> float:
    """The size of the scaled miss to expect at distances ``away`` (M,) from the known runs; infinite ones do not count.

    A source speaks with e^-d of its nearest run, for its runs weighted by e^-d each.
    """
    near = np.exp(-away)
    _, place = np.unique(known.sources, return_inverse=True)
    total = np.bincount(place, near)
    counts = total > 0.0
    size = np.bincount(place, near * abs(known.scaled))[counts] / total[counts]
    weight = np.zeros(len(total))
    np.maximum.at(weight, place, near)
    weight = weight[counts]
    return float((weight @ size + NOTHING * usual) / (weight.sum() + NOTHING))


def interval(
    scenario: Scenario, row: Strategies, seconds: float, *, mfu: float, mixture: bool = False, source: str = ""
) -> Interval:
    """Where the measured time of one strategy should lie.

    Args:
        scenario: what is trained on what.
        row: the strategy, N = 1.
        seconds: its predicted time per iteration.
        mfu: its predicted utilisation.
        mixture: it runs on several kinds of nodes.
        source: whose run it is, where one is judged: its own runs are set aside, and if the shipped constants were
            fitted to it, it misses by less.
    """
    mine, known = traits(scenario, row), _judges()
    away, near = (
        np.where(of.sources == source, np.inf, distance(mine, of.traits)[0] + MIXTURE * mixture)
        for of in (known, measured())
    )
    slow = np.maximum(mfu, every_run().mfus.min())  # how misses go on to grow below that nobody measured
    miss = expected_miss(away, known, figures().usual) * float(scale(slow, near.min()))
    low, high = np.exp(np.array(_ends(scenario, source)) * miss)
    return Interval(low=seconds * float(low), high=seconds * float(high), coverage=COVERAGE)


def _ends(scenario: Scenario, source: str) -> tuple[float, float]:
    """Of misses that are covered, by what constants know of whose run it is."""
    found = figures()
    if source in _fitted():
        return found.fitted_low, found.fitted_high
    if scenario.stack.calibrated.own_runs >= ENOUGH:
        return found.own_low, found.own_high
    return found.low, found.high


@cache
def _judges() -> Measured:
    """The runs that intervals rest on."""
    return every_run().of("fit", "check")


@cache
def _fitted() -> frozenset[str]:
    """The sources that constants were fitted to."""
    return frozenset(run.source for run in every_run().of("fit").runs if run.group not in LEFT_OUT)


def trust(scenario: Scenario, row: Strategies, *, mfu: float = 1.0, mixture: bool = False) -> Trust:
    """The measured runs nearest to one strategy, of either split, and whether that is near.

    ``mfu`` is its predicted utilisation.
    """
    table, found = measured(), figures()
    mine = traits(scenario, row)
    away = distance(mine, table.traits)[0] + MIXTURE * mixture
    order = np.argsort(away, kind="stable")
    groups = np.array([table.runs[i].group for i in order])
    first = order[np.sort(np.unique(groups, return_index=True)[1])[:SHOWN]]
    far = _unlike_device(scenario, mine, table, order) + _beyond(mine, table)
    if mfu < (least := float(table.mfus.min())):  # as predictions have it
        far += (f"MFU {100.0 * mfu:.2g} % against {100.0 * least:.2g} % at least",)
    far += _untried(scenario)
    return Trust(
        nearest=tuple(_comparable(table, int(i), float(away[i])) for i in first),
        region=found.region,
        inside=bool(away[order[0]] <= found.region) and not far,
        differs=_differs(mine, table, order[:1], mixture=mixture),
        beyond=far,
    )


def _untried(scenario: Scenario) -> tuple[str, ...]:
    """What no run of the table trains, or only those of the split that nothing is learnt from."""
    said = {
        "adapters against none": scenario.frozen,
        "frozen layers against none": scenario.trained_depth < 1.0,
        f"{scenario.task.title} against pretraining": scenario.task.sequences > 1 or scenario.further_forwards > 0,
        "packed documents against whole sequences": scenario.attended_length < scenario.seq_length,
    }
    return tuple(words for words, found in said.items() if found)


def outside(found: Trust) -> tuple[str, ...]:
    """The remark on a plan that is outside the validated region."""
    if found.inside:
        return ()
    nearest, differs = found.nearest[0], ", ".join(found.differs) or "size"
    said = [f"the nearest measured run, of {nearest.group}, differs in {differs}"] * (nearest.distance > found.region)
    said += [f"{', '.join(found.beyond)} in measured runs that are learnt from"] * bool(found.beyond)
    return (f"outside the validated region: {'; '.join(said)}",)


def above_measured(scenario: Scenario, row: Strategies, mfu: float) -> tuple[str, ...]:
    """The remark that nobody measured so high a utilisation on half as many such devices or more, in as many bits."""
    table, mine = measured(), traits(scenario, row)
    same = np.ones(len(table.runs), dtype=bool)
    for name in ("accelerator", "bits"):
        same &= table.traits.names[name] == mine.names[name][0]
    same &= table.traits.sizes["gpus"] >= mine.sizes["gpus"][0] - 1.0
    best = max((table.runs[i] for i in np.flatnonzero(same)), key=lambda run: run.mfu, default=None)
    if best is None or mfu <= best.mfu:
        return ()
    where = f"on half as many {mine.names['accelerator'][0]} or more ({best.mfu:.1%}, {best.group})"
    return (f"MFU {mfu:.1%} is above all that was measured {where}",)


def _unlike_device(scenario: Scenario, mine: Traits, table: Measured, order: NDArray[np.int64]) -> tuple[str, ...]:
    """A device of a kind that was never measured, or never under such software, beside the nearest run's.

    Software of which no run is of any device's is no reason: a stack of one's own is like none.
    """
    names = table.traits.names
    kind = np.isin(names["accelerator"], _of_the_kind(scenario.group.accelerator))
    descent = names["framework"] == mine.names["framework"][0]
    if (kind & descent).any() or (kind.any() and not descent.any()):
        return ()
    near = next(i for i in order if kind[i] or not kind.any())
    own, other = (f" under {stack}" * bool(kind.any()) for stack in (mine.names["stack"][0], names["stack"][near]))
    return (f"{mine.names['accelerator'][0]}{own} against {names['accelerator'][near]}{other} at nearest",)


def _of_the_kind(device: Accelerator) -> list[str]:
    """The measured devices of one's kind."""
    kind, peak = _kind(device)
    same = {name: known for name, (other, known) in _measured_kinds().items() if other == kind}
    return [name for name, known in same.items() if max(peak, known) <= SPREAD * min(peak, known)]


@cache
def _measured_kinds() -> dict[str, tuple[str, float]]:
    names = map(str, np.unique(measured().traits.names["accelerator"]))
    return {name: _kind(find_accelerator(name)) for name in names}


def _kind(device: Accelerator) -> tuple[str, float]:
    """The architecture, whatever processor is beside it, and the peak in 16 bits."""
    return device.architecture.partition(" + ")[0], device.half_rate


def _beyond(mine: Traits, table: Measured) -> tuple[str, ...]:
    """Degrees and sequences more than a doubling beyond the largest of all runs of models with the same kind of layers.

    A kind of which there is no run is named alone. Sequences are compared with the runs under such software, which
    decides how they are split; where none of these ran under it, with all.
    """
    alike = table.traits.names["kind"] == mine.names["kind"][0]
    if not alike.any():
        return (f"{mine.names['kind'][0]} layers against none",)

    def too_large(key: str, among: Bools) -> tuple[float, float] | None:
        own, most = float(mine.sizes[key][0]), float(table.traits.sizes[key][among].max())
        return (2.0**own, 2.0**most) if own > most + 1.0 else None

    degrees = tuple(
        f"{key.upper()} {found[0]:.0f} against {found[1]:.0f} at most"
        for key in EXTENTS
        if (found := too_large(key, alike))
    )
    descent = alike & (table.traits.names["framework"] == mine.names["framework"][0])
    found = too_large("seq_length", descent if descent.any() else alike)
    if found is None:
        return degrees
    own, most = (length / 2**10 for length in found)
    under = " under such software" if descent.any() else ""
    return (*degrees, f"sequences of {own:.3g} Ki tokens against {most:.3g} Ki at most{under}")


def _comparable(table: Measured, i: int, away: float) -> Comparable:
    run: Run = table.runs[i]
    at = {key: round(2.0 ** float(table.traits.sizes[key][i])) for key in ("gpus", "tp", "cp", "pp", "ep")}
    degrees = [f"{name.upper()} {at[name]}" for name in ("tp", "cp", "pp", "ep") if at[name] > 1]
    return Comparable(
        group=run.group,
        model=run.model,
        accelerator=str(table.traits.names["accelerator"][i]),
        gpus=at["gpus"],
        stack=str(table.traits.names["stack"][i]),
        layout=", ".join(degrees) or "data parallel",
        distance=away,
        measured_seconds=run.seconds,
        measured_mfu=run.mfu,
        error=run.error,
    )


def _differs(mine: Traits, table: Measured, nearest: NDArray[np.int64], *, mixture: bool) -> tuple[str, ...]:
    """In what the strategy differs from its nearest run, most first."""
    parts = {key: float(part.flat[0]) for key, part in apart(mine, table.traits.take(nearest)).items()}
    names = [WORDS.get(key, key) for key in sorted(parts, key=lambda key: -parts[key]) if parts[key] >= NOTABLE]
    implied = {"architecture", "vendor", "framework"}
    return ("several kinds of nodes",) * mixture + tuple(name for name in names if name not in implied)
