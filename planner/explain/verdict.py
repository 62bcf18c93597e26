"""Reasons in words and numbers: the closest run, what memory refused, one sentence that answers "why not"."""

from __future__ import annotations

import math
from collections.abc import Mapping

from costmodels.model.parameters import parameters
from costmodels.node_groups import AnyScenario, Mixed
from costmodels.scenario import Scenario
from costmodels.step.offload import described
from costmodels.strategy import Strategies
from hardware.records import Accelerator
from planner.answer.build import degrees_in_words
from planner.answer.plan import Plan, Strategy
from planner.answer.text import NOTABLE, SHORT_TERMS, WITHOUT, format_bytes, format_seconds
from planner.search.best_first import Outcome
from planner.trust.published import Landmark, landmarks


def memory_example(outcome: Outcome, question: AnyScenario) -> str:
    """One strategy that memory refused, in words: the one that came nearest to fitting."""
    if isinstance(question, Mixed):
        return (
            f"{outcome.memory_refused:,} of {outcome.priced:,} layouts do not fit the groups' memory, however the "
            "layers are split"
        )
    scenario = question
    if outcome.nearest is None:
        return f"more than {format_bytes(scenario.group.accelerator.usable_memory)} per GPU"
    needed, row = outcome.nearest
    limit = format_bytes(scenario.group.accelerator.usable_memory)
    needs = f"needs {format_bytes(needed)} per GPU, {limit} available"
    text = f"the nearest to fitting, {_named(row, scenario)}, {needs}"
    if scenario.stack.supports.offloads and not described(scenario):
        text += "; nothing can be offloaded: the cluster says no host_memory, host_link or host_bandwidth"
    return text


def _named(row: Strategies, scenario: Scenario) -> str:
    """The degrees of a strategy, with ZeRO where ranks share states."""
    zero = int(row.zero_stage[0])
    return ", ".join([degrees_in_words(row, scenario), *([f"ZeRO-{zero}"] if zero else [])])


def closest_run(scenario: Scenario) -> str | None:
    """The published run nearest in machine, size and scale."""
    billions, device = parameters(scenario.model) / 1e9, scenario.group.accelerator

    def distance(run: Landmark) -> float:
        apart = abs(math.log(billions / run.billions)) + 0.5 * abs(math.log(scenario.gpus / run.gpus))
        return apart + _other_machine(device, run) + (0.2 if run.precision not in {"", scenario.precision} else 0.0)

    run = min(landmarks(), key=distance)
    precision = f", {run.precision}" if run.precision else ""
    where = f"{run.gpus:,} {run.accelerator}{precision}"
    return f"{run.model} ({run.size}) on {where}: {run.result} ({run.source})"


def _other_machine(device: Accelerator, run: Landmark) -> float:
    """How far the run's accelerator is from the asked one, in factors of e of the model size."""
    if run.accelerator == device.name:
        return 0.0
    if run.family == f"{device.vendor} {device.architecture}":
        return 1.5
    return 3.0 if run.family.startswith(f"{device.vendor} ") else 5.0


def widths(strategy: Strategy | None) -> tuple[int, ...]:
    """Ranks that stages have, the fewest first: several where node groups give them different ones."""
    if strategy is None:
        return ()
    degrees = {(stage.tp or strategy.tp, stage.dp or strategy.dp) for stage in strategy.stages}
    return tuple(sorted({tp * dp * strategy.cp for tp, dp in degrees}))


def verdict(pinned: Plan, best: Plan, terms: Mapping[str, tuple[float, float]]) -> str:
    """One sentence that answers "why not", by what the request wants least of.

    ``terms`` are what adds up to that, this strategy's and the best plan's.
    """
    if pinned.prediction is None or not pinned.fits:
        if not pinned.rejected and best.prediction:
            return f"it is likely to run out of memory; the best fits and takes {format_seconds(best.value)}"
        reasons = "; ".join(r.example for r in pinned.rejected[:2])
        return f"it cannot run: {reasons}"
    if best.prediction is None:
        return "nothing else runs either"
    savers = next((said.removesuffix(WITHOUT) for said in pinned.defaults if said.endswith(WITHOUT)), "")
    return (f"it fits only with {savers}: " if savers else "") + _compared(pinned, best, terms)


def _compared(pinned: Plan, best: Plan, terms: Mapping[str, tuple[float, float]]) -> str:
    mine, theirs = pinned.value, best.value
    by_memory, wall = (best.request.get("objective") == name for name in ("memory", "goodput"))
    formatted = format_bytes if by_memory else format_seconds
    needs, of = ("needs", " on its fullest device") if by_memory else ("takes", " of wall time" if wall else "")
    most = formatted(mine) if pinned.proved else f"at most {formatted(mine)}"
    least = formatted(theirs) if best.proved else f"{formatted(theirs)}, the best found in the effort that it had"
    if len(several := widths(pinned.strategy)) > 1:
        return _not_launchable(several, pinned, best, f"it would take {most}", least)
    if mine <= theirs * (1 + NOTABLE):
        best_takes = "" if most == least else f", the best {needs} {least}"
        return f"it is as good as the best plan: it {needs} {most}{of}{best_takes}"
    name = max(terms, key=lambda term: terms[term][0] - terms[term][1])
    (this, other), more = terms[name], "more" if by_memory else "longer"
    return (
        f"it {needs} {most}{of}, {mine / theirs - 1:.1%} {more} than the best plan's {least}; "
        f"most of the difference is {SHORT_TERMS.get(name, name)}: {formatted(this)} against {formatted(other)}"
    )


def _not_launchable(several: tuple[int, ...], pinned: Plan, best: Plan, takes: str, least: str) -> str:
    """The verdict on a plan whose stages have several widths, which the best one has where nothing else fits."""
    whose = "the best" if len(widths(best.strategy)) > 1 else "the best that they start"
    change = pinned.value / best.value - 1
    apart = "" if abs(change) <= NOTABLE else f", {abs(change):.1%} {'longer' if change > 0 else 'shorter'}"
    ranks = " and ".join(map(str, several))
    return f"launchers start no plan with stages of {ranks} ranks: {takes}{apart}; {whose} takes {least}"


__all__ = ["closest_run", "memory_example", "verdict", "widths"]
