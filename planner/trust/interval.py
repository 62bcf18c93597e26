"""How far one prediction can be trusted: its interval, the measured runs nearest to it, the validated region.

The interval is that of an error of somebody's run that nobody has measured: its scale by the model of errors
(:mod:`planner.trust.error_model`), times the quantiles of the measured errors of such runs in these scales, every
publisher counting the same and none judged by its own runs [Lei18]. They are not alike to both sides: what is forgotten
takes time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodels.arrays import distinct_values
from costmodels.scenario import Scenario
from costmodels.stack.costs import Calibrated
from costmodels.stack.stack import Stack
from costmodels.strategy import Bools, Floats, Strategies
from hardware.catalogue import accelerator as find_accelerator
from hardware.records import Accelerator
from planner.answer.build import Trusted
from planner.answer.plan import Comparable, Interval, Prediction, Trust
from planner.trust import error_model, own_runs
from planner.trust.error_model import SHARES, TERMS, Points, spread
from planner.trust.kinds import kind_for_ends
from planner.trust.memory import fit_probability
from planner.trust.own_runs import Learnt, left_uncertain
from planner.trust.similarity import EXTENTS, MIXTURE, Traits, apart, distance, traits, traits_in
from planner.trust.sources import describe_source
from planner.trust.table import Measured, Run, figures, measured

COVERAGE = 0.9
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


def interval(
    scenario: Scenario,
    row: Strategies,
    seconds: float,
    *,
    breakdown: Mapping[str, float],
    mfu: float,
    mixture: bool = False,
) -> Interval:
    """Where the measured time of one strategy should lie.

    Args:
        scenario: what is trained on what.
        row: the strategy, N = 1.
        seconds: its predicted time per iteration.
        breakdown: its terms, s.
        mfu: its predicted utilisation.
        mixture: it runs on several kinds of nodes.
    """
    farther = MIXTURE * mixture
    return intervals([scenario], row, [seconds], breakdown=breakdown, mfu=np.array([mfu]), farther=farther)[0]


def intervals(
    scenarios: Sequence[Scenario],
    rows: Strategies,
    seconds: Sequence[float],
    *,
    breakdown: Mapping[str, Floats | float],
    mfu: Floats,
    farther: float = 0.0,
    sources: Sequence[str] = ("",),
) -> list[Interval]:
    """``interval`` of N strategies, each in a scenario of its own.

    ``breakdown`` and ``mfu`` hold arrays (N,). ``sources``, one or N, say whose runs are judged: a publisher's own are
    none that they are near to.
    """
    mine = traits_in(scenarios, rows)
    known = _points(mine, scenarios, rows, breakdown, mfu, farther=farther, sources=sources)
    kinds, ends = kind_for_ends(mine), np.empty((len(rows), 2))
    for some in _learnt_alike(scenarios):
        ends[some] = _ends(known.take(some), kinds[some], learnt_by(scenarios[some[0]].stack.calibrated))
    return [
        Interval(low=time * math.exp(min(low, 0.0)), high=time * math.exp(max(high, 0.0)), coverage=COVERAGE)
        for time, (low, high) in zip(seconds, ends.tolist(), strict=True)
    ]


def _learnt_alike(scenarios: Sequence[Scenario]) -> list[NDArray[np.int64]]:
    """The places of scenarios whose stacks were taught the same by runs of one's own, or nothing."""
    places: dict[object, list[int]] = {}
    for place, one in enumerate(scenarios):
        known = one.stack.calibrated
        places.setdefault((known.uncorrected, known.covariance), []).append(place)
    return [np.array(some) for some in places.values()]


def _ends(known: Points, kinds: NDArray[np.str_], learnt: Learnt | None) -> Floats:
    """Ends of the error of N strategies, logarithms, (N, 2), for one that is anybody's or was taught by one's own."""
    found = figures()
    if learnt is None:
        by_kind = np.array([found.ends[str(kind)] for kind in kinds])
        return by_kind * spread(known, found.variances)[:, None]
    center, scale = left_uncertain(learnt, known, found.variances)
    return np.stack([center + found.own_low * scale, center + found.own_high * scale], axis=1)


def probability_within(predicted: Prediction, share: float) -> float:
    """Probability that a run takes at most so many times its predicted time.

    Errors to each side of the prediction are those half of a Student-t that ends where the interval does. Of measured
    runs of publishers left out, where 65, 80 or 90 % is said, 66, 85 and 91 % keep within it; where 50 % is, a third.
    """
    seconds, found = predicted.iteration_seconds, predicted.interval
    end = abs(math.log((found.high if share > 1.0 else found.low) / seconds))
    edge = error_model.score_at((1.0 + found.coverage) / 2.0)
    return float(error_model.below(np.array([edge * math.log(share) / max(end, 1e-9)]))[0])


def probability_faster(one: Points, others: Points, gaps: Floats, stack: Stack) -> Floats:
    """Probability that a strategy under a stack is faster than each of N others of the same job, (N,).

    ``gaps`` are log(predicted time of the other / predicted time of the one), (N,).
    """
    if learnt := learnt_by(stack.calibrated):
        return own_runs.probability_faster(one, others, gaps, figures().variances, learnt)
    return error_model.probability_faster(one, others, gaps, figures().variances)


def learnt_by(calibrated: Calibrated) -> Learnt | None:
    """What a stack's own runs taught; None of one that was fitted to none."""
    if not calibrated.covariance:
        return None
    return Learnt(np.array(calibrated.uncorrected), np.array(calibrated.covariance), kept=0.0)


TRUSTED = Trusted(interval, fit_probability)
"""What answers say of how far they can be trusted."""


def points(
    scenario: Scenario,
    rows: Strategies,
    breakdown: Mapping[str, Floats | float],
    mfu: Floats,
    *,
    farther: float = 0.0,
) -> Points:
    """What the model of errors knows of N strategies.

    Args:
        scenario: what is trained on what.
        rows: the strategies.
        breakdown: their terms, s, each (N,) or one for all.
        mfu: their predicted utilisation, (N,).
        farther: what to add to the distance to the nearest run.
    """
    return _points(traits(scenario, rows), [scenario], rows, breakdown, mfu, farther=farther, sources=("",))


def _points(
    mine: Traits,
    scenarios: Sequence[Scenario],
    rows: Strategies,
    breakdown: Mapping[str, Floats | float],
    mfu: Floats,
    *,
    farther: float,
    sources: Sequence[str],
) -> Points:
    """The same of strategies with these traits, each in a scenario of its own or all in one, and of these sources."""
    known, count = measured(), len(rows)
    away = np.where(known.are_of(sources), np.inf, distance(mine, known.traits)).min(axis=1) + farther
    tokens = micro_batch_tokens(rows, [one.seq_length for one in scenarios])
    each = np.log2([one.tokens / one.gpus for one in scenarios])
    sizes = (mine.sizes["gpus"], np.log2(tokens), *(mine.sizes[name] for name in ("parameters", "tp", "pp")), each)
    names = (mine.names[name] for name in ("accelerator", "stack", "kind"))
    cells = zip(*names, (one.precision for one in scenarios), strict=True)
    experts = np.array([one.model.moe is not None for one in scenarios])
    return Points(
        shares=np.broadcast_to(shares(breakdown, experts=experts), (count, len(SHARES))),
        sizes=np.stack([np.broadcast_to(size, count) for size in sizes], axis=1),
        cells=np.broadcast_to(["|".join(cell) for cell in cells], count),
        utilisation=np.maximum(mfu, known.mfus.min()),  # how errors go on to grow below that nobody measured
        nearest=np.broadcast_to(away, count),
        own_model=np.broadcast_to([one.stack.own_model for one in scenarios], count),
    )


def shares(breakdown: Mapping[str, Floats | float], *, experts: Bools | bool) -> Floats:
    """Shares of the predicted time, by ``error_model.SHARES``, (N, 9); (9,) of terms of one strategy.

    ``experts`` says whether a strategy's model has some.
    """
    total = np.asarray(sum(breakdown.values()), dtype=np.float64)
    named = [np.asarray(sum(breakdown[part] for part in parts) / total) for parts in TERMS.values()]
    return np.stack(np.broadcast_arrays(*named, np.where(experts, breakdown["compute"] / total, 0.0)), axis=-1)


def micro_batch_tokens(rows: Strategies, seq_length: ArrayLike) -> Floats:
    """Tokens that a replica takes at a time, (N,), of sequences that are so long each or all."""
    tokens: Floats = rows.micro_batch_size.astype(np.float64) * np.asarray(seq_length)
    return tokens


def trust(scenario: Scenario, row: Strategies, *, mfu: float = 1.0, mixture: bool = False) -> Trust:
    """The measured runs nearest to one strategy, and whether that is near.

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
        far += (f"MFU {100.0 * mfu:.2g} % (measured: at least {100.0 * least:.2g} %)",)
    far += _untried(scenario)
    return Trust(
        nearest=tuple(_comparable(table, int(i), float(away[i])) for i in first),
        region=found.region,
        inside=bool(away[order[0]] <= found.region) and not far,
        differs=_differs(mine, table, order[:1], mixture=mixture),
        beyond=far,
    )


def _untried(scenario: Scenario) -> tuple[str, ...]:
    """What few measured runs train, and none of those that mechanisms were found on."""
    said = {
        "adapters (few measured runs)": scenario.frozen,
        "frozen layers (no measured run)": scenario.trained_depth < 1.0,
        f"{scenario.task.title} (measured: pretraining)": scenario.task.sequences > 1 or scenario.further_forwards > 0,
        "packed documents (measured: whole sequences)": scenario.attended_length < scenario.seq_length,
    }
    return tuple(words for words, found in said.items() if found)


def outside(found: Trust) -> tuple[str, ...]:
    """The remark on a plan that is outside the validated region."""
    if found.inside:
        return ()
    nearest, differs = found.nearest[0], ", ".join(found.differs) or "size"
    said = [f"the nearest measured run, of {describe_source(nearest.group)}, differs in {differs}"]
    said *= nearest.distance > found.region
    said += [", ".join(found.beyond)] * bool(found.beyond)
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
    most = f"{best.mfu:.1%} on about as many {mine.names['accelerator'][0]} or more"
    return (f"MFU {mfu:.1%} is above the most that was measured: {most}, by {describe_source(best.group)}",)


def _unlike_device(scenario: Scenario, mine: Traits, table: Measured, order: NDArray[np.int64]) -> tuple[str, ...]:
    """A device of a kind that was never measured, or never under such software, and the nearest run's.

    Software of which no run is of any device's is no reason: a stack of one's own is like none.
    """
    names, device = table.traits.names, scenario.group.accelerator
    descent = names["framework"] == mine.names["framework"][0]
    own = names["accelerator"] == mine.names["accelerator"][0]
    if (own & descent).any() and _alike(_kind(device), _kind(find_accelerator(mine.names["accelerator"][0]))):
        return ()  # known without what all others are
    kind = np.isin(names["accelerator"], _of_the_kind(device))
    if (kind & descent).any() or (kind.any() and not descent.any()):
        return ()
    near = next(i for i in order if kind[i] or not kind.any())
    own, other = (f" with {stack}" * bool(kind.any()) for stack in (mine.names["stack"][0], names["stack"][near]))
    return (f"{mine.names['accelerator'][0]}{own} (nearest measured: {names['accelerator'][near]}{other})",)


def _of_the_kind(device: Accelerator) -> list[str]:
    """The measured devices of one's kind."""
    return [name for name, kind in _measured_kinds().items() if _alike(_kind(device), kind)]


def _alike(one: tuple[str, float], other: tuple[str, float]) -> bool:
    """Whether two devices are of a kind."""
    return one[0] == other[0] and max(one[1], other[1]) <= SPREAD * min(one[1], other[1])


@cache
def _measured_kinds() -> dict[str, tuple[str, float]]:
    names = map(str, distinct_values(measured().traits.names["accelerator"]))
    return {name: _kind(find_accelerator(name)) for name in names}


def _kind(device: Accelerator) -> tuple[str, float]:
    """The architecture, without that of its host, and the peak in 16 bits."""
    return device.architecture.partition(" + ")[0], device.half_rate


def _beyond(mine: Traits, table: Measured) -> tuple[str, ...]:
    """Degrees and sequences more than a doubling beyond the largest of all runs of models with the same kind of layers.

    A kind of which there is no run is named alone. Sequences are compared with the runs under such software, which
    decides how they are split; where none of these ran under it, with all.
    """
    alike = table.traits.names["kind"] == mine.names["kind"][0]
    if not alike.any():
        return (f"{mine.names['kind'][0]} layers (no measured run)",)

    def too_large(key: str, among: Bools) -> tuple[float, float] | None:
        own, most = float(mine.sizes[key][0]), float(table.traits.sizes[key][among].max())
        return (2.0**own, 2.0**most) if own > most + 1.0 else None

    degrees = tuple(
        f"{key.upper()} {found[0]:.0f} (measured: at most {found[1]:.0f})"
        for key in EXTENTS
        if (found := too_large(key, alike))
    )
    descent = alike & (table.traits.names["framework"] == mine.names["framework"][0])
    found = too_large("seq_length", descent if descent.any() else alike)
    if found is None:
        return degrees
    own, most = (length / 2**10 for length in found)
    under = " with such software" if descent.any() else ""
    return (*degrees, f"sequences of {own:,.0f} Ki tokens (measured{under}: at most {most:,.0f} Ki)")


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
