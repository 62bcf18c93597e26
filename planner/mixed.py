"""The three questions where a cluster has several node groups: what ``api`` answers for one, for all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodels.groups import Mixed, MixedRows, mixed_quote
from costmodels.pricing import Assignment, Quote, row_assignment
from costmodels.strategy import AXES, strategies
from planner.assemble import memory_records, prediction_record, provenance_record, request_record, strategy_record
from planner.branches import WIDTH, MixedSpace, build
from planner.document import Advice, Plan, Proof, Rejection, Stage, StageMemory, Strategy
from planner.errors import BadRequest, OutOfTime
from planner.mixed_explain import alternatives, what_helps, why_not_lines
from planner.mixed_search import Branches, MixedIncumbent, MixedOutcome, best_split, given_split, price, search
from planner.nearest import NEAREST_SECONDS
from planner.pins import Pin, parse_pins
from planner.request import Resolved
from planner.rules import GROUP_RULES, RULES, sentence
from planner.space import around, divisors
from planner.verify import Verdict, verify_mixed

NEARLY_FULL = 0.95
"""Share of the usable memory from which a plan is called tight."""

_PER_GROUP = ("tp", "dp", "micro_batch_size")
"""Axes that a predicted strategy may give for every group."""


def plan_mixed(resolved: Resolved, mixed: Mixed, started: float) -> Plan:
    """The fastest strategy over all node groups, proved fastest within the model.

    Every stage has as many ranks, as launchers ask for; only where no such strategy fits do widths differ.

    Raises:
        BadRequest: pinned degrees that cannot make up the groups.
        OutOfTime: the time limit passed before any plan was found.
    """
    pins, deadline = parse_pins(resolved.request.pins), started + resolved.request.time_limit
    space = build(mixed, pins)
    outcome = search(space, mixed, deadline=deadline)
    one_width = outcome.best is not None
    if not one_width and outcome.proved:
        wider = build(mixed, pins, one_width=False)
        found = search(wider, mixed, deadline=deadline)
        space, outcome = (wider, found) if found.best or not found.proved else (space, outcome)
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan within {resolved.request.time_limit:g} s; {outcome.priced} strategies were priced")
    if outcome.best is None:
        return _infeasible(resolved, mixed, space, outcome)
    return _found(resolved, mixed, space, outcome, started=started, one_width=one_width)


def _found(
    resolved: Resolved, mixed: Mixed, space: MixedSpace, outcome: MixedOutcome, *, started: float, one_width: bool
) -> Plan:
    assert outcome.best is not None
    best = outcome.best
    priced = mixed_quote(best.row, mixed, best.assignment)
    verdict = verify_mixed(best.row, best.assignment, priced, mixed)
    proof = _proof(space, outcome, verdict, started, one_width=one_width)
    return Plan(
        status="optimal" if outcome.proved else "feasible",
        alternatives=alternatives(outcome, resolved, mixed, resolved.request.top),
        why_not=why_not_lines(space, mixed, best),
        what_helps=what_helps(resolved, mixed, best, priced, one_width=one_width),
        warnings=(*_widths(best.row), *_warnings(priced, mixed, best.row, resolved)),
        rejected=_rejections(space, outcome),
        proof=proof,
        **_priced(resolved, mixed, best, priced),
    )


def _priced(resolved: Resolved, mixed: Mixed, best: MixedIncumbent, priced: Quote) -> dict[str, Any]:
    """What a found plan and a predicted one have in common."""
    lead = best.row.groups[int(best.row.order[0, 0])]
    return {
        "strategy": mixed_record(best.row, best.assignment, mixed),
        "prediction": prediction_record(resolved, priced.iteration, lead, best.assignment),
        "breakdown_seconds": priced.breakdown,
        "memory_bytes": _memory(priced, mixed, best.row),
        **_frame(resolved),
    }


def _frame(resolved: Resolved) -> dict[str, Any]:
    return {
        "request": request_record(resolved),
        "defaults": resolved.defaults,
        "provenance": provenance_record(resolved),
    }


def mixed_record(row: MixedRows, assignment: Assignment, mixed: Mixed) -> Strategy:
    """A strategy over groups: the degrees of its first stage, and at each stage those that differ between groups."""
    first = int(row.order[0, 0])
    whole = strategy_record(row.groups[first], assignment, mixed.scenarios[first])
    at = [group.row(0) for group in row.groups]
    apart = [name for name in (*_PER_GROUP, "sharding_degree") if len({one[name] for one in at}) > 1]
    stages = tuple(
        Stage(
            layers=stage.layers,
            recompute_layers=stage.recompute_layers,
            group=mixed.scenarios[group].group.name,
            **{name: int(at[group][name]) for name in apart},
        )
        for stage, group in zip(whole.stages, row.group_at()[0].tolist(), strict=True)
    )
    zero = max(one["zero_stage"] for one in at)
    degree = max(one["sharding_degree"] for one in at) if zero and not at[first]["zero_stage"] else whole.sharding_degree
    return whole.model_copy(update={"stages": stages, "zero_stage": zero, "sharding_degree": degree})


def _memory(priced: Quote, mixed: Mixed, row: MixedRows) -> tuple[StageMemory, ...]:
    """The footprint of every stage against its own group's device."""
    limits = _limits(mixed, row)
    records = memory_records(priced, mixed.scenarios[0])
    return tuple(one.model_copy(update={"limit": float(limits[one.stage])}) for one in records)


def _limits(mixed: Mixed, row: MixedRows) -> np.ndarray[Any, np.dtype[np.float64]]:
    usable = np.array([one.group.accelerator.usable_memory for one in mixed.scenarios])
    return usable[row.group_at()[0]]


def _proof(
    space: MixedSpace, outcome: MixedOutcome, verdict: Verdict, started: float, *, one_width: bool
) -> Proof:
    assert outcome.best is not None
    value = outcome.best.iteration
    bound = value if outcome.proved else min(outcome.lower_bound, value)
    gap = (value - bound) / value
    among = " with as many ranks on every stage" if one_width else ""
    said = f"none{among} can beat {value:.4g} s" if outcome.proved else f"proved within {gap:.1%}"
    return Proof(
        candidates=space.candidates,
        feasible=outcome.feasible,
        priced=outcome.priced,
        solves=outcome.solves,
        lower_bound_seconds=bound,
        gap=gap,
        wall_seconds=time.perf_counter() - started,
        simulated_pipeline_seconds=verdict.simulated,
        closed_form_pipeline_seconds=verdict.closed_form,
        statement=said,
    )


def _widths(row: MixedRows) -> tuple[str, ...]:
    ranks = {int(group.tp[0] * group.cp[0] * group.dp[0]) for group in row.groups}
    if len(ranks) == 1:
        return ()
    shown = " and ".join(map(str, sorted(ranks)))
    return (f"stages have {shown} ranks, so that tp x cp x pp x dp is not the number of GPUs; few launchers do that",)


def _warnings(priced: Quote, mixed: Mixed, row: MixedRows, resolved: Resolved) -> tuple[str, ...]:
    share = priced.footprint.total / _limits(mixed, row)
    stage = int(np.argmax(share))
    if share[stage] <= NEARLY_FULL or resolved.request.memory_margin:
        return ()
    return (f"stage {stage} fills {share[stage]:.1%} of the usable memory; leave room with --memory-margin 10%",)


def _rejections(space: MixedSpace, outcome: MixedOutcome) -> tuple[Rejection, ...]:
    rows = [Rejection(rule=r.rule, count=r.count, example=r.example) for r in space.refusals]
    if outcome.memory_refused:
        example = f"{outcome.memory_refused:,} of {outcome.priced:,} branches fit the groups' memory under no split"
        rows.append(Rejection(rule="memory", count=outcome.memory_refused, example=example))
    return tuple(rows)


def _infeasible(resolved: Resolved, mixed: Mixed, space: MixedSpace, outcome: MixedOutcome) -> Plan:
    kinds = {rule.name for rule in (*GROUP_RULES, *RULES) if rule.kind != "dominated"}
    found = _rejections(space, outcome)
    known = tuple(reversed([one for one in found if one.rule in kinds and one.rule != "memory"]))
    memory = tuple(one for one in found if one.rule == "memory")
    return Plan(
        status="infeasible",
        fits=False,
        rejected=memory + known or found,
        nearest=_nearest(resolved, mixed),
        **_frame(resolved),
    )


def _nearest(resolved: Resolved, mixed: Mixed) -> Advice | None:
    """The same request without its pins."""
    deadline = time.perf_counter() + min(NEAREST_SECONDS, resolved.request.time_limit)
    if not parse_pins(resolved.request.pins):
        return None
    best = search(build(mixed, {}, one_width=False), mixed, deadline=deadline).best
    if best is None:
        return None
    words = "; ".join(
        f"{one.group.name} " + " ".join(f"{name} {int(getattr(group, name)[0])}" for name in ("tp", "cp", "dp"))
        for one, group in zip(mixed.scenarios, best.row.groups, strict=True)
    )
    return Advice(subject="without the pins", text=f"{words}, pp {int(best.row.pp[0])}", iteration_seconds=best.iteration)


def predict_mixed(resolved: Resolved, mixed: Mixed, layers: Sequence[int] | None) -> Plan:
    """Price one given strategy in the best order of the groups, or in the cluster's where the layers are given.

    Raises:
        BadRequest: an axis with several values that are not one for each group, or degrees that do not fit.
    """
    row = _given(resolved, mixed)
    broken = _broken(row, mixed)
    if broken:
        return Plan(status="infeasible", fits=False, rejected=broken, **_frame(resolved))
    best, fits = _best_order(resolved, mixed, row, layers)
    priced = mixed_quote(best.row, mixed, best.assignment)
    warnings = (*_widths(best.row), *_warnings(priced, mixed, best.row, resolved)) if fits else ()
    return Plan(
        status="feasible" if fits else "infeasible",
        fits=fits,
        warnings=warnings,
        rejected=() if fits else (_too_big(priced, mixed, best.row),),
        **_priced(resolved, mixed, best, priced),
    )


def _too_big(priced: Quote, mixed: Mixed, row: MixedRows) -> Rejection:
    limits = _limits(mixed, row)
    stage = int(np.argmax(priced.footprint.total / limits))
    needed, name = priced.footprint.total[stage], mixed.scenarios[int(row.group_at()[0, stage])].group.name
    words = f"stage {stage} on {name} needs {needed / 2**30:.1f} GiB, {limits[stage] / 2**30:.1f} GiB available"
    return Rejection(rule="memory", count=1, example=words)


def _best_order(
    resolved: Resolved, mixed: Mixed, row: MixedRows, layers: Sequence[int] | None
) -> tuple[MixedIncumbent, bool]:
    """The strategy with its order and split, and whether it fits."""
    if layers is not None:
        one = price(row, mixed)
        split = given_split(one, mixed, _checked(layers, row, mixed))
    else:
        deadline = time.perf_counter() + resolved.request.time_limit
        orders = build_orders(row)
        found = [best for one in orders if (best := best_split(price(one, mixed), mixed, deadline=deadline))]
        if found:
            return min(found, key=lambda best: best.iteration), True
        one, split = price(row, mixed), row_assignment(row.groups[0], mixed.scenarios[0].model.num_layers)
    priced = mixed_quote(row, mixed, split)
    fits = bool((priced.footprint.total <= _limits(mixed, row) * (1 + 1e-9)).all())
    return MixedIncumbent(row, split, priced.iteration), fits


def build_orders(row: MixedRows) -> list[MixedRows]:
    """The same strategy with its groups in every order."""
    import itertools

    count = len(row.groups)
    return [replace(row, order=np.array([order])) for order in itertools.permutations(range(count))]


def _checked(layers: Sequence[int], row: MixedRows, mixed: Mixed) -> Sequence[int]:
    pp, total, vpp = int(row.pp[0]), mixed.scenarios[0].model.num_layers, int(row.groups[0].vpp[0])
    if len(layers) != pp:
        raise BadRequest(f"{len(layers)} stages are given layers, pp is {pp}")
    if sum(layers) != total:
        raise BadRequest(f"the stages hold {sum(layers)} layers, the model has {total}")
    if min(layers) < vpp:
        raise BadRequest(f"a stage holds {min(layers)} layers; each of its {vpp} chunks needs one")
    stack = mixed.scenarios[0].stack
    if len(set(layers)) > 1 and not stack.uneven_stages:
        raise BadRequest(f"stack {stack.name} needs even stages; {total // pp} layers each would be")
    return layers


def _broken(row: MixedRows, mixed: Mixed) -> tuple[Rejection, ...]:
    found: dict[str, Rejection] = {}
    width = np.sum([group.micro_batch_size * group.dp for group in row.groups[:1]], axis=0)
    for group, scenario in zip(row.groups, mixed.scenarios, strict=True):
        columns = {name: getattr(group, name) for name in AXES} | {"batch_width": width.astype(np.int64)}
        for rule in (*GROUP_RULES, *RULES):
            if rule.kind == "dominated" or rule.name in {WIDTH, *found}:
                continue
            if rule.name == "sharding" and group.dp[0] * group.cp[0] == 1:
                continue
            if not np.all(rule.passes(columns, scenario)):
                row_words = {name: column[0].item() for name, column in columns.items()}
                found[rule.name] = Rejection(rule=rule.name, count=1, example=sentence(rule, row_words, scenario))
    return tuple(found.values())


def _given(resolved: Resolved, mixed: Mixed) -> MixedRows:
    """The one strategy that the pins describe; unpinned axes take their plainest value."""
    axes = {name: pin for name, pin in parse_pins(resolved.request.pins).items() if name not in _PER_GROUP}
    known = {name: _one(pin) for name, pin in axes.items()}
    cp, count = known.get("cp", 1), len(mixed.scenarios)
    tp = _for_groups(resolved, "tp", count) or (1,) * count
    dp = _for_groups(resolved, "dp", count) or _replicas(mixed, tp, cp, known.get("pp"))
    stages = [_stages(one.gpus, one.group.name, t * cp * d) for one, t, d in zip(mixed.scenarios, tp, dp, strict=True)]
    if known.get("pp", sum(stages)) != sum(stages):
        raise BadRequest(f"pp {known['pp']} is not the {' + '.join(map(str, stages))} stages that tp, cp and dp leave")
    micro = _micro_batches(resolved, mixed, dp)
    return MixedRows(
        groups=tuple(
            strategies(**_columns(mixed, known, pp=sum(stages), tp=tp[g], dp=dp[g], cp=cp, micro=micro[g]))
            for g in range(count)
        ),
        stages=np.array([stages]),
        order=np.array([range(count)]),
    )


def _columns(mixed: Mixed, known: Mapping[str, int], *, pp: int, tp: int, dp: int, cp: int, micro: int) -> dict[str, int]:
    stack, batch = mixed.scenarios[0].stack, mixed.scenarios[0].global_batch_size
    vpp = known.get("vpp", 1)
    zero = known.get("zero_stage", int(1 in stack.zero_stages)) if dp * cp > 1 else 0
    return {
        **dict(tp=tp, cp=cp, pp=pp, vpp=vpp, dp=dp, ep=known.get("ep", 1), etp=known.get("etp", 1)),
        "zero_stage": zero,
        "sharding_degree": known.get("sharding_degree", dp * cp) if zero else 1,
        "micro_batch_size": micro,
        "num_microbatches": batch // (micro * dp),
        "schedule": known.get("schedule", 3 if vpp > 1 else 2),
        "sequence_parallel": known.get("sequence_parallel", int(stack.sequence_parallel)) if tp > 1 else 0,
        "recompute": known.get("recompute", 0),
        "rank_order": known.get("rank_order", 0),
    }


def _one(pin: Pin) -> int:
    if len(pin.values) != 1:
        raise BadRequest(f"{pin.axis}: one strategy is priced at a time; give a single value")
    return pin.values[0]


def _for_groups(resolved: Resolved, axis: str, count: int) -> tuple[int, ...] | None:
    """What a pin says of every group: one value for all, or one for each in the cluster's order."""
    given = resolved.request.pins.get(axis)
    if given is None or given == "":
        return None
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
    values = [_one(parse_pins({axis: part})[axis]) for part in parts]
    if len(values) not in {1, count}:
        raise BadRequest(f"{axis}: {len(values)} values for {count} node groups; give one, or one for each")
    return tuple(values * count if len(values) == 1 else values)


def _replicas(mixed: Mixed, tp: Sequence[int], cp: int, pp: int | None) -> tuple[int, ...]:
    """Replicas that use up every group: on stages of one width where pp is given, else on one stage a group."""
    gpus = [one.gpus for one in mixed.scenarios]
    if pp is None:
        return tuple(max(count // (t * cp), 1) for count, t in zip(gpus, tp, strict=True))
    common = divisors(math.gcd(*gpus))
    able = sorted(mixed.gpus // width for width in common)
    if mixed.gpus % pp or mixed.gpus // pp not in common:
        what = " + ".join(map(str, gpus))
        raise BadRequest(f"pp {pp} stages of one width cannot be made of {what} GPUs; {around(able, pp)}")
    width = mixed.gpus // pp
    if uneven := [t for t in tp if width % (t * cp)]:
        near = around(divisors(width), uneven[0] * cp)
        raise BadRequest(f"tp {uneven[0]} x cp {cp} does not divide the {width} ranks of a stage; {near}")
    return tuple(width // (t * cp) for t in tp)


def _stages(gpus: int, name: str, ranks: int) -> int:
    if gpus % ranks:
        near = around(divisors(gpus), ranks)
        raise BadRequest(f"tp x cp x dp = {ranks} ranks do not divide the {gpus} GPUs of {name}; {near}")
    return gpus // ranks


def _micro_batches(resolved: Resolved, mixed: Mixed, dp: Sequence[int]) -> tuple[int, ...]:
    """Sequences of every group's micro-batch: as many over all its replicas; one value is that of the most replicas."""
    batch, given = mixed.scenarios[0].global_batch_size, _for_groups(resolved, "micro_batch_size", len(dp))
    if given is None or len(set(given)) == 1:
        width = math.lcm(*dp) * (given[0] if given else 1)
        given = tuple(width // d for d in dp)
    widths = {b * d for b, d in zip(given, dp, strict=True)}
    if len(widths) > 1:
        said = ", ".join(f"{b} x {d}" for b, d in zip(given, dp, strict=True))
        raise BadRequest(f"micro-batch x dp must be the same sequences on every node group, got {said}")
    if batch % (width := widths.pop()):
        raise BadRequest(f"the {width} sequences of a micro-batch on all replicas do not divide the batch of {batch}")
    return given


__all__ = ["Branches", "mixed_record", "plan_mixed", "predict_mixed"]
