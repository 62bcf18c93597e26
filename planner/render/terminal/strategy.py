"""A strategy in rows: what a launcher calls each choice, and what it means in a few words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from planner.answer.plan import Stage, Strategy
from planner.answer.text import layers_per_stage, plural, stages_of_layers

Row = tuple[str, str]
"""A choice and its meaning."""

_SHARDED: Final = ("", "optimizer states", "optimizer states and gradients", "states, gradients and weights")
_CONTEXT: Final[Mapping[str, str]] = {
    "p2p": "passed around a ring",
    "a2a": "exchanged for attention heads",
    "all-gather": "keys and values gathered",
    "a2a+p2p": "exchanged for heads, then passed around a ring",
}
_OFFLOADED: Final[Mapping[str, str]] = {
    "activations": "activations wait in the host's memory",
    "optimizer": "the optimizer runs in the host's memory",
    "optimizer+parameters": "optimizer and weights live in the host's memory",
}


def strategy_rows(strategy: Strategy) -> list[Row]:
    """Every choice of a strategy, the degrees first; those that change nothing are left out."""
    return [*_degrees(strategy), *_switches(strategy)]


def _degrees(strategy: Strategy) -> Iterator[Row]:
    s = strategy
    if s.tp > 1:
        yield f"TP {s.tp}", f"tensor parallel: every layer split over {s.tp} GPUs"
    if s.cp > 1:
        how = _CONTEXT.get(s.cp_kind, s.cp_kind)
        yield f"CP {s.cp} ({s.cp_kind})", f"context parallel: every sequence split over {s.cp} GPUs, {how}"
    if s.pp > 1:
        chunks, vpp = (f", {s.vpp} chunks", f" VPP {s.vpp}") if s.vpp > 1 else ("", "")
        schedule = s.schedule.replace("1f1b", "1F1B").replace("-", " ")
        yield f"PP {s.pp}{vpp}", f"pipeline: {layers_per_stage(s)}{chunks}, {schedule}"
    else:
        yield "PP 1", f"no pipeline: {plural(s.stages[0].layers, 'layer')} on every GPU"
    copies = f"data parallel: {s.dp:,} copies, each with its own sequences"
    yield f"DP {s.dp}", copies if s.dp > 1 else "one copy of the model"
    if s.ep > 1:
        tensor = f", each split over {s.etp} (ETP)" if s.etp > 1 else ""
        yield f"EP {s.ep}", f"expert parallel: the experts spread over {s.ep} GPUs{tensor}"


def _switches(strategy: Strategy) -> Iterator[Row]:
    s, again = strategy, recomputation(strategy)
    size, times = s.micro_batch_size, s.num_microbatches
    yield (
        f"micro-batch {size} x {times}",
        f"{plural(size, 'sequence')} at a time, {'once' if times == 1 else f'{times:,} times'} an iteration",
    )
    if s.zero_stage:
        whole = s.sharding_degree in {1, s.dp * s.cp}
        over = "the copies" if whole and s.dp > 1 else f"{s.dp * s.cp if whole else s.sharding_degree} ranks"
        alone = "one rank holds all; the stage says what may move to the host"
        yield f"ZeRO-{s.zero_stage}", f"{_SHARDED[s.zero_stage]} split over {over}" if s.dp * s.cp > 1 else alone
    elif s.dp * s.cp > 1:
        yield "no ZeRO", "every copy holds all optimizer states"
    if s.sequence_parallel:
        yield "sequence parallel", "norms and dropout split over the tensor ranks too"
    elif s.tp > 1:
        yield "no sequence parallel", "norms and dropout repeated on every tensor rank"
    if again == "none":
        yield "no recomputation", "activations wait for the backward pass"
    elif s.recompute_modules:
        yield "recompute", f"{', '.join(s.recompute_modules)}: run again in the backward pass"
    else:
        yield f"recompute {again}", "runs again in the backward pass, to save memory"
    if s.offload != "none":
        yield f"offload {s.offload}", _OFFLOADED.get(s.offload, "kept in the host's memory")
    if sum(degree > 1 for degree in (s.tp, s.cp, s.pp, s.dp)) > 1:
        yield "rank order", f"{s.rank_order}: the first-named are neighbours"
    if s.vocabulary == "spread":
        yield "spread vocabulary", "embedding and head split over all stages"


def recomputation(strategy: Strategy) -> str:
    """What is recomputed: its kind, or how many layers where it is some of them."""
    layers = sum(stage.recompute_layers for stage in strategy.stages)
    if layers == 0:
        return "+".join(strategy.recompute_modules) or strategy.recompute
    every = sum(stage.layers for stage in strategy.stages)
    together = f" by {strategy.recompute_num_layers} layers" if strategy.recompute_num_layers > 1 else ""
    return f"full{together}" if layers == every else f"{layers}/{every} layers"


def along_the_pipeline(strategy: Strategy) -> list[Row]:
    """The node groups from the first stage to the last, where there are several, with their GPUs and what differs."""
    if len({stage.group for stage in strategy.stages}) < 2:
        return []
    rows, start = [], 0
    for name, run in groupby(strategy.stages, key=lambda stage: stage.group):
        stages = list(run)
        end = start + len(stages) - 1
        where = f"stage {start}" if start == end else f"stages {start} to {end}"
        gpus = sum((one.tp or strategy.tp) * strategy.cp * (one.dp or strategy.dp) for one in stages)
        parts = [where, _layers(stages), plural(gpus, "GPU"), *_degrees_of(stages[0])]
        if again := sum(stage.recompute_layers for stage in stages):
            parts.append(f"{again} recomputed")
        rows.append((name, ", ".join(parts)))
        start = end + 1
    return rows


def _layers(stages: Sequence[Stage]) -> str:
    """The layers of some stages: "12 layers each", "layers per stage 11, 12"."""
    counts = [stage.layers for stage in stages]
    if len(set(counts)) > 1:
        return stages_of_layers(counts)
    return f"{plural(counts[0], 'layer')}{' each' if len(counts) > 1 else ''}"


def _degrees_of(stage: Stage) -> list[str]:
    """The degrees of a stage that are not those of every stage."""
    known = (("TP", stage.tp), ("DP", stage.dp), ("micro-batch", stage.micro_batch_size))
    return [f"{name} {value}" for name, value in known if value is not None]
