"""From the free text of a measured run to a cluster, a stack and a strategy, by rules that anyone can read.

Every rule that fills something the source does not say leaves a note; a row that cannot be priced raises
``Unpriceable`` with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from costmodels.iteration import row_seconds
from costmodels.layout.split import Assignment
from costmodels.memory.rows import row_bytes
from costmodels.model.model import Model
from costmodels.names import Recompute
from costmodels.pricing import row_assignment
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from hardware.records import Accelerator, Cluster
from planner.frameworks.nanotron import stage_layers
from planner.stages.from_strategies import assignment_of, problem_of
from planner.stages.solver import solve
from run_words import heard as re
from run_words import saving
from run_words.adapter_words import adapters_of, frozen_changes
from run_words.flag_words import as_flagged
from run_words.flat_fields import changed
from run_words.machines import Unpriceable, node_group
from run_words.model_words import model_of
from run_words.recompute_words import as_recomputed
from run_words.software import as_attending, stack_for
from run_words.stack_words import as_catalogued
from run_words.strategy_words import as_batched, as_ranked, strategy_of

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A measured run as the cost model takes it."""

    scenario: Scenario
    rows: Strategies
    assignment: Assignment
    machines: Cluster
    """The cluster of any number of nodes that the run's words stand for."""
    notes: tuple[str, ...]


def case(row: Row) -> Case:
    """Map one measured run.

    Raises:
        Unpriceable: something that pricing needs is neither said nor inferable.
        MeshwrightError: the description contradicts itself.
    """
    notes: list[str] = []
    row = as_catalogued(as_flagged(row))
    row = as_batched(as_ranked(saving.as_spelled(as_recomputed(as_attending(row, notes))), notes), notes)
    plan = row["strategy"]
    _check_sizes(row)
    _check_ranks(row)
    model = model_of(row, notes)
    chosen, (machines, group) = stack_for(row, notes), node_group(row, notes)
    if adapters := adapters_of(row, model, notes):
        chosen = changed(chosen, {"adapters": adapters} | frozen_changes(row, chosen))
    usual = "bf16" if "bf16" in group.accelerator.peak else "fp16"
    if plan.get("precision") is None:
        notes.append(f"precision {usual} assumed")
    scenario = Scenario(
        model=model,
        group=group,
        stack=chosen,
        gpus=int(_need(plan, "gpus")),
        seq_length=model.seq_length,
        global_batch_size=int(_need(plan, "global_batch_size")),
        precision=_multiplied(saving.precision(plan, chosen, usual), group.accelerator, notes),
    )
    node = group.gpus_per_node
    rows = strategy_of(plan, chosen, notes, experts=model.moe is not None, node=node)
    rows = saving.with_savers(rows, row, model, notes)
    if not row.get("suspect"):
        _check_layout(rows, model)
    if rows.offload[0]:
        scenario = replace(scenario, group=saving.with_hosts(scenario.group, notes))
    assignment = _assignment(row, scenario, rows, notes)
    again = saving.recomputed_layers(plan, [int(n) for n in assignment.layers])
    if again is not None:
        notes.append(f"{sum(again)} of {scenario.model.num_layers} layers recomputed, by the run's words")
        rows = replace(rows, recompute=np.array([int(Recompute.PARTIAL)]))
        assignment = replace(assignment, recomputed=np.array(again))
    return Case(scenario, rows, assignment, machines, tuple(notes))


def _multiplied(precision: str, device: Accelerator, notes: list[str]) -> str:
    """The format that products have: matrix units which know no fp32 or fp16 take bf16, as XLA has them do.

    Those from before bf16 take fp16, which a source that says bf16 of them can only mean.
    """
    other = "fp16" if precision == "bf16" else "bf16"
    if precision not in {"fp32", "fp16", "bf16"} - device.peak.keys() or other not in device.peak:
        return precision
    notes.append(f"products in {other} in place of {precision}, which {device.name} does not multiply in")
    return other


DEEPEST = 10_000
"""Layers of the deepest model that is taken for one."""


def _check_sizes(row: Row) -> None:
    """Refuse depths that are slips: arrays as long as these would be made."""
    said = [row["strategy"].get(name) for name in ("pp", "vpp")]
    said += [row["model"].get(name) for name in ("num_layers", "mtp_layers", "dense_layers")]
    deep = max(int(value or 0) for value in said)
    if deep > DEEPEST:
        raise Unpriceable(f"{deep} layers, stages or chunks; no model has more than {DEEPEST}")


def _check_ranks(row: Row) -> None:
    """Refuse degrees that do not make up the devices; of runs that are marked suspect that is known."""
    plan = row["strategy"]
    said = {name: int(plan.get(name) or 1) for name in ("tp", "cp", "pp", "dp")}
    gpus, ranks = int(_need(plan, "gpus")), math.prod(said.values())
    contradicts = ranks != gpus if plan.get("dp") else gpus % ranks > 0
    if contradicts and not row.get("suspect"):
        degrees = " x ".join(f"{name} {value}" for name, value in said.items() if name != "dp" or plan.get("dp"))
        raise Unpriceable(f"strategy: {degrees} are {ranks} ranks, which do not make up {gpus} gpus")


def _check_layout(rows: Strategies, model: Model) -> None:
    """Refuse what no framework can lay out: experts and ranks that do not share each other, stages without a layer."""
    tp, cp, pp, vpp, dp, ep, etp = (
        int(getattr(rows, name)[0]) for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")
    )
    experts, ranks = model.moe.num_experts if model.moe else 0, tp * cp * dp
    slices = model.num_layers + model.mtp_layers + 2  # embedding and head may count as layers
    if ep > 1 and not experts:
        raise Unpriceable(f"strategy.ep: {ep} expert ranks, and {model.name} has no experts")
    if experts % ep:
        raise Unpriceable(f"strategy.ep: {ep} ranks do not share {experts} experts; {math.gcd(experts, ep)} would")
    if ranks % (ep * etp):
        raise Unpriceable(
            f"strategy: ep {ep} x etp {etp} do not divide the {ranks} ranks of tp {tp} x cp {cp} x dp {dp}"
        )
    if pp * vpp > slices:
        raise Unpriceable(f"strategy: pp {pp} x vpp {vpp} pieces of {model.num_layers} layers; at most {slices} work")
    if tp > model.num_heads:
        raise Unpriceable(f"strategy.tp: {tp} ranks share {model.num_heads} heads; at most {model.num_heads} work")


def _assignment(row: Row, scenario: Scenario, rows: Strategies, notes: list[str]) -> Assignment:
    """The stated layers per stage, a balanced split where the source says so, else an even one."""
    pp, layers = int(rows.pp[0]), scenario.model.num_layers
    said = _of_stages(row["strategy"].get("layers_per_stage"), pp, int(rows.vpp[0]))
    if said and len(said) == pp and sum(said) == layers:
        return row_assignment(rows, layers, [int(n) for n in said])
    if said:
        notes.append(
            f"layers_per_stage {said!r:.60} do not make {layers} layers on {pp} stages: an even split is priced"
        )
    counted = _by_rule(row, scenario, rows, notes, evenly=bool(said)) if pp > 1 else None
    return row_assignment(rows, layers, counted) if counted else row_assignment(rows, layers)


def _by_rule(row: Row, scenario: Scenario, rows: Strategies, notes: list[str], *, evenly: bool) -> Sequence[int] | None:
    """Layers of several stages by a rule of the run's notes, its framework or its fork; None for an even split."""
    model, pp = scenario.model, int(rows.pp[0])
    counted: Sequence[int] | None = _with_ends(row, pp, model.num_layers)
    if counted is not None:
        rule = "by the notes, which count embedding and head"
    elif scenario.stack.name == "nanotron" and not model.moe:
        counted, rule = stage_layers(model, pp), "by nanotron's rule"
    elif "redistributed" in str(row["stack"].get("notes")):
        counted = [int(n) for n in _balanced(scenario, rows).layers]
        rule = "balanced by the stage solver, as the notes say that they are redistributed"
    elif model.mtp_layers and not evenly:
        counted = [int(n) for n in _balanced(scenario, rows).layers]
        rule = "balanced beside the layer that predicts further tokens, assumed"
    else:
        if not evenly and scenario.stack.supports.uneven_stages:
            notes.append(f"layers per stage {EVEN}")
        return None
    notes.append(f"layers per stage {rule}")
    return counted


EVEN: Final = "as evenly as they go, assumed; a search takes its best split"


def _of_stages(said: Any, pp: int, vpp: int) -> Any:
    """Layers of every stage, where chunks are listed: in the order of the model, or stage by stage."""
    if isinstance(said, str) and re.fullmatch(r"[\[(]?\s*\d+(\s*[,/|+ ]\s*\d+)*\s*[\])]?", said.strip()):
        said = [int(number) for number in re.findall(r"\d+", said)]
    if not isinstance(said, list) or vpp == 1:
        return said
    if len(said) == pp and all(isinstance(chunks, list) for chunks in said):
        return [sum(chunks) for chunks in said]
    return [sum(said[stage::pp]) for stage in range(pp)] if len(said) == pp * vpp else said


def _with_ends(row: Row, pp: int, layers: int) -> list[int] | None:
    """Layers per stage where the notes count the embedding and the head as one each."""
    said = re.search(r"including embedding and head: \[([\d, ]+)\]", str(row["stack"].get("notes")))
    if said is None:
        return None
    counts = [int(n) for n in said[1].split(",")]
    counts[0], counts[-1] = counts[0] - 1, counts[-1] - 1
    return counts if len(counts) == pp and sum(counts) == layers else None


def _balanced(scenario: Scenario, rows: Strategies) -> Assignment:
    """Stages of equal computation, as its source balances them: sends do not count [Yeung24]."""
    seconds = replace(row_seconds(rows, scenario), send=np.zeros(1))
    problem = problem_of(rows, seconds, row_bytes(rows, scenario), scenario)
    found = solve(replace(problem, memory_limit=math.inf, uneven=True))
    return assignment_of(found, rows, scenario)


def _need(plan: Row, field: str) -> Any:
    value = plan.get(field)
    if value is None:
        raise Unpriceable(f"{field} is not stated")
    return value
