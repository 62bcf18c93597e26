"""The headline of every answer: what was asked, what came of it, how sure that is, and its leading figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from planner.answer.headline import result, standing
from planner.answer.text import (
    format_days,
    format_dollars,
    format_gib,
    format_percent,
    format_prefixed,
    name_in,
    plural,
    short_seconds,
    strategy_in_words,
    what_works,
)

if TYPE_CHECKING:
    from planner.answer.plan import Answer

GIVEN: Final = "given"
"""Name of a model that files describe and do not name."""
LONGEST: Final = 200
"""Characters of a line; what is longer ends in dots."""


class Headline(NamedTuple):
    """What is said of an answer first."""

    title: str
    """What was asked."""
    answer: str
    """What came of it."""
    sure: str
    """How sure that is, or what else there is to know."""
    facts: tuple[tuple[str, str], ...] = ()
    """Leading figures with what they are."""
    notes: tuple[str, ...] = ()
    """What to be careful of, and what was assumed."""
    good: bool = True
    """False where nothing works."""


def three_lines(answer: Answer) -> str:
    """The headline as three lines of text."""
    found = headline(answer)
    return "\n".join(_short(line) for line in (found.title, f"  {found.answer}", f"  {found.sure}"))


def headline(answer: Any) -> Headline:
    """The headline of an answer of any kind."""
    return _KINDS[answer.schema_](answer)


def _short(line: str) -> str:
    line = " ".join(line.split("\n"))
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def _job(request: Mapping[str, Any]) -> str:
    cluster, stack = name_in(request.get("cluster")), name_in(request.get("stack"))
    return f"{name_in(request.get('model'))} on {plural(int(request.get('gpus', 0)), 'GPU')} of {cluster} with {stack}"


def _plan(found: Any) -> Headline:
    title, said = f"Plan for {_job(found.request)}", found.prediction
    if found.strategy is None or said is None:
        return Headline(title, result(found), "see .summary()", good=False)
    fullest = max(found.memory_bytes, key=lambda stage: stage.total / stage.limit, default=None)
    memory = f"{format_gib(fullest.total)} of {format_gib(fullest.limit)} GiB" if fullest else ""
    likely = f"{short_seconds(said.interval.low)} to {short_seconds(said.interval.high)}"
    sure = f"{standing(found)} {said.interval.coverage:.0%} sure of {likely}.".strip()
    return Headline(
        title,
        result(found),
        sure,
        (
            ("iteration", f"{short_seconds(said.iteration_seconds)} ({likely})"),
            ("MFU", format_percent(said.mfu)),
            ("training", format_days(said.training_days)),
            ("cost", "no price known" if said.cost_dollars is None else format_dollars(said.cost_dollars)),
            ("fullest GPU", memory),
            ("tokens/s", format_prefixed(said.tokens_per_second)),
        ),
        (
            *found.warnings,
            *(f"with {one.subject}: {one.text}" for one in found.choices),
            *(f"assumed: {one}" for one in found.defaults),
        ),
        good=found.fits,
    )


def _why_not(found: Any) -> Headline:
    pins = ", ".join(f"{name} {value}" for name, value in found.pins.items()) or "nothing pinned"
    mine, best = found.iteration_seconds, found.best_iteration_seconds
    against = f"{short_seconds(mine)} against {short_seconds(best)} of the best plan" if mine and best else ""
    rules = "; ".join(f"{one.rule}: {one.example}" for one in found.rules)
    near = f"what works: {what_works(found.nearest)}" if found.nearest else ""
    facts = (("this", short_seconds(mine)), ("best plan", short_seconds(best))) if mine and best else ()
    sure = "; ".join(filter(None, (against, rules, near))) or "no price"
    return Headline(f"Why not {pins}", found.verdict, sure, facts, good=mine is not None)


def _compared(found: Any) -> Headline:
    a, b = found.a, found.b
    change = b.iteration_seconds / a.iteration_seconds - 1.0
    more = "more" if change > 0 else "less"
    said = f"B takes {abs(change):.1%} {more} time an iteration: {short_seconds(b.iteration_seconds)}, A "
    differs = ", ".join(f"{name} {_bare(one)} -> {_bare(other)}" for name, (one, other) in found.differences.items())
    return Headline(
        f"Comparison of A, {a.name}, and B, {b.name}",
        said + short_seconds(a.iteration_seconds),
        differs or "they are the same",
        (("MFU", f"{format_percent(a.mfu)} and {format_percent(b.mfu)}"), ("GPUs", f"{a.gpus:,} and {b.gpus:,}")),
    )


def _bare(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _size(found: Any) -> Headline:
    limits = [
        *([f"within {format_days(found.deadline_days)}"] if found.deadline_days is not None else []),
        *([f"for {format_dollars(found.budget_dollars)}"] if found.budget_dollars is not None else []),
    ]
    title = f"Size of {found.cluster} for {found.model} {' and '.join(limits)}"
    if found.answer is None:
        near = found.nearest
        sure = f"nearest: {plural(near.gpus, 'GPU')}, {format_days(near.days)}" if near else "see .summary()"
        return Headline(title, f"no size does it: {found.statement}", sure, good=False)
    best = found.answer
    cost = "" if best.cost_dollars is None else f", {format_dollars(best.cost_dollars)}"
    return Headline(
        title,
        f"{plural(best.gpus, 'GPU')} ({plural(best.nodes, 'node')}): {format_days(best.days)}{cost}",
        found.statement or ("proved" if found.proved else "not every size was searched"),
        (("GPUs", f"{best.gpus:,}"), ("training", format_days(best.days)), ("MFU", format_percent(best.mfu))),
        tuple(best.careful),
    )


def _what_if(found: Any) -> Headline:
    strong = [
        f"{one.lever} {one.elasticity:+.2f}" for one in found.levers if one.elasticity is not None and one.elasticity
    ]
    return Headline(
        f"What would help {found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}",
        f"now {short_seconds(found.iteration_seconds)} an iteration; % of time for 1 % more: {', '.join(strong[:4])}",
        f"{plural(len(found.levers), 'lever')} turned both ways, planned again each time",
        notes=(*found.warnings, *(f"assumed: {one}" for one in found.defaults)),
    )


def _robust(found: Any) -> Headline:
    chosen = found.chosen
    return Headline(
        f"Robust plan for {found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}, "
        f"rates uncertain by {found.within:.0%}",
        f"{strategy_in_words(chosen.strategy)}: at worst {chosen.worst_regret:.1%} slower than the best there",
        found.statement,
        (("iteration", short_seconds(chosen.seconds)), ("scenarios", f"{found.scenarios:,}")),
        notes=tuple(found.warnings),
    )


def _replanned(found: Any) -> Headline:
    title = f"Plan again for {plural(found.gpus, 'GPU')}, was {found.old_gpus:,}"
    one = found.nearest or found.fastest
    if one is None:
        return Headline(title, "nothing fits", found.statement, good=False)
    return Headline(
        title,
        f"{strategy_in_words(one.plan.strategy)} on {one.gpus:,}: {short_seconds(one.iteration_seconds)} an "
        f"iteration, was {short_seconds(found.old_iteration_seconds)}",
        f"{found.statement}; {one.moved.statement}",
        (("idle GPUs", f"{one.idle_gpus:,}"), ("move", short_seconds(one.moved.seconds))),
    )


def _allocated(found: Any) -> Headline:
    placed = [job for job in found.jobs if job.placed]
    used = ", ".join(f"{one.used:,} of {one.gpus:,} {one.name}" for one in found.groups)
    return Headline(
        f"Division of {used} among {plural(len(found.jobs), 'job')} for {found.objective}",
        ", ".join(f"{job.name} {job.placed.gpus:,}" for job in placed) or "no job runs",
        found.statement,
        (("running", f"{len(placed):,}"), ("waiting", f"{len(found.jobs) - len(placed):,}")),
        good=found.status != "infeasible",
    )


def _sparse(found: Any) -> Headline:
    from planner.sparse.headline import result, standing

    title = f"Parameter servers for {found.request.model.name} on {found.request.cluster.name}"
    notes = tuple(f"assumed: {one}" for one in found.assumed)
    if found.cost_per_hour is None or found.examples_per_second is None:
        return Headline(title, result(found), "see .summary()", notes=notes, good=False)
    facts = (("examples/s", format_prefixed(found.examples_per_second)), ("$/h", f"{found.cost_per_hour:,.2f}"))
    return Headline(title, result(found), standing(found), facts, notes)


def _calibrated(found: Any) -> Headline:
    changed = [one for one in found.constants if one.before != one.after]
    errors = [f"{one.what}: {one.median_before:.1%} to {one.median_after:.1%}" for one in found.errors]
    return Headline(
        f"Calibration of {found.cluster}{' and ' + found.stack if found.stack else ''} from {', '.join(found.files)}",
        f"{plural(len(changed), 'constant')} changed; median error of {'; '.join(errors) or 'nothing known'}",
        f"{plural(len(found.warnings), 'warning')}; .profile is the file that --profile takes",
        notes=found.warnings,
    )


def _examined(found: Any) -> Headline:
    measured = found.measured_seconds
    took = f"measured {short_seconds(measured)}, " if measured else ""
    best = f"; the best plan {short_seconds(found.best_seconds)}" if found.best_seconds else ""
    first = found.changes[0].text if found.changes else "nothing is known that helps"
    return Headline(
        f"Run {found.id}: {found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}",
        f"{took}predicted {short_seconds(found.predicted_seconds)}{best}",
        f"first: {first}",
        notes=tuple(found.notes),
    )


def _swept(found: Any) -> Headline:
    answered = [one for one in found.results if one.get("prediction") and one["status"] != "infeasible"]
    best = min(answered, key=lambda one: one["prediction"]["training_days"], default=None)
    point = ", ".join(f"{name} {name_in(value)}" for name, value in best["point"].items()) if best else ""
    counts = {status: sum(one["status"] == status for one in found.results) for status in ("infeasible", "failed")}
    rest = "".join(f", {number:,} {status}" for status, number in counts.items() if number)
    return Headline(
        f"Sweep {found.study}: {plural(len(found.results), 'point')} over {', '.join(found.axes) or 'one question'}",
        f"fewest days: {format_days(best['prediction']['training_days'])} at {point}"
        if best
        else "no point has a plan",
        f"{len(answered):,} with a plan{rest}; .to_frame() has a row a point",
        good=bool(answered),
    )


def _validated(found: Any) -> Headline:
    errors = sorted(abs(row["error"]) for row in found.rows if row["error"] is not None)
    middle = f"median error {errors[len(errors) // 2]:.1%}" if errors else "nothing could be priced"
    return Headline(
        f"Predicted against measured: {', '.join(found.files)}",
        f"{middle} of {plural(len(errors), 'figure')}",
        f"{len(found.rows) - len(errors):,} without an error; .to_frame() has a row a figure",
        good=bool(errors),
    )


def _read(found: Any) -> Headline:
    files = ", ".join(f"{name} ({what})" for name, what in found.files)
    job = "a question with gaps: " + "; ".join(found.missing)
    if found.request is not None:
        pins = ", ".join(f"{axis} {value}" for axis, value in found.request.pins.items() if axis in _DEGREES)
        model = found.request.model if isinstance(found.request.model, str) else found.request.model.name
        job = f"{'its model' if model == GIVEN else model} on {plural(found.request.gpus, 'GPU')}: {pins}"
    counts = f"{len(found.assumed)} assumed, {len(found.unpriced)} not priced, {len(found.missing)} missing"
    notes = (*found.missing, *found.assumed, *found.unpriced, *found.remarks)
    return Headline(f"Job of {files}", job, counts, notes=notes, good=not found.missing)


_DEGREES: Final = ("tp", "cp", "pp", "vpp", "dp", "ep", "micro_batch_size")

_KINDS: Final[Mapping[str, Callable[[Any], Headline]]] = {
    "plan/1": _plan,
    "why-not/1": _why_not,
    "comparison/1": _compared,
    "size/1": _size,
    "what-if/1": _what_if,
    "robust/1": _robust,
    "replan/1": _replanned,
    "allocation/1": _allocated,
    "sparse/1": _sparse,
    "calibration/1": _calibrated,
    "examined-run/1": _examined,
    "sweep/1": _swept,
    "validation/1": _validated,
    "job/1": _read,
}
