"""From numbers to the result document; every figure that a person sees is a field made here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from costmodels.catalogue import catalogue_hash as models_hash
from costmodels.layer.context import ulysses_ranks
from costmodels.layer.recompute_modules import module_names
from costmodels.layout.split import Assignment
from costmodels.model.catalogue import entry_on_hub
from costmodels.model.flops import (
    module_flops,
    recomputed_flops,
    utilization,
)
from costmodels.model.model import Model
from costmodels.model.parameters import parameters
from costmodels.names import VALUE_NAMES, Recompute
from costmodels.node_groups import (
    PER_GROUP,
    AnyScenario,
    MixedStrategies,
    as_it_runs,
    first_in_pipeline,
    parts_of,
    stage_limits,
)
from costmodels.pricing import Price
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from costmodels.strategy import Floats, Strategies
from costmodels.training import training
from costmodels.training.goodput import upkeep
from costmodels.useful_flops import counted_flops
from hardware.catalogue import catalogue_hash as hardware_hash
from hardware.catalogue import in_catalogue
from hardware.errors import MeshwrightError
from hardware.records import Cluster
from hardware.writing import cluster_document
from planner.answer.plan import Goodput, Interval, Prediction, Provenance, Stage, StageMemory, Strategy
from planner.answer.text import plural
from planner.request.fields import FIELDS, QUESTION
from planner.request.resolve import Resolved
from planner.request.tables import short_cluster
from planner.version import VERSION

_LOSSES = ("checkpoints", "failures", "repairs", "stragglers")


def strategy_record(row: Strategies, assignment: Assignment, question: AnyScenario) -> Strategy:
    """One row and its stages as a record; recomputation is named by what really happens.

    Over several node groups it has the degrees of its first stage, and at each stage those that differ between groups.
    """
    run = as_it_runs(row, assignment)
    scenario = parts_of(question)[int(run.order[0, 0]) if isinstance(run, MixedStrategies) else 0]
    first = first_in_pipeline(run)
    at = first.row(0)
    plain = {name: int(value) for name, value in at.items() if name in Strategy.model_fields}
    named = {axis: names[plain[axis]] for axis, names in VALUE_NAMES.items()}
    switch = {"sequence_parallel": bool(at["sequence_parallel"])}
    modules = {"recompute_modules": module_names(at["recompute_modules"])}
    record = Strategy(
        **(plain | named | switch | modules),
        cp_near=int(ulysses_ranks(first, scenario)[0]),
        global_batch_size=scenario.global_batch_size,
        stages=tuple(
            Stage(layers=int(n), recompute_layers=int(r), group=scenario.group.name)
            for n, r in zip(assignment.layers, assignment.recomputed, strict=True)
        ),
    )
    return _by_group(record, run, question) if isinstance(run, MixedStrategies) else record


def _by_group(record: Strategy, row: MixedStrategies, question: AnyScenario) -> Strategy:
    """The record with the node group of every stage, and what stages on other groups have otherwise."""
    at, names = [one.row(0) for one in row.groups], [one.group.name for one in parts_of(question)]
    apart = [name for name in (*PER_GROUP, "sharding_degree") if len({one[name] for one in at}) > 1]
    stages = tuple(
        stage.model_copy(update={"group": names[group], **{name: int(at[group][name]) for name in apart}})
        for stage, group in zip(record.stages, row.group_at()[0].tolist(), strict=True)
    )
    zero = max(one["zero_stage"] for one in at)
    alone = zero > record.zero_stage  # the first stage has one rank, and nothing to share
    degree = max(one["sharding_degree"] for one in at) if alone else record.sharding_degree
    return record.model_copy(update={"stages": stages, "zero_stage": zero, "sharding_degree": degree})


def degrees_in_words(row: Strategies, question: AnyScenario) -> str:
    """The degrees above 1 of one strategy, or of each node group: "TP 2, DP 8", "4 stages of a100 with TP 2; ..."."""
    if not isinstance(row, MixedStrategies):
        return _above_one(row, "tp", "cp", "pp", "ep", "dp")
    parts = zip(parts_of(question), row.groups, row.stages[0].tolist(), strict=True)
    return "; ".join(
        f"{plural(stages, 'stage')} of {one.group.name} with {_above_one(group, 'tp', 'cp', 'dp')}"
        for one, group, stages in parts
    )


def _above_one(row: Strategies, *axes: str) -> str:
    found = [f"{axis.upper()} {degree}" for axis in axes if (degree := int(getattr(row, axis)[0])) > 1]
    return ", ".join(found) or "one GPU"


def order_in_words(order: Iterable[int], question: AnyScenario) -> str:
    """An order of the node groups: "h100 before a100"."""
    return " before ".join(parts_of(question)[group].group.name for group in order)


class Trusted(NamedTuple):
    """How far a prediction can be trusted, as the packages above this one know."""

    interval: Callable[..., Interval]
    """``planner.trust.interval.interval``."""
    fit_probability: Callable[[Scenario, float], float]
    """``planner.trust.memory.fit_probability``."""


def prediction_record(
    resolved: Resolved, priced: Price, row: Strategies, assignment: Assignment, trusted: Trusted, *, filled: float
) -> Prediction:
    """Rates and totals that follow from the price; ``filled`` is the share of its memory that a stage fills."""
    scenario, iteration = resolved.scenario, priced.iteration
    peak = mean_peak(resolved)
    model_flops = counted_flops(scenario) * scenario.tokens
    hardware_flops = model_flops + _repeated_flops(scenario, row, assignment) * scenario.tokens
    seconds, gpus = iteration, scenario.gpus
    mfu = utilization(flops=model_flops, seconds=seconds, gpus=gpus, peak=peak)
    run = training.totals(
        cluster=resolved.cluster,
        gpus=scenario.gpus,
        iteration=iteration,
        tokens=resolved.tokens,
        tokens_per_iteration=scenario.tokens,
    )
    return Prediction(
        iteration_seconds=iteration,
        mfu=mfu,
        hfu=utilization(flops=hardware_flops, seconds=seconds, gpus=gpus, peak=peak),
        model_tflops_per_gpu=model_flops / iteration / scenario.gpus / 1e12,
        tokens_per_second=scenario.tokens / iteration,
        tokens_per_second_per_gpu=scenario.tokens / iteration / scenario.gpus,
        iterations=run.iterations,
        training_days=run.seconds / training.DAY,
        gpu_hours=run.gpu_hours,
        cost_dollars=run.cost,
        energy_megawatt_hours=run.joules / training.JOULES_PER_MWH,
        interval=trusted.interval(
            scenario, row, iteration, breakdown=priced.breakdown, mfu=mfu, mixture=resolved.mixed is not None
        ),
        fit_probability=trusted.fit_probability(scenario, filled),
    )


def goodput_record(resolved: Resolved, row: Strategies, prediction: Prediction) -> Goodput | None:
    """What interruptions and checkpoints leave, where the request speaks of them."""
    if resolved.stability is None:
        return None
    cost = prediction.cost_dollars
    found = upkeep(row, resolved.scenario, resolved.stability)
    between, interval = found.mean_time_between_failures, found.interval
    ends, each = math.isfinite(interval), prediction.iteration_seconds
    longer = found.rented / found.effective  # spare nodes at rated power too, as no record has an idle one
    return Goodput(
        mean_hours_between_failures=between / training.HOUR if math.isfinite(between) else None,
        checkpoint_bytes=found.checkpoint_bytes,
        checkpoint_stall_seconds=found.checkpoint_stall,
        checkpoint_interval_seconds=interval if ends else None,
        checkpoint_interval_iterations=max(round(interval / each), 1) if ends else None,
        downtime_seconds=found.downtime,
        startup_seconds=found.startup,
        **{name: getattr(found, name) for name in ("spare_nodes", "effective", *_LOSSES)},
        wall_days=prediction.training_days / found.effective,
        wall_cost_dollars=None if cost is None else cost * longer,
        spare_cost_dollars=None if cost is None else cost * (longer - 1.0 / found.effective),
        wall_energy_megawatt_hours=prediction.energy_megawatt_hours * longer,
    )


def mean_peak(resolved: Resolved) -> float:
    """Peak FLOP/s of a device, averaged over the devices of all node groups."""
    parts = parts_of(resolved.question)
    return sum(one.gpus * one.peak_rate for one in parts) / sum(one.gpus for one in parts)


def mfu_of(scenario: Scenario, seconds: float) -> float:
    """Model FLOP utilisation of an iteration that takes so long, on devices of one kind."""
    flops = counted_flops(scenario) * scenario.tokens
    return utilization(flops=flops, seconds=seconds, gpus=scenario.gpus, peak=scenario.peak_rate)


def _repeated_flops(scenario: Scenario, row: Strategies, assignment: Assignment) -> float:
    """FLOP per token of the forward passes that run twice."""
    recompute = Recompute(int(row.recompute[0]))
    known: dict[str, Any] = {"seq_length": scenario.attended_length, "windowed": True}
    if modules := module_names(int(row.recompute_modules[0])):
        return module_flops(scenario.model, modules=modules, **known)
    if recompute == Recompute.SELECTIVE:
        return recomputed_flops(scenario.model, recompute="selective", **known)
    share = assignment.recomputed.sum() / assignment.layers.sum()
    return float(share * recomputed_flops(scenario.model, recompute="full", **known))


def memory_records(priced: Price, limits: Floats) -> tuple[StageMemory, ...]:
    """The footprint of every stage, with the usable memory of its device, margin included."""
    names = ("weights", "optimizer", "activations", "logits", "slack", "reserved", "total")
    held = priced.footprint.gradients - priced.footprint.late  # of those that come as activations go
    return tuple(
        StageMemory(
            stage=s,
            limit=float(limit),
            gradients=float(held[s]),
            **{name: float(getattr(priced.footprint, name)[s]) for name in names},
        )
        for s, limit in enumerate(limits)
    )


def request_record(resolved: Resolved) -> dict[str, Any]:
    """The resolved request: everything that another machine needs to ask the same question."""
    scenario, asked = resolved.scenario, resolved.request
    adapters, stability = scenario.stack.switches.adapters, resolved.stability
    found = {
        "model": _model_record(scenario.model, asked.model),
        "cluster": short_cluster(resolved.cluster) | _own_file(resolved.machines),
        "stack": _stack_record(resolved.software),
        "precision": scenario.precision,
        "as_of": None,  # the release that it picked is in the stack's name
        "global_batch_size": scenario.global_batch_size,
        "seq_length": scenario.seq_length,
        "tokens": resolved.tokens,
        "main_grads": resolved.main_grads,
        "framework": asked.framework or scenario.framework or None,
        "memory_margin": resolved.margin if resolved.margin_is_usual else asked.memory_margin,
        "adapters": str(adapters) if adapters else None,
        "changes": _made(asked.changes, scenario) or None,
        "stability": stability.model_dump(exclude_unset=True) if stability else None,
    }
    said = {name: found[name] if name in found else getattr(asked, name) for name in QUESTION if FIELDS[name].saved}
    pins = {name: _text(value) for name, value in asked.pins.items() if value is not None}
    return {name: value for name, value in said.items() if value is not None} | {"pins": pins}


def _model_record(model: Model, asked: str | Model) -> dict[str, Any]:
    """The model's sizes, with its parameters, and its name on a hub where that is what was asked for."""
    hub = {"hub": asked} if isinstance(asked, str) and entry_on_hub(asked) else {}
    return model.model_dump(exclude_defaults=True) | {"parameters": parameters(model)} | hub


def _made(changes: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """Changes as they can be made again: the model stands there changed, so its multiples are said as values."""
    return {
        path: getattr(scenario.model, path.partition(".")[2]) if path.startswith("model.") else value
        for path, value in changes.items()
    }


def _own_file(machines: Cluster) -> dict[str, Any]:
    """The table of a cluster that the catalogue does not hold, so that the answer alone asks the question again."""
    return {} if in_catalogue(machines) else {"file": cluster_document(machines)}


def _stack_record(software: Stack) -> str | dict[str, Any]:
    """The name of a stack of the catalogue, else its table, so that the answer alone asks the question again."""
    try:
        held = find_stack(software.full_name) == software
    except MeshwrightError:
        held = False
    return software.full_name if held else software.model_dump(mode="json", exclude_defaults=True)


def _text(value: Any) -> str:
    """A pin as it can be asked again."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def frame_record(resolved: Resolved) -> dict[str, Any]:
    """What every answer has: the question, what was taken without being asked for, where it comes from."""
    return {
        "request": request_record(resolved),
        "defaults": resolved.defaults,
        "provenance": provenance_record(resolved),
    }


def priced_record(
    resolved: Resolved, row: Strategies, split: Assignment, priced: Price, trusted: Trusted
) -> dict[str, Any]:
    """What an answer with one strategy has: its frame, and all that follows from the price."""
    first, limits = first_in_pipeline(row), stage_limits(row, resolved.question) / (1.0 - resolved.margin)
    filled = float(np.max(priced.footprint.total / limits))
    predicted = prediction_record(resolved, priced, first, split, trusted, filled=filled)
    return {
        "strategy": strategy_record(row, split, resolved.question),
        "prediction": predicted,
        "goodput": goodput_record(resolved, first, predicted),
        "breakdown_seconds": priced.breakdown,
        "memory_bytes": memory_records(priced, limits),
        **frame_record(resolved),
    }


def provenance_record(resolved: Resolved) -> Provenance:
    """Version, catalogue and the sources of the records that went in."""
    scenario = resolved.scenario
    sources = (
        f"model {scenario.model.name}: {scenario.model.source}",
        f"cluster {resolved.cluster.name}: {', '.join(sorted(set(resolved.cluster.sources.values())))}",
        f"stack {scenario.stack.name}: {scenario.stack.source}",
    )
    return Provenance(version=VERSION, catalogue_hash=catalogue_hashes(), sources=sources)


def catalogue_hashes() -> str:
    """Which facts an answer rests on: machines, then models and stacks."""
    return f"{hardware_hash()}-{models_hash()}"


def peak_bytes(priced: Price) -> float:
    """Total bytes of the fullest stage."""
    return float(np.max(priced.footprint.total))
