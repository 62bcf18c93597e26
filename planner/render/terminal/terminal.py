"""The screen of a plan: the answer in a sentence, strategy, time, money, memory, risk; last what was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.answer.headline import headline
from planner.answer.plan import Advice, Comparable, Plan, Prediction, Proof, Rejection, Strategy, Trust
from planner.answer.text import BEST, CUT_SHORT, format_percent, name_in, plural, probability_words, short_seconds
from planner.errors import BadRequest
from planner.jobs.preview import block, device_refusal, launch, other_launcher, own_refusal
from planner.render.terminal.bars import flow
from planner.render.terminal.panels import (
    alternatives_table,
    fullest_stage,
    goodput_lines,
    machine_facts,
    memory_panel,
    model_facts,
    time_panel,
    training_lines,
)
from planner.render.terminal.strategy import along_the_pipeline, strategy_rows
from planner.render.terminal.tables import grid, headed, indented, pairs, printable, speaks_utf, warned
from planner.request.overrides import written
from planner.trust.sources import describe_source

LINES: Final = 60
"""Of a screen that does not tell all, where that can be."""
USUAL: Final = 80
"""Columns from which launch lines give way too; a narrower screen has more lines of all."""
FEW: Final = 3
"""Runners-up with the plan, and reasons, of such a screen; fewer where there is no room."""


def render(plan: Plan, console: Console, *, whole: bool = False, most: int | None = None) -> None:
    """Print a plan on a console, within its width, with what its encoding can show.

    Args:
        plan: to print.
        console: where.
        whole: everything that it holds, not only what most people need.
        most: runners-up to show, where somebody said how many.
    """
    plan = printable(plan, console)
    blocks = console.is_terminal and speaks_utf(console)
    all_of_it = [Shown(whole=True, reasons=len(plan.why_not), others=len(plan.alternatives))]
    for level in all_of_it if whole else _levels(plan, console.width):
        shown = level if most is None else replace(level, others=most)
        parts = Group(*_parts(plan, console.width, shown, blocks=blocks))
        if whole or len(console.render_lines(parts)) <= LINES:
            break
    console.print(parts, overflow="fold")


@dataclass(frozen=True)
class Shown:
    """How much of a plan is shown: all of it, or so many reasons and runners-up."""

    whole: bool
    reasons: int
    others: int
    launch: bool = True
    """Whether the launch lines are among it, or only how to get them."""


def _levels(plan: Plan, width: int) -> Iterator[Shown]:
    """How much of a plan to try to show, the most first; what is as good as the plan goes before reasons."""
    yield from (Shown(whole=False, reasons=few, others=few - 1) for few in range(FEW, 1, -1))
    seconds = plan.prediction.iteration_seconds if plan.prediction else 0.0
    if any(other.tied for other in plan.alternatives):
        yield Shown(whole=False, reasons=0, others=1)
    elif any(other.iteration_seconds < seconds for other in plan.alternatives):  # of a job that has its launch lines
        yield Shown(whole=False, reasons=1, others=1, launch=False)
    yield from (Shown(whole=False, reasons=few, others=0) for few in (1, 0))
    if width >= USUAL:
        yield Shown(whole=False, reasons=0, others=0, launch=False)


def _parts(plan: Plan, width: int, shown: Shown, *, blocks: bool) -> Iterator[RenderableType]:
    runs = plan.status != "infeasible" and plan.fits
    yield Text(headline(plan), style="bold")
    for warning in plan.warnings:
        yield warned(warning)
    yield from _question(plan, width)
    if plan.status == "infeasible":
        yield from _refusal(plan)
    if plan.strategy is not None and plan.prediction is not None:
        yield from _figures(plan, plan.strategy, plan.prediction, blocks=blocks, whole=shown.whole)
        yield from _reasons(plan, width, shown)
        if runs and plan.startable:  # else a warning says why it is not
            yield from _launch(plan, plan.strategy, width, lines=shown.launch)
    if plan.defaults:
        yield from ("", pairs([("Assumed", "; ".join(plan.defaults))], style="bold"))
    if more := "" if shown.whole else _more(plan, shown):
        yield from ("", Text(f"-v adds {more}"))


def _question(plan: Plan, width: int) -> Iterator[RenderableType]:
    """What was asked: the job, the machines, what was set."""
    yield ""
    name = name_in(plan.request.get("model"))
    yield _line("your model" if name == "given" else name, model_facts(plan.request), width)
    yield _line(name_in(plan.request.get("cluster")), machine_facts(plan.request), width)
    if changes := plan.request.get("changes"):
        *firsts, last = (f"{path} = {written(value)}" for path, value in changes.items())
        yield Text(flow(["set:", *(f"{one};" for one in firsts), last], width=width, indent=0, gap=" "))


def _figures(
    plan: Plan, strategy: Strategy, found: Prediction, *, blocks: bool, whole: bool
) -> Iterator[RenderableType]:
    """The strategy, what it takes of time, money and memory, and how sure that is."""
    yield from headed("Strategy", pairs([*strategy_rows(strategy), *along_the_pipeline(strategy)]))
    yield from ("", time_panel(plan, blocks=blocks, whole=whole))
    if whole and len(plan.memory_bytes) > 1:
        yield from ("", memory_panel(plan.memory_bytes))
    training = [*training_lines(found, plan.request), *(goodput_lines(plan.goodput) if plan.goodput else ())]
    rows = [("Training", "\n".join(training))]
    if plan.memory_bytes:
        rows.append(("Memory", fullest_stage(plan.memory_bytes)))
    yield from ("", pairs([*rows, ("Risk", "\n".join(_risk(plan, found, whole=whole)))], style="bold"))


def _risk(plan: Plan, found: Prediction, *, whole: bool) -> Iterator[str]:
    """How sure the figures are: the interval, how far measured runs are, what is proved."""
    low, high = short_seconds(found.interval.low), short_seconds(found.interval.high)
    yield f"time: {low} to {high} per iteration ({found.interval.coverage:.0%} interval of measured runs)"
    if found.fit_probability is not None:
        yield f"memory: fits with a probability of {probability_words(found.fit_probability)}"
    if plan.trust:
        yield f"nearest measured run: {_nearest(plan.trust)}"
    if plan.proof:
        yield f"search: {_proof(plan.status, plan.proof, whole=whole)}"
    elif any(line.subject == BEST for line in plan.why_not):
        yield "search: of the best plan, which this strategy was compared with"
    else:
        yield "search: none, one strategy was priced; plan why-not compares it with the best"


def _nearest(found: Trust) -> str:
    """How like the plan the nearest measured run is, how well it is predicted, and which one it is."""
    if not found.nearest:
        return f"none; {_where(found)}"
    run = found.nearest[0]
    which = f"{run.model}, {run.gpus:,} {run.accelerator}, {run.layout}"
    return f"{_missed(run)} ({_where(found)}): {which}"


def _missed(run: Comparable) -> str:
    fast = "too fast" if run.error < 0 else "too slow"
    return f"predicted {abs(run.error):.1%} {fast}, {run.distance:.1f} away"


def _measured(run: Comparable) -> str:
    return f"{run.model}, {run.gpus:,} {run.accelerator}, {run.stack}, {run.layout}; {describe_source(run.group)}"


def _where(found: Trust) -> str:
    """Whether the plan is in the validated region, by its distance; a warning says in what else it is outside."""
    if found.inside:
        return f"0 is the same; validated up to {found.region:.1f}"
    if not found.nearest or found.nearest[0].distance > found.region:
        return f"outside the validated region, up to {found.region:.1f}"
    return f"within {found.region:.1f}, but outside the validated region: see the warning"


def _proof(status: str, proof: Proof, *, whole: bool) -> str:
    counts = f"priced {proof.feasible:,} that can run, of {proof.candidates:,}; "
    took = f"in {short_seconds(proof.wall_seconds)}"
    if status in {"optimal", "infeasible"} or proof.fastest_seconds is not None:
        stated = whole or proof.fastest_seconds is not None  # the headline says the rest
        return f"{counts}proved {took}{f': {proof.statement}' if stated else ''}"
    far = f"at most {format_percent(proof.gap)} from the optimum" if proof.gap < 1.0 else proof.statement
    return f"{counts}best found {took}, not proved: {far}"


def _reasons(plan: Plan, width: int, shown: Shown) -> Iterator[RenderableType]:
    """What else there is: runners-up, why not something else, what would help, what others measured."""
    options, others = [*_other_options(plan)], plan.alternatives[: shown.others]
    if options and not others:
        yield from headed("Alternatives")
    if others:
        tied = " (= tied: may turn out faster)" if any(other.tied for other in others) else ""
        yield from headed(f"Alternatives{tied}", alternatives_table(plan, width=width - 2, most=shown.others))
    yield from options
    yield from _advice("Why not (best with that choice; terms that grow)", plan.why_not[: shown.reasons])
    if not shown.whole:
        return
    yield from _advice("What would help", plan.what_helps)
    if plan.closest_run:
        yield from headed("Nearest published run", Text(plan.closest_run))
    if plan.trust and plan.trust.nearest:
        runs = [Text(f"{_missed(run)}: {_measured(run)}") for run in plan.trust.nearest]
        yield from headed("Nearest measured runs; 0 away is the same", *runs)


def _other_options(plan: Plan) -> Iterator[RenderableType]:
    """Which of tied alternatives is better validated, and whether there may be others."""
    if not plan.alternatives_complete:
        yield indented(Text(CUT_SHORT))
    yield from (indented(Text(f"with {one.subject}: {one.text}")) for one in plan.choices)
    if better := plan.better_validated:
        yield indented(Text(f"--ties validated takes {better.subject}: {better.text}"))


def _more(plan: Plan, shown: Shown) -> str:
    """What the screen leaves out."""
    others, reasons = len(plan.alternatives) - shown.others, len(plan.why_not) - shown.reasons
    left = [
        plural(others, "alternative") if others > 0 else "",
        plural(reasons, "reason") if reasons > 0 else "",
        "what would help" if plan.what_helps else "",
        "nearest runs" if plan.closest_run or plan.trust else "",
        "stages' memory" if len(plan.memory_bytes) > 1 else "",
    ]
    return ", ".join(filter(None, left)) if plan.prediction else ""


def _advice(heading: str, advice: Iterable[Advice]) -> Iterator[RenderableType]:
    if rows := [(one.subject, one.text) for one in advice]:
        yield from headed(heading, pairs(rows))


def _refusal(plan: Plan) -> Iterator[RenderableType]:
    if len(plan.rejected) > 1:  # the headline says the one
        yield from headed("Refused by", refused(plan.rejected))
    if plan.strategy is None:  # what speaks against one that is priced as asked follows its price
        yield from _advice("Why not", plan.why_not)


def nearest_that_works(nearest: Advice | None, tried: str) -> Iterator[RenderableType]:
    """What works in place of what was asked for, or what was tried in vain."""
    yield from _advice("Nearest that works", [nearest] if nearest else [])
    if tried:
        yield from headed("Nothing near works", Text(f"tried: {tried}"))


def refused(rejected: Iterable[Rejection]) -> Table:
    """What refused strategies, how many, and one of them."""
    table = grid("rule", "refused", "for example", left=(0, 2))
    table.columns[1].no_wrap = True
    for one in rejected:
        table.add_row(one.rule, f"{one.count:,}", Text(one.example))
    return table


def _launch(plan: Plan, strategy: Strategy, width: int, *, lines: bool) -> Iterator[RenderableType]:
    how = "" if lines else "plan export writes the files that start it; -v shows the lines"
    if lines and (other := other_launcher(plan)):
        how = other if device_refusal(plan) else f"{other}; --format args writes the plan as arguments of Megatron-LM"
    if how:
        yield from ("", pairs([("Launch", own_refusal(plan) or how)], style="bold"))
        return
    try:
        start = launch(plan, strategy)
    except BadRequest as error:
        yield from ("", pairs([("Launch", str(error))], style="bold"))
        return
    yield from headed("Launch (--format args prints one line)")
    for remark in start.remarks:
        yield Text(_comment(remark, width))
    yield Text("\n".join(block(start.words, width)))


def _comment(remark: str, width: int) -> str:
    """A remark that a shell skips when it is pasted along."""
    lines = flow(remark.split(), width=width - 4, indent=0, gap=" ").splitlines()
    return "\n".join(f"  # {line}" for line in lines)


def _line(name: str, facts: Iterable[str], width: int) -> Text:
    text = Text(flow([f"{name:<14}", *facts], width=width, indent=0, gap="  "))
    text.stylize("bold", 0, len(name))
    return text
