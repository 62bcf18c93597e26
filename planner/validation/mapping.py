"""From the free text of a measured run to a cluster, a stack and a strategy, by rules that anyone can read.

Every rule that fills something the source does not say leaves a note; a row that cannot be priced raises
``Unpriceable`` with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodels.iteration import row_seconds
from costmodels.memory import row_bytes
from costmodels.model import Model
from costmodels.model_catalogue import aliases, names
from costmodels.model_catalogue import model as catalogue_model
from costmodels.parameters import from_run
from costmodels.pricing import Assignment, row_assignment
from costmodels.scenario import Scenario
from costmodels.stack import Stack, stack
from costmodels.strategy import CP_KINDS, OFFLOADS, SCHEDULE_NAMES, Recompute, Strategies, strategies
from hardware.records import Cluster
from planner.frameworks.nanotron_split import stage_layers
from planner.stage_rows import assignment_of, problem_of
from planner.stages import solve
from planner.validation import aleph, frameworks, saving
from planner.validation.attention_words import attention_changes
from planner.validation.expert_words import as_catalogued, expert_changes
from planner.validation.launch_scripts import as_launched
from planner.validation.launch_words import launch_changes
from planner.validation.loss_words import loss_changes
from planner.validation.machines import Unpriceable, node_group
from planner.validation.model_words import as_described
from planner.validation.overlap_words import accumulation_changes, overlap_changes
from planner.validation.pytorch import compiled, stepped
from planner.validation.stack_words import newer_machine, stack_of

Row = Mapping[str, Any]


KERNELS: dict[Any, tuple[str, ...]] = {
    False: ("unfused",),
    "v1": ("flash-1", "flash-2"),
    "v1 (Triton or CUDA)": ("flash-1", "flash-2"),
    "v2": ("flash-2", "flash-1"),
    "v3": ("flash-3", "cudnn", "flash-2"),
}
"""The run's attention field to kernels in order of preference; True leaves the stack's own choice."""

FUSED = KERNELS["v2"]
"""What True means, and no word on a newer machine, where the stack is of before there was any fused attention."""


ASYNC_TP = 0.5
"""Share of tensor-parallel traffic that stays exposed where products and their collectives are cut into pieces that run
side by side [AsyncTP]: pieces are smaller and slower than the whole, and the first has nothing to hide behind."""


@dataclass(frozen=True)
class Case:
    """A measured run as the cost model takes it."""

    scenario: Scenario
    rows: Strategies
    assignment: Assignment
    notes: tuple[str, ...]


def case(row: Row, *, machines: Cluster | None = None, software: Stack | None = None) -> Case:
    """Map one measured run.

    Args:
        row: the run.
        machines: the cluster that it was on, in place of what its words stand for.
        software: the stack that it ran under, likewise; what the run says of its own kernels still counts.

    Raises:
        Unpriceable: something that pricing needs is neither said nor inferable.
        MeshwrightError: the description contradicts itself.
    """
    notes: list[str] = []
    row = as_launched(row)
    plan = row["strategy"]
    _check_sizes(row)
    model = _model(row, notes)
    chosen, group = _stack(row, notes, software), node_group(row, notes, machines)
    scenario = Scenario(
        model=model,
        group=group,
        stack=chosen,
        gpus=int(_need(plan, "gpus")),
        seq_length=model.seq_length,
        global_batch_size=int(_need(plan, "global_batch_size")),
        precision=saving.precision(plan, chosen, "bf16" if "bf16" in group.accelerator.peak else "fp16"),
    )
    rows = saving.with_savers(_strategy(plan, chosen, notes), row, model)
    if rows.offload[0] and not saving.described_for(scenario, rows):
        raise Unpriceable(f"offload {OFFLOADS[rows.offload[0]]}: the hosts of {scenario.group.name} are not described")
    assignment = _assignment(row, scenario, rows, notes)
    again = saving.recomputed_layers(plan, [int(n) for n in assignment.layers])
    if again is not None:
        rows = replace(rows, recompute=np.array([int(Recompute.PARTIAL)]))
        assignment = replace(assignment, recomputed=np.array(again))
    return Case(scenario, rows, assignment, tuple(notes))


def _check_sizes(row: Row) -> None:
    """Refuse depths that are slips: arrays as long as these would be made."""
    said = [row["strategy"].get(name) for name in ("pp", "vpp")]
    said += [row["model"].get(name) for name in ("num_layers", "mtp_layers", "dense_layers")]
    deep = max(int(value or 0) for value in said)
    if deep > DEEPEST:
        raise Unpriceable(f"{deep} layers, stages or chunks; no model has more than {DEEPEST}")


DEEPEST = 10_000
"""Layers of the deepest model that is taken for one."""


def _assignment(row: Row, scenario: Scenario, rows: Strategies, notes: list[str]) -> Assignment:
    """The stated layers per stage, a balanced split where the source says so, else an even one."""
    pp, layers = int(rows.pp[0]), scenario.model.num_layers
    said = row["strategy"].get("layers_per_stage")
    if said and len(said) == pp and sum(said) == layers:
        return row_assignment(rows, layers, [int(n) for n in said])
    if scenario.stack.name == "nanotron" and pp > 1 and not scenario.model.moe:
        notes.append("layers per stage by nanotron's rule")
        return row_assignment(rows, layers, stage_layers(scenario.model, pp))
    if scenario.stack.name == "aleph-alpha" and pp > 1:
        notes.append("layers per stage balanced by parameters, as its framework does")
        return row_assignment(rows, layers, aleph.stage_layers(scenario.model, pp))
    if "redistributed" in str(row["stack"].get("notes")) and pp > 1:
        notes.append("layers per stage balanced by the stage solver")
        return _balanced(scenario, rows)
    return row_assignment(rows, layers)


def _balanced(scenario: Scenario, rows: Strategies) -> Assignment:
    problem = problem_of(rows, row_seconds(rows, scenario), row_bytes(rows, scenario), scenario)
    found = solve(replace(problem, memory_limit=math.inf, uneven=True))
    return assignment_of(found, rows, scenario)


def _need(plan: Row, field: str) -> Any:
    value = plan.get(field)
    if value is None:
        raise Unpriceable(f"{field} is not stated")
    return value


def _model(row: Row, notes: list[str]) -> Model:
    """The model as described; of the catalogue by its name where sizes, or a hybrid's mixers, are not said."""
    shape = _unsaid_by_forks(row, notes)
    hybrid = "mamba" in str(shape.get("kind")) and shape.get("mamba") is None
    unsaid = [field for field in ("num_layers", "hidden_size", "num_heads") if shape.get(field) is None]
    if not hybrid and not unsaid:
        return as_described(as_catalogued(from_run(shape), shape), shape, notes)
    found = _named(shape)
    if found is None:
        reason = f"the model's {unsaid[0]} is not stated" if unsaid else "the model's Mamba-2 mixers are not stated"
        raise Unpriceable(f"{reason}, and no model of the catalogue is called {shape.get('name')!r}")
    notes.append(f"sizes of the catalogue's {found.name}, by its name")
    said = {field: shape[field] for field in ("seq_length", "mtp_layers") if shape.get(field) is not None}
    return found.model_copy(update=said)


SENTENCEPIECE = 32_000
"""Tokens of the tokenizer that the scripts of sail-sg's fork download, as in its authors' later paper [Yeung24]; the
stated parameters of their models agree."""


def _unsaid_by_forks(row: Row, notes: list[str]) -> dict[str, Any]:
    """The model as described, with what scripts of a known repository say where its paper does not."""
    shape = dict(row["model"])
    if "sail-sg" in str(row["stack"].get("framework")) and shape.get("vocab_size") is None:
        shape |= {"vocab_size": SENTENCEPIECE, "tied_embeddings": bool(shape.get("tied_embeddings"))}
        notes.append(f"vocabulary of {SENTENCEPIECE} tokens, untied, as the fork's scripts have it")
    return shape


def _named(shape: Row) -> Model | None:
    """The catalogue's model of that name, capitals, spaces and a maker in front apart; None if its layers differ.

    A size alone ("70B") is no name: sources mean models of their own by it.
    """
    name = re.sub(r"[\s_]+", "-", str(shape.get("name") or "").lower()).removeprefix("nvidia-")
    known = aliases().get(name, name)
    if known not in names() or re.fullmatch(r"[\d.]+[bm]", name):
        return None
    found = catalogue_model(known)
    return found if shape.get("num_layers") in (None, found.num_layers) else None


def _stack(row: Row, notes: list[str], given: Stack | None) -> Stack:
    if given is None:
        name = stack_of(row)
        given = stack(name)
        notes.append(f"stack {name} for framework {row['stack'].get('framework')!r}")
    return _adjusted(given.at(str(row["strategy"].get("precision") or "bf16")), row)


def _adjusted(chosen: Stack, row: Row) -> Stack:
    """The stack with what this run says of its own kernels and overlap."""
    changes: dict[str, Any] = {}
    said = row["stack"].get("attention")
    if said in KERNELS:
        changes |= {"attention": KERNELS[said], "blackwell_attention": ()}
    elif chosen.attention == KERNELS[False] and (said is True or newer_machine(row)):
        changes["attention"] = FUSED
    elif said is True:
        changes |= attention_changes(row)
    changes |= loss_changes(row, chosen.name) | launch_changes(row) | overlap_changes(row, chosen)
    changes |= accumulation_changes(row)
    kernels = str(row["stack"].get("notes") or "").lower()
    if "kernel set" in kernels:
        changes["fused_elementwise"] = "rms kernel" in kernels
        changes["fused_softmax"] = not kernels.endswith("torch")
    changes |= frameworks.changes(row, chosen)
    words = str(row["stack"].get("overlap") or "").lower()
    changes |= saving.states(row, chosen)
    stage = row["strategy"].get("zero_stage")
    if stage and int(stage) not in chosen.zero_stages:  # a newer version, or a fork, that has it
        changes["zero_stages"] = (*chosen.zero_stages, int(stage))
    changes |= compiled(row, chosen) | stepped(row, chosen)
    if "async tp" in words or "fine_grain_interleave" in words:
        hidden = {"tp_forward": ASYNC_TP, "tp_backward": ASYNC_TP * chosen.overlap.tp_backward}
        changes["overlap"] = chosen.overlap.model_copy(update=hidden)
    chosen = chosen.model_copy(update=changes)
    return chosen.model_copy(update=expert_changes(row, chosen))


def _strategy(plan: Row, chosen: Stack, notes: list[str]) -> Strategies:
    tp, cp, pp = (int(plan.get(name) or 1) for name in ("tp", "cp", "pp"))
    gpus = int(plan["gpus"])
    dp = int(plan.get("dp") or gpus // (tp * cp * pp))
    micro = plan.get("micro_batch_size")
    if micro is None:
        notes.append("micro-batch size 1 assumed")
        micro = 1
    zero = plan.get("zero_stage")
    if zero == 1 and chosen.name == "mindformers":
        zero = 2
        notes.append("ZeRO stage 2: whole graphs free gradients as they reduce them")
    if zero is None:
        zero = max(stage for stage in chosen.zero_stages if stage <= 1)
        notes.append(f"ZeRO stage {zero} assumed")
    recompute = plan.get("recompute") or _usual_recompute(chosen, notes)
    split = plan.get("sequence_parallel")
    if split is None:
        split = chosen.sequence_parallel and tp > 1
        notes.append(f"sequence parallelism {'on' if split else 'off'} assumed")
    vpp = int(plan.get("vpp") or 1)
    return strategies(
        tp=tp,
        cp=cp,
        cp_kind=_context(plan, cp, chosen, notes),
        pp=pp,
        vpp=vpp,
        dp=dp,
        ep=int(plan.get("ep") or 1),
        etp=int(plan.get("etp") or 1),
        zero_stage=zero,
        sharding_degree=_sharding(plan, int(zero), dp * cp),
        micro_batch_size=micro,
        num_microbatches=max(round(int(plan["global_batch_size"]) / (float(micro) * dp)), 1),
        schedule=_schedule(plan, pp, vpp),
        sequence_parallel=int(bool(split)),
        recompute=int(Recompute[str(recompute).upper()]),
        rank_order=0,
        vocabulary=int(pp > 1 and chosen.vocabulary == ("spread",)),
    )


def _context(plan: Row, cp: int, chosen: Stack, notes: list[str]) -> int:
    """The stated kind of context parallelism, else the stack's usual one."""
    if cp == 1:
        return 0
    kind = plan.get("cp_kind")
    if kind is None:
        kind = chosen.cp_kinds[0]
        notes.append(f"context parallelism of kind {kind} assumed")
    if kind not in CP_KINDS:
        raise Unpriceable(f"context parallelism of kind {kind} is not priced yet")
    return CP_KINDS.index(kind)


def _usual_recompute(chosen: Stack, notes: list[str]) -> str:
    usual = "selective" if chosen.attention == ("unfused",) else "none"
    notes.append(f"recomputation {usual} assumed")
    return usual


def _sharding(plan: Row, zero: int, ranks: int) -> int:
    if zero == 0:
        return 1
    degree = int(plan.get("sharding_degree") or ranks)
    return degree if degree > 1 and ranks % degree == 0 else ranks


def _schedule(plan: Row, pp: int, vpp: int) -> int:
    if pp == 1:
        return 0
    name = plan.get("schedule") or "1f1b"
    if name in ("none", "1f1b", "interleaved-1f1b"):
        name = "interleaved-1f1b" if vpp > 1 else "1f1b"
    if name not in SCHEDULE_NAMES:
        raise Unpriceable(f"schedule {name} is not priced yet")
    return SCHEDULE_NAMES.index(name)
