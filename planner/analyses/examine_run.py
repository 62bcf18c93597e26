"""A measured run examined: measured against predicted, where the time goes, the best plan, and what to change first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field

from costmodels.pricing import price_strategy
from costmodels.stack.combined import COMBINED
from costmodels.stack.stack import Stack
from planner.analyses.compare_with_best import compare_with_best, differs
from planner.answer.plan import Answer, Plan, Record
from planner.api import plan, predict
from planner.errors import MeshwrightError
from planner.frameworks.registry import framework_of, goes_with
from planner.request.fields import GIVEN_SPLIT
from planner.request.overrides import changed_stack
from planner.request.progress import Tell
from planner.request.request import PlanRequest
from planner.request.values import expect_type
from planner.runs.case import Case, Unpriceable, case_of
from planner.runs.judge import Verdict, judge_run
from planner.runs.schema import Run, run_of

NOTABLE: Final = 0.005
"""Share of the time below which a change is not worth a line."""
MOST: Final = 5
"""Changes that are listed."""
_AXES: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor parallelism": ("tp", "dp", "etp", "sharding_degree", "sequence_parallel"),
    "pipeline parallelism": ("pp", "vpp", "dp", "schedule", "sharding_degree"),
    "context parallelism": ("cp", "dp", "cp_kind", "sharding_degree"),
    "expert parallelism": ("ep", "etp"),
    "micro-batch": ("micro_batch_size",),
    "recomputation": ("recompute", "recompute_modules"),
    "schedule": ("schedule", "vpp"),
    "sharded states": ("zero_stage", "sharding_degree"),
    "sequence parallelism": ("sequence_parallel",),
    "offloading": ("offload",),
}
"""What is set free at a time: an axis, and what follows from it."""
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron-lm": ("Megatron",),
    "megatron-bridge": ("Megatron",),
    "deepspeed": ("DeepSpeed",),
    "torchtitan": ("torchtitan",),
    "maxtext": ("MaxText",),
}
"""How the words of switches begin that a framework has; those of PyTorch and of CUDA every one has."""
_EVERYWHERE: Final = ("PYTORCH", "CUDA", "numactl", "Liger")
_ANOTHER_JOB: Final = frozenset({"dropout", "deterministic", "fp8_attention", "fp8_param_gather"})
"""Switches that change what is computed, not how fast."""
_ONLY_WITH: Final = {"tp_overlap_rings": "tp_comm_overlap"}
"""Switches that do nothing unless another is on."""


class Change(Record):
    """One change of the run, and what it does to the prediction."""

    kind: Literal["switch", "axis"]
    name: str
    text: str
    """What would be otherwise."""
    iteration_seconds: float
    saved: float
    """Share of the predicted time of the run."""


class Examined(Answer):
    """Schema ``examined-run/1``."""

    schema_: Literal["examined-run/1"] = Field("examined-run/1", alias="schema")
    id: str
    model: str
    cluster: str
    stack: str
    gpus: int
    measured_seconds: float | None
    predicted_seconds: float
    low_seconds: float | None
    high_seconds: float | None
    """Where the measured time should lie, by runs of other sources."""
    measured_memory_bytes: float | None
    memory_kind: str | None
    predicted_memory_bytes: float | None
    """Of the same kind as the measured."""
    out_of_memory: bool
    predicted_to_fit: bool
    breakdown_seconds: dict[str, float]
    best_seconds: float | None
    """Of the best plan for the same job; None where nothing is known to run."""
    best_differs: str
    best_text: str
    changes: tuple[Change, ...]
    """Single changes that gain something and fit, the best first."""
    broken: tuple[str, ...]
    """Rules that would refuse the run as a plan."""
    suspect: bool
    notes: tuple[str, ...]


def examine_run(run: Run | Mapping[str, Any], framework: str | None = None, progress: Tell | None = None) -> Examined:
    """What a run took, what it should take, where the time goes, and what would help first.

    Args:
        run: with a complete request; or the document of one.
        framework: whose configuration it is: the best plan is what that starts.
        progress: called with how far the search for the best plan has come.

    Raises:
        Unpriceable: the run makes no request.
        MeshwrightError: its request contradicts itself.
    """
    run = run_of(run) if isinstance(run, Mapping) else expect_type("the run", run, Run, example="read_runs(path)[0]")
    if run.request is None:
        raise Unpriceable(run.unpriced)
    found, verdicts = case_of(run), {verdict.metric: verdict for verdict in judge_run(run)}
    given = predict(run.request, as_ran=True)
    searched = run.request.model_copy(update=dict.fromkeys(GIVEN_SPLIT))
    framework = framework or framework_of(found.scenario.stack.name)
    compared = compare_with_best(given, searched, framework, progress)
    predicted = found.price().iteration
    best = compared.why_not[0] if compared.why_not else None
    return Examined(
        id=run.id,
        model=found.scenario.model.name,
        cluster=run.request.cluster if isinstance(run.request.cluster, str) else found.scenario.group.name,
        stack=found.scenario.stack.name,
        gpus=found.scenario.gpus,
        predicted_seconds=predicted,
        **_judged(run, verdicts),
        breakdown_seconds=given.breakdown_seconds,
        best_seconds=best.iteration_seconds if best else None,
        best_differs=compared.alternatives[0].differs if compared.alternatives else "",
        best_text=best.text if best else "",
        changes=_changes(found, searched, given, framework),
        broken=tuple(f"{one.rule}: {one.example}" for one in found.broken),
        suspect=run.suspect,
        notes=run.unread,
    )


def _judged(run: Run, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Measured against predicted."""
    time, memory, fits = (verdicts.get(name) for name in ("iteration_time", "memory", "fits"))
    interval, peak = time.interval if time else None, run.measured.peak_memory
    return {
        "measured_seconds": run.measured.iteration_seconds,
        "low_seconds": interval.low if interval else None,
        "high_seconds": interval.high if interval else None,
        "measured_memory_bytes": peak.bytes if peak else None,
        "memory_kind": peak.kind if peak else None,
        "predicted_memory_bytes": float(memory.predicted) if memory and memory.predicted is not None else None,
        "out_of_memory": bool(run.measured.out_of_memory),
        "predicted_to_fit": bool(fits.predicted) if fits and fits.predicted is not None else True,
    }


def _changes(found: Case, request: PlanRequest, given: Plan, framework: str | None) -> tuple[Change, ...]:
    """Single changes that gain something, the best first."""
    every = [*_switched(found, framework), *_moved(found, request, given, framework)]
    alike = {one.text: one for one in reversed(every) if one.saved >= NOTABLE}
    return tuple(sorted(alike.values(), key=lambda one: -one.saved)[:MOST])


def _switched(found: Case, framework: str | None) -> Iterator[Change]:
    """Every switch of two states that the framework has, turned."""
    stack, now = found.scenario.stack, found.price().iteration
    begins = (*_WORDS.get(framework or "", ()), *_EVERYWHERE)
    states = {name: value for name, value, _ in _switches(stack)}
    for name, value, words in _switches(stack):
        word = next((word for word in words if word.startswith(begins)), None)
        idle = name in _ONLY_WITH and not states[_ONLY_WITH[name]]
        if word is None or idle or name in _ANOTHER_JOB:
            continue
        scenario = replace(found.scenario, stack=changed_stack(stack, {name: not value}))
        priced = price_strategy(found.strategy, scenario, found.assignment)
        if float(np.max(priced.footprint.total)) <= scenario.group.accelerator.usable_memory:
            text = f"{name} {_turned(word, on=not value)}"
            saved = 1.0 - priced.iteration / now
            yield Change(kind="switch", name=name, text=text, iteration_seconds=priced.iteration, saved=saved)


def _turned(word: str, *, on: bool) -> str:
    """The state to turn to, and what says it: an option that is given, or left out where it says the contrary."""
    option = word.rpartition("--")[2]
    contrary = option != word and option.startswith(("no-", "disable-"))
    left_out = contrary == on and option != word
    return f"{'on' if on else 'off'} ({'without ' if left_out else ''}{word})"


def _switches(stack: Stack) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    """Switches of two states: name, value and what frameworks call each."""
    for name, field in type(stack.switches).model_fields.items():
        value, extra = getattr(stack.switches, name), field.json_schema_extra
        if isinstance(value, bool) and isinstance(extra, dict):
            words = extra.get("words")
            yield name, value, tuple(map(str, words)) if isinstance(words, list) else ()
    for name, one in COMBINED.items():
        if isinstance(value := one.read(stack), bool):
            yield name, value, one.words


def _moved(found: Case, request: PlanRequest, given: Plan, framework: str | None) -> Iterator[Change]:
    """Every axis set free alone, with what follows from it."""
    now = found.price().iteration
    named = request.framework or (framework if framework and goes_with(framework, found.scenario.stack.name) else None)
    for name, free in _AXES.items():
        if free[0] not in request.pins:
            continue
        pins = {axis: value for axis, value in request.pins.items() if axis not in free}
        asked = request.model_copy(update={"pins": pins, "reasons": False, "top": 0, "framework": named})
        try:
            best = plan(asked)
        except MeshwrightError:  # what follows from the other axes leaves nothing to choose
            continue
        text = differs(given, best)
        if best.prediction and text:
            seconds = best.prediction.iteration_seconds
            yield Change(kind="axis", name=name, text=text, iteration_seconds=seconds, saved=1.0 - seconds / now)
