"""A stack's constants fitted to training runs on one cluster."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.stack.stack import Stack
from hardware.errors import MeshwrightError
from hardware.records import Cluster
from planner.processes import check_interrupt
from planner.runs.calibrate.document import Errors, RunError
from planner.runs.calibrate.identify import Fit, settle
from planner.runs.calibrate.records import FileRun
from planner.runs.calibrate.summary import FARTHEST, FEWEST_LEFT_OUT, Part, Wording, errors, fitted, source
from planner.runs.case import Case, Unpriceable, case_of
from planner.runs.corpus import grouped
from planner.runs.files import CHECK
from planner.runs.least_squares import EXPERTS, MOST_ROWS, STACK_KNOBS, Floats, Knob, log_error
from planner.runs.schema import Run

NOISE: Final = 0.07
"""Spread of one source's runs around its own bias: the median over the 29 sources of the fit split with six or more."""
_BOUNDS: Final = {
    "calibrated.kernel_efficiency": (0.05, 1.5),
    "calibrated.elementwise_efficiency": (0.05, 1.5),
    "calibrated.communication_efficiency": (0.02, 1.5),
    "calibrated.straggler": (0.0, 0.5),
    "calibrated.iteration_overhead": (0.0, 10.0),
    "calibrated.expert_efficiency": (0.05, 3.0),
}
"""Wider than those of the shipped calibration: one cluster may be worse than any published one."""
_WORDS: Final = Wording(
    "stack.",
    "these runs",
    {
        "kernel_efficiency": "a run that mostly computes, with a larger micro-batch",
        "elementwise_efficiency": "a run with shorter sequences or a smaller hidden size",
        "communication_efficiency": "a run with more tensor or data parallelism, or without overlap",
        "straggler": "the same run on several numbers of nodes",
        "iteration_overhead": "a run with a short iteration, such as a small batch",
        "launch_time": "a run of small layers without CUDA graphs, which waits for its host",
        "expert_efficiency": "a run with experts and a larger micro-batch",
    },
)


class Measured(NamedTuple):
    """A run that can be priced, its file and its time."""

    file: str
    run: Run
    case: Case
    seconds: float


def priced(runs: Iterable[FileRun], cluster: Cluster, stack: Stack) -> tuple[list[Measured], list[str]]:
    """The runs on that cluster and stack with their times, and those that cannot be used and why."""
    found, notes = [], []
    for file, run in runs:
        try:
            found.append(Measured(file, run, *_measured(run, cluster, stack)))
        except (MeshwrightError, ValueError, ArithmeticError) as error:
            check_interrupt(error)
            notes.append(f"{file}, run {run.id}: not used: {error}")
    return found, notes


def _measured(run: Run, cluster: Cluster, stack: Stack) -> tuple[Case, float]:
    seconds = run.measured.iteration_seconds or math.nan
    unusable = {
        "marked as suspect": run.suspect,
        "marked as incomplete": not run.complete,
        f"of the split {CHECK!r}, which nothing is learnt from": run.held_back,
        run.not_fitted: run.not_fitted,
        "it ran out of memory": run.measured.out_of_memory,
        "no iteration time is said": run.measured.iteration_seconds is None,
    }
    if why := next((why for why, so in unusable.items() if so), ""):
        raise Unpriceable(why)
    case = case_of(run, cluster=cluster, stack=stack)
    residual = log_error(case, seconds)
    if not abs(residual) < FARTHEST:
        times = f"{math.exp(min(residual, 700.0)):.3g} times"
        raise Unpriceable(f"predicted to take {times} as long as measured; look at its units")
    return case, seconds


def knobs_of(stack: Stack, *, experts: bool) -> list[Knob]:
    """The stack's constants, each drawn towards its value from before."""
    knobs = [
        replace(knob, neutral=float(stack.value(knob.field)), low=low, high=high)
        for knob in (STACK_KNOBS + (EXPERTS,) * experts)
        for low, high in [_BOUNDS[knob.field]]
    ]
    launch = stack.host.launch_time  # hosts of the catalogue take 1 to 1.56 times as long as another
    return knobs + [Knob("host.launch_time", launch, 0.25 * launch, 0.1 * launch, 10.0 * launch)] * (launch > 0.0)


def fit_runs(found: Sequence[Measured], before: Sequence[Measured], stack: Stack) -> tuple[Stack, Part]:
    """The stack with the constants that the runs settle, and what is said of them.

    Args:
        found: the runs on the cluster whose links and products are fitted already; those of at most ``MOST_ROWS``
            configurations, drawn at random, are fitted.
        before: the same runs on the cluster that everything started from.
        stack: where its constants start.
    """
    drawn = _drawn(found)
    used = [one for one, taken in zip(found, drawn, strict=True) if taken]
    knobs = knobs_of(stack, experts=any(one.case.scenario.model.moe for one in used))

    asked = [one.run.question for one in used]
    apart = dict(zip(asked, used, strict=True))  # a configuration that was run again is priced once

    def residuals(values: Floats) -> Floats:
        predicted = {which: _miss(one, knobs, values) + math.log(one.seconds) for which, one in apart.items()}
        return np.array([predicted[which] - math.log(one.seconds) for which, one in zip(asked, used, strict=True)])

    fit = settle(residuals, knobs, noise=NOISE)
    started = np.array([log_error(one.case, one.seconds) for one in before])
    fit = replace(fit, before=started[drawn])
    said = source([one.file for one in used], len(used), "runs" if len(used) > 1 else "run", fit)
    missed = errors("runs", fit)
    basis = {"calibrated.basis": said, "source": _sourced(stack.source), "calibrated.own_runs": len(apart)}
    warnings = (*_WORDS.warnings(fit), *_no_better(missed), *_apart(found), *_left(found, used))
    listed = _run_errors(found, used, started, knobs, fit)
    return (
        stack.changed(fitted(fit) | basis),
        Part(_WORDS.constants(fit, said), (missed,), warnings, runs=listed),
    )


def _drawn(found: Sequence[Measured]) -> NDArray[np.bool_]:
    """Which runs are fitted, (N,): all of as many configurations as are affordable, the same at every call.

    Every so-many-th run would do for no study that repeats a pattern.
    """
    asked = [one.run.question for one in found]
    known = list(dict.fromkeys(asked))
    taken = set(known if len(known) <= MOST_ROWS else random.Random(0).sample(known, MOST_ROWS))  # noqa: S311
    return np.array([which in taken for which in asked])


def _left(found: Sequence[Measured], used: Sequence[Measured]) -> list[str]:
    """A warning where some runs were not fitted."""
    if len(used) == len(found):
        return []
    return [
        f"{len(used)} of {len(found)} runs were fitted, of {MOST_ROWS} configurations drawn at random; all are listed"
    ]


def _sourced(source: str) -> str:
    return source if source.endswith(_FITTED) else f"{source}{_FITTED}"


_FITTED: Final = "; constants of one's own measurements"


def _no_better(missed: Errors) -> list[str]:
    """A warning where runs that were left out are predicted no better than before; of fewer than three, the runs."""
    left = missed.median_left_out
    if left is None and missed.median_after > missed.median_before:
        sizes = f"a median of {100 * missed.median_after:.1f} %, before it {100 * missed.median_before:.1f} %"
        return [f"after the fit these runs err by {sizes}: they ask for different constants; more runs would tell"]
    if left is None or left < missed.median_before:
        return []
    sizes = f"a median of {100 * left:.1f} %, before the fit {100 * missed.median_before:.1f} %"
    return [f"runs that the fit does not see err by {sizes}: the profile may not help on others; more runs would tell"]


APART: Final = 1.2
"""Longest over shortest time of runs of one configuration from which on these are called contradictory."""


def _apart(found: Sequence[Measured]) -> list[str]:
    """A warning for every configuration whose runs contradict each other."""
    warnings = []
    for same in grouped(found, lambda one: one.run.question).values():
        short, long = (pick(same, key=lambda one: one.seconds) for pick in (min, max))
        if long.seconds > APART * short.seconds:
            times = f"{short.seconds:.4g} s ({short.run.id}) and {long.seconds:.4g} s ({long.run.id})"
            warnings.append(
                f"runs of one configuration took {times}: the constants lie between; leave out the wrong one"
            )
    return warnings


def _miss(one: Measured, knobs: Sequence[Knob], values: Floats) -> float:
    name = one.case.scenario.stack.name
    constants = {(name, knob.field): float(value) for knob, value in zip(knobs, values, strict=True)}
    return log_error(one.case, one.seconds, constants)


def _run_errors(
    found: Sequence[Measured], used: Sequence[Measured], started: Floats, knobs: Sequence[Knob], fit: Fit
) -> tuple[RunError, ...]:
    """The errors of every run, fitted or not."""
    left = {id(one): float(np.expm1(residual)) for one, residual in zip(used, fit.left_out, strict=True)}
    rows = []
    for one, residual in zip(found, started, strict=True):
        after = math.expm1(_miss(one, knobs, fit.values))
        left_out = left.get(id(one), after) if len(used) >= FEWEST_LEFT_OUT else None
        figures = {"before": math.expm1(residual), "after": after, "left_out": left_out}
        rows.append(RunError(file=one.file, id=one.run.id, measured_seconds=one.seconds, **figures))
    return tuple(rows)
