"""What one's own training runs teach of a stack on one cluster, by the model of errors."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.stack.stack import Stack
from hardware.errors import MeshwrightError
from hardware.records import Cluster
from planner.answer.build import mfu_of
from planner.processes import check_interrupt
from planner.request.progress import Progress, Tell, ignore
from planner.runs.calibrate.document import Constant, Errors, RunError
from planner.runs.calibrate.identify import Fit
from planner.runs.calibrate.records import FileRun
from planner.runs.calibrate.summary import FARTHEST, FEWEST_LEFT_OUT, Part, errors, plain, source
from planner.runs.case import Case, Unpriceable, case_of
from planner.runs.corpus import grouped
from planner.runs.least_squares import MOST_ROWS, Floats, log_error
from planner.runs.schema import Run
from planner.trust.error_model import EXPERT_COMPUTE, Points
from planner.trust.interval import points
from planner.trust.own_runs import FACTORS, Change, Learnt, learn, prior_of, scatter_of
from planner.trust.table import figures

FIELDS: Final[Mapping[str, str]] = {
    EXPERT_COMPUTE: "compute_time",
    "tensor_traffic": "tensor_traffic_time",
    "expert_traffic": "expert_traffic_time",
    "data_traffic": "data_traffic_time",
    "pipeline": "pipeline_traffic_time",
    "host": "host_time",
    "optimizer": "optimizer_time",
    "offload": "offload_time",
}
"""Constants of a stack that have a factor; the common one is in all of them."""
MEMORY: Final = ("memory_needed", "memory_uncertain", "memory_margin", "memory_runs")
"""What a stack says of the memory that runs need."""
STEP: Final = 0.05
"""Of a logarithm, for a slope."""
KNOWN: Final = 0.9
"""Uncertainty afterwards over before, above which runs say nothing of a factor."""
_HINTS: Final[Mapping[str, str]] = {
    "compute_time": "a run that mostly computes, with a larger micro-batch",
    "tensor_traffic_time": "a run with more tensor or context parallelism",
    "expert_traffic_time": "a run with more expert parallelism",
    "data_traffic_time": "a run with more data parallelism or smaller batches for each rank",
    "pipeline_traffic_time": "a run with more pipeline stages",
    "host_time": "a run of small layers without CUDA graphs, which waits for its host",
    "optimizer_time": "a run with a small global batch, which steps its optimizer often",
    "offload_time": "a run that offloads",
}


class Measured(NamedTuple):
    """A run that can be priced, its file and its time."""

    file: str
    run: Run
    case: Case
    seconds: float


def priced(
    runs: Sequence[FileRun], cluster: Cluster, stack: Stack, tell: Tell = ignore
) -> tuple[list[Measured], list[tuple[FileRun, str]]]:
    """The runs on that cluster and stack with their times, and those whose time cannot be used, each with why."""
    found, unused = [], []
    for place, (file, run) in enumerate(runs):
        tell(Progress("pricing your runs", done=place, total=len(runs)))
        try:
            found.append(Measured(file, run, *_measured(run, cluster, stack)))
        except (MeshwrightError, ValueError, ArithmeticError) as error:
            check_interrupt(error)
            unused.append(((file, run), str(error)))
    return found, unused


def _measured(run: Run, cluster: Cluster, stack: Stack) -> tuple[Case, float]:
    seconds = run.measured.iteration_seconds or math.nan
    unusable = {
        "marked as suspect": run.suspect,
        "marked as incomplete": not run.complete,
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


def uncorrected(stack: Stack) -> Stack:
    """A stack as it is without what runs of one's own taught before."""
    before = type(stack.calibrated)()
    names = (*FIELDS.values(), "own_runs", "uncorrected", "covariance", *MEMORY)
    return stack.changed({f"calibrated.{name}": getattr(before, name) for name in names})


@dataclass(frozen=True)
class Configurations:
    """The distinct configurations among some runs, and what factors do to each."""

    cases: tuple[Case, ...]

    @cached_property
    def seconds(self) -> Floats:
        """Without factors."""
        return np.array([case.price().iteration for case in self.cases])

    @cached_property
    def points(self) -> Points:
        """What the model of errors knows of each."""
        return Points.joined(map(point_of, self.cases))

    def longer(self, at: Floats) -> Floats:
        """How much longer they take under logarithms of factors, (M,)."""
        fields = fields_of(at, experts=self.experts)
        return np.log([_seconds(case, fields) for case in self.cases] / self.seconds)

    def slopes(self, at: Floats) -> Floats:
        """Of that, (M, K)."""
        base, columns = self.longer(at), []
        for place in range(len(at)):
            moved = at.copy()
            moved[place] += STEP
            same = fields_of(moved, experts=self.experts) == fields_of(at, experts=self.experts)
            columns.append(np.zeros(len(base)) if same else (self.longer(moved) - base) / STEP)
        return np.column_stack(columns)

    @property
    def experts(self) -> bool:
        """Whether any has experts."""
        return any(case.scenario.model.moe for case in self.cases)


def point_of(case: Case) -> Points:
    """What the model of errors knows of one configuration."""
    found = case.price()
    mfu = np.array([mfu_of(case.scenario, found.iteration)])
    return points(case.scenario, case.strategy, found.breakdown, mfu)


def _seconds(case: Case, fields: Mapping[str, float]) -> float:
    stack = case.scenario.stack.changed({f"calibrated.{name}": value for name, value in fields.items()})
    return replace(case, scenario=replace(case.scenario, stack=stack)).price().iteration


def fields_of(at: Floats, *, experts: bool) -> dict[str, float]:
    """The constants of a stack under logarithms of factors (K,)."""
    named = dict(zip(FACTORS, map(float, at), strict=True))
    alone = {field: named[name] for name, field in FIELDS.items()}
    alone["compute_time"] *= experts
    return {field: math.exp(named["common"] + value) for field, value in alone.items()}


def fit_runs(
    found: Sequence[Measured], before: Sequence[Measured], stack: Stack, tell: Tell = ignore
) -> tuple[Stack, Part]:
    """The stack with the factors that the runs ask for, and what is said of them.

    Args:
        found: the runs on the cluster whose links and products are fitted already; those of at most ``MOST_ROWS``
            configurations, drawn at random, are fitted.
        before: the same runs on the cluster that everything started from.
        stack: what they ran under, ``uncorrected``.
        tell: receives how far it is.
    """
    drawn = _drawn(found)
    used = [one for one, taken in zip(found, drawn, strict=True) if taken]
    asked = grouped(used, lambda one: one.run.question)  # a configuration that was run again is priced once
    known = Configurations(tuple(same[0].case for same in asked.values()))
    measured = np.array([np.mean([math.log(one.seconds) for one in same]) for same in asked.values()])
    misses, variances = measured - np.log(known.seconds), figures().variances
    prior, scatter = prior_of(known.points, variances), scatter_of(known.points, variances)
    learnt = learn(Change(known.longer, known.slopes), misses, prior, scatter)
    fields = {name: plain(value) for name, value in fields_of(learnt.factors, experts=known.experts).items()}
    after = [math.log(_seconds(one.case, fields) / one.seconds) for one in found]
    residuals = np.array([[log_error(one.case, one.seconds) for one in found], after])
    then, now = (f"{np.median(np.abs(np.expm1(row))):.1%}" for row in residuals)
    at = Progress("predicting each run from the others", so_far=f"median error {then}, {now} after the fit")
    left = dict(zip(asked, _left_out(known, misses, learnt, prior, scatter, partial(_count, tell, at)), strict=True))
    apart = np.array([left.get(one.run.question, after) for one, after in zip(found, residuals[1], strict=True)])
    residuals[0] = [log_error(one.case, one.seconds) for one in before]
    fit = Fit((), residuals[0, drawn], residuals[1, drawn], apart[drawn])
    said = source([one.file for one in used], len(used), "runs" if len(used) > 1 else "run", fit)
    missed = errors("runs", fit)
    basis = {
        "basis": said,
        "own_runs": len(asked),
        "uncorrected": _digits(learnt.mean * (1.0 - learnt.kept)),
        "covariance": tuple(_digits(row) for row in learnt.covariance),
    }
    calibrated = {f"calibrated.{name}": value for name, value in {**fields, **basis}.items()}
    warnings = (*_doubted(learnt, misses), *_no_better(missed), *_apart(found), *_left(found, used))
    listed = tuple(_run_error(*row, known=len(used)) for row in zip(found, *residuals, apart, strict=True))
    return (
        stack.changed(calibrated | {"source": f"{stack.source.removesuffix(_FITTED)}{_FITTED}"}),
        Part(
            _constants(learnt, prior, fields, said),
            (missed,),
            warnings,
            runs=listed,
            measure_next=_next(learnt, known.points),
        ),
    )


def _digits(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 5) for value in values)


def _count(tell: Tell, at: Progress, done: int, total: int) -> None:
    tell(replace(at, done=done, total=total))


def _left_out(
    known: Configurations,
    misses: Floats,
    learnt: Learnt,
    prior: Floats,
    scatter: Floats,
    count: Callable[[int, int], None],
) -> Floats:
    """Logarithms of predicted over measured of each configuration by factors that the others teach, (M,).

    Only the factors are those of first order, along the slopes at the factors of all.
    """
    slopes, here, found = known.slopes(learnt.mean), known.longer(learnt.mean), np.array(misses)
    for left in range(len(misses)):
        count(left, len(misses))
        others = np.delete(np.arange(len(misses)), left)

        def longer(at: Floats, rows: NDArray[np.int64] = others) -> Floats:
            return here[rows] + slopes[rows] @ (at - learnt.mean)

        def turned(_: Floats, rows: NDArray[np.int64] = others) -> Floats:
            return slopes[rows]

        if len(others):
            taught = learn(Change(longer, turned), misses[others], prior, scatter[np.ix_(others, others)])
            # The correction is made in part, far from where the slopes are: the run itself is priced.
            seconds = _seconds(known.cases[left], fields_of(taught.factors, experts=known.experts))
            found[left] -= math.log(seconds / known.seconds[left])
    return -found


def _constants(learnt: Learnt, prior: Floats, fields: Mapping[str, float], said: str) -> tuple[Constant, ...]:
    """Every factor, with how far the runs narrow it."""
    spread = np.sqrt(np.diag(learnt.covariance))
    narrowed = dict(zip(FACTORS, np.minimum(spread / prior, 1.0), strict=True))
    wide = dict(zip(FACTORS, spread, strict=True))
    found = []
    for name, field in FIELDS.items():
        determined = name == EXPERT_COMPUTE or narrowed[name] < KNOWN
        which = "common" if name == EXPERT_COMPUTE else name
        found.append(
            Constant(
                name=f"stack.calibrated.{field}",
                before=1.0,
                after=fields[field],
                standard_error=fields[field] * float(wide[which]) if determined else None,
                narrowed=float(narrowed[which]),
                source=said
                if determined
                else f"not determined by {said.partition(':')[0]}; moves with what all causes have in common",
            )
        )
    return tuple(found)


def _next(learnt: Learnt, own: Points) -> str:
    """What to measure next: the cause whose factor leaves most of the interval of such runs open."""
    slopes = np.column_stack([np.ones(len(own.shares)), own.shares]).mean(axis=0)
    open_by = dict(zip(FACTORS, slopes**2 * np.diag(learnt.covariance), strict=True))
    widest = max(FIELDS, key=lambda name: open_by[name])
    share = open_by[widest] / max(sum(open_by.values()), 1e-12)
    if share < NOTABLE:
        return ""
    return f"{_HINTS[FIELDS[widest]]}: {share:.0%} of what is still uncertain in such runs is {FIELDS[widest]}"


NOTABLE: Final = 0.1
"""Share of what is left uncertain from which on a cause is named."""


def _doubted(learnt: Learnt, misses: Floats) -> list[str]:
    """A warning where the correction may as well be noise, and is made in part or not at all."""
    if learnt.kept > SURELY:
        return []
    size = f"{math.expm1(float(np.abs(misses).mean())):.1%}"
    made = "no correction is made" if learnt.kept < 0.05 else f"only {learnt.kept:.0%} of the correction is made"
    return [f"these runs are off by {size}, which may be chance, so {made}; more runs would tell"]


SURELY: Final = 0.5
"""Share of a correction below which it is said that it is not made in full."""


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


def _run_error(one: Measured, before: float, after: float, left_out: float, *, known: int) -> RunError:
    figures = {"before": math.expm1(before), "after": math.expm1(after)}
    left = math.expm1(left_out) if known >= FEWEST_LEFT_OUT else None
    return RunError(file=one.file, id=one.run.id, measured_seconds=one.seconds, **figures, left_out=left)
