"""What a reader sees after the answer in a sentence: a card each for time, MFU, cost, memory and risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.answer.plan import Plan, Prediction
from planner.answer.text import (
    format_days,
    format_dollars,
    format_gib,
    format_percent,
    format_prefixed,
    format_seconds,
    name_in,
    plural,
    probability_words,
)

MEANINGS: Final = {
    "MFU": "model FLOPs utilization: the share of the GPUs' peak that useful arithmetic reaches",
    "Memory": "of the fullest GPU, and what the device has for a job",
    "Time": "the whole training run; an iteration is one update of the weights",
    "Cost": "rent of all GPUs for the time of the run",
    "Risk": "how far the plan is from runs that were measured",
}
"""What each card is of."""
_TIGHT: Final = 0.97
"""Share of the usable memory beyond which a plan may run out of it."""


def cluster_name(plan: Plan) -> str:
    """What the machines of a plan are called."""
    return name_in(plan.request["cluster"])


def cards(plan: Plan) -> list[dict[str, str]]:
    """Cards of a plan: name, value, detail, meaning, and level "good", "warn", "bad" or ""; none without a strategy."""
    if plan.strategy is None or (said := plan.prediction) is None:
        return []
    listed = [_time(plan, said), _mfu(said), _cost(plan, said), _memory(plan), _risk(plan)]
    return [{**card, "meaning": MEANINGS[card["name"]]} for card in listed]


def _card(name: str, value: str, *details: str, level: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "detail": "; ".join(filter(None, details)), "level": level}


def _time(plan: Plan, said: Prediction) -> dict[str, str]:
    days = plan.goodput.wall_days if plan.goodput else said.training_days
    low, high = format_seconds(said.interval.low), format_seconds(said.interval.high)
    sure = f"{100 * said.interval.coverage:.0f} % sure"
    rate = f"{format_prefixed(said.tokens_per_second)} tokens per second"
    failures = "interruptions and checkpoints included" if plan.goodput else ""
    each = f"{format_seconds(said.iteration_seconds)} per iteration"
    return _card("Time", format_days(days), each, f"{low} to {high} ({sure})", rate, failures)


def _mfu(said: Prediction) -> dict[str, str]:
    """MFU and its interval, the inverse of that of the time."""
    ends = [said.mfu * said.iteration_seconds / end for end in (said.interval.high, said.interval.low) if end > 0]
    between = " to ".join(f"{100 * end:.0f}" for end in ends)
    per_gpu = f"{said.model_tflops_per_gpu:,.0f} TFLOP/s per GPU"
    return _card("MFU", format_percent(said.mfu), f"{between} % ({100 * said.interval.coverage:.0f} % sure)", per_gpu)


def _cost(plan: Plan, said: Prediction) -> dict[str, str]:
    dollars = plan.goodput.wall_cost_dollars if plan.goodput else said.cost_dollars
    hours, energy = f"{format_prefixed(said.gpu_hours)} GPU-hours", f"{said.energy_megawatt_hours:,.0f} MWh"
    if dollars is None:
        return _card("Cost", "no price", "say what a GPU costs: price in the cluster's file", hours, energy)
    return _card("Cost", format_dollars(dollars), hours, energy)


def _memory(plan: Plan) -> dict[str, str]:
    fullest = max(plan.memory_bytes, key=lambda stage: stage.total / stage.limit)
    share, free = fullest.total / fullest.limit, fullest.limit - fullest.total
    needed, limit = f"{format_gib(fullest.total)} GiB", f"{format_gib(fullest.limit)} GiB"
    where = f"stage {fullest.stage} of {len(plan.memory_bytes)}" if len(plan.memory_bytes) > 1 else ""
    chance = plan.prediction.fit_probability if plan.prediction else None
    sure = "" if chance is None else f"fits with a probability of {probability_words(chance)}"
    if not plan.fits or share > 1.0:
        return _card("Memory", needed, f"{format_gib(-free)} GiB too much for {limit}", sure, where, level="bad")
    left = f"{format_gib(free)} of {limit} left"
    return _card("Memory", needed, left, sure, where, level="warn" if share > _TIGHT else "good")


def _risk(plan: Plan) -> dict[str, str]:
    """Where the plan stands among measured runs, and how many warnings it has."""
    warned = plural(len(plan.warnings), "warning") if plan.warnings else ""
    trust = plan.trust
    if trust is None or not trust.nearest:
        return _card("Risk", "unknown", "no measured run is near", warned, level="warn")
    near = trust.nearest[0]
    layout = f"{near.model} on {near.gpus} {near.accelerator}"
    missed = f"the nearest, {layout}, was predicted within {format_percent(abs(near.error))}"
    if trust.inside:
        return _card("Risk", "like measured runs", missed, warned, level="good" if not plan.warnings else "warn")
    beyond = f"beyond what was measured: {', '.join(trust.beyond)}" if trust.beyond else ""
    differs = f"differs most in {', '.join(trust.differs)}" if trust.differs and not beyond else ""
    return _card("Risk", "unlike measured runs", beyond, differs, missed, warned, level="warn")


def study_headline(points: Sequence[Mapping[str, Any]], importance: Mapping[str, Mapping[str, float]]) -> str:
    """The result of a study in a few sentences: how many plans, the best by time and by money, what decides it."""
    priced = [point for point in points if point["seconds"] is not None]
    said = [f"{plural(len(points), 'point')}, {len(priced):,} with a plan."]
    jobs = {point["job"] for point in priced}
    figure = "days" if len(jobs) == 1 else "mfu"
    if best := _best(priced, figure):
        said.append(f"{'Fastest' if figure == 'days' else 'Highest MFU'}: {_figure(figure, best)} with {_where(best)}.")
    if len(jobs) == 1 and (cheapest := _best(priced, "cost")) and cheapest is not best:
        said.append(f"Cheapest: {_figure('cost', cheapest)} with {_where(cheapest)}.")
    shares = sorted(importance.get(figure, {}).items(), key=lambda pair: -pair[1])
    if shares and shares[0][1] > 0:
        spread = "days" if figure == "days" else "MFU"
        said.append(
            f"What decides {spread} most is {_axis(shares[0][0])} ({100.0 * shares[0][1]:.0f} % of its spread)."
        )
    return " ".join(said)


def _best(points: Sequence[Mapping[str, Any]], figure: str) -> Mapping[str, Any] | None:
    known = [point for point in points if point[figure] is not None]
    return min(known, key=lambda point: -point[figure] if figure == "mfu" else point[figure], default=None)


def _figure(figure: str, point: Mapping[str, Any]) -> str:
    say = {"days": format_days, "cost": format_dollars, "mfu": format_percent}[figure]
    return say(point[figure])


def _where(point: Mapping[str, Any]) -> str:
    return ", ".join(_choice(name, value) for name, value in point["axes"].items() if value is not None)


def _choice(axis: str, value: object) -> str:
    """A value of an axis as a sentence has it: what has a name stands alone."""
    if axis == "gpus" and isinstance(value, int):
        return plural(value, "GPU")
    return str(value) if axis in {"model", "cluster", "stack"} else f"{_axis(axis)} {value}"


def _axis(name: str) -> str:
    return {"gpus": "GPUs"}.get(name, name.removeprefix("cluster.").replace("_", " ").replace(".", " "))
