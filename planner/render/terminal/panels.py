"""The parts of the screen: what was asked, time per iteration, memory per stage, goodput, alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from planner.answer.plan import Alternative, Goodput, Plan, Stage, StageMemory, Strategy
from planner.answer.text import (
    column_seconds,
    format_count,
    format_days,
    format_dollars,
    format_gib,
    format_percent,
    format_prefixed,
    name_in,
    plural,
    short_seconds,
    three_digits,
)
from planner.render.terminal.bars import bar, flow
from planner.render.terminal.tables import unlined

TERMS: Final[Mapping[str, str]] = {
    "compute": "compute",
    "recompute": "recompute",
    "tp": "tp exposed",
    "cp": "cp exposed",
    "pp": "pp exposed",
    "ep": "ep exposed",
    "dp": "dp exposed",
    "bubble": "bubble",
    "optimizer": "optimizer",
    "host": "host",
    "straggler": "stragglers",
    "offload": "offload",
}
"""Terms of an iteration as they are called on the screen; other terms keep their name."""

_PARTS: Final = ("weights", "gradients", "optimizer", "activations", "logits", "slack", "reserved", "total")
_BAR: Final = 16
SIDE_BY_SIDE: Final = 90
"""Columns from which the two panels stand beside each other."""
WIDE: Final = 110
"""Columns from which the alternatives say in words what they differ in."""
_LEAST: Final = 5e-4
_COLUMNS: Final = ("", "TP", "CP", "PP", "DP", "EP", "VPP", "mb", "ZeRO", "recompute", "iteration", "MFU", "GiB")


def time_panel(plan: Plan, *, blocks: bool) -> Text:
    """Exposed seconds per term with their shares, the largest first, without those below 0.05 %."""
    total = sum(plan.breakdown_seconds.values()) or 1.0
    shares = {name: value / total for name, value in plan.breakdown_seconds.items()}
    large = sorted((name for name in shares if shares[name] >= _LEAST), key=lambda name: -shares[name])
    longest = max(shares.values(), default=0.0) or 1.0
    text = Text("Time per iteration", style="bold")
    for name in large:
        drawn = bar(shares[name] / longest, _BAR, blocks=blocks)
        time = column_seconds(plan.breakdown_seconds[name], longest * total)
        row = f"\n  {TERMS.get(name, name):<12}{time:>9}{format_percent(shares[name]):>8} "
        text.append(row, style="not bold").append(drawn, style="not bold cyan")
    return text


def memory_panel(stages: Sequence[StageMemory]) -> Text:
    """Memory of the busiest rank of the first, the worst inner and the last stage."""
    shown = _fullest_stages(stages)
    limits = {format_gib(stage.limit) for stage in stages}
    of = f" of {min(limits)}" if len(limits) == 1 else ""
    text = Text(f"Memory per GPU, GiB{of}", style="bold")
    text.append("\n" + _row("stage", [str(stage.stage) for stage in shown]), style="not bold")
    for part in _PARTS if len(limits) == 1 else (*_PARTS, "limit"):
        values = [getattr(stage, part) for stage in shown]
        if any(value >= 2**20 for value in values) or part == "total":
            style = "bold" if part == "total" else "not bold"
            text.append("\n" + _row(part, [format_gib(value) for value in values]), style=style)
    return text


def _row(name: str, cells: Sequence[str]) -> str:
    return f"  {name:<12}" + "".join(f"{cell:>8}" for cell in cells)


def _fullest_stages(stages: Sequence[StageMemory]) -> list[StageMemory]:
    inner = sorted(stages[1:-1], key=lambda stage: -stage.total)[:1]
    return [*stages[:1], *inner, *(stages[-1:] if len(stages) > 1 else ())]


def alternatives_table(plan: Plan, *, width: int) -> Table:
    """The runners-up below the winner; in what each differs where there is room, or where its columns do not tell.

    Those show the degrees of the first stage; other stages may have others, and node groups another order.
    """
    several = plan.strategy is not None and len({stage.group for stage in plan.strategy.stages}) > 1
    wide, gap = width >= WIDE or several, 2 if width >= SIDE_BY_SIDE else 1
    table = unlined(gap, collapse_padding=True)
    wall = plan.goodput if plan.request.get("objective") == "goodput" else None
    for name in (*_COLUMNS, *(["goodput"] if wall else [])):
        table.add_column(name, justify="left" if name == "recompute" else "right", overflow="fold")
    if wide:
        table.add_column("", overflow="fold", style="dim")
    if plan.strategy is not None and plan.prediction is not None and plan.memory_bytes:
        best = Alternative(
            strategy=plan.strategy,
            iteration_seconds=plan.prediction.iteration_seconds,
            mfu=plan.prediction.mfu,
            peak_memory_bytes=max(stage.total for stage in plan.memory_bytes),
            effective=wall.effective if wall else None,
            differs="",
        )
        table.add_row(*_cells(1, best), *_goodput(best), style="bold")
    for place, alternative in enumerate(plan.alternatives, start=2):
        table.add_row(*_cells(place, alternative), *_goodput(alternative), *([alternative.differs] if wide else []))
    return table


def _cells(place: int, alternative: Alternative) -> list[str]:
    strategy = alternative.strategy
    degrees = (strategy.tp, strategy.cp, strategy.pp, strategy.dp, strategy.ep, strategy.vpp, strategy.micro_batch_size)
    return [
        f"{place}{'=' if alternative.tied else ''}",
        *map(str, degrees),
        str(strategy.zero_stage),
        recomputation(strategy),
        short_seconds(alternative.iteration_seconds),
        format_percent(alternative.mfu),
        format_gib(alternative.peak_memory_bytes),
    ]


def _goodput(alternative: Alternative) -> list[str]:
    """Share of the wall time that trains, where that is what counts."""
    return [] if alternative.effective is None else [format_percent(alternative.effective)]


def recomputation(strategy: Strategy) -> str:
    """What is recomputed: its kind, or how many layers where it is some of them."""
    layers = sum(stage.recompute_layers for stage in strategy.stages)
    if layers == 0:
        return "+".join(strategy.recompute_modules) or strategy.recompute
    every = sum(stage.layers for stage in strategy.stages)
    together = f" by {strategy.recompute_num_layers} layers" if strategy.recompute_num_layers > 1 else ""
    return f"full{together}" if layers == every else f"{layers}/{every} layers"


def layers_per_stage(strategy: Strategy) -> str:
    """The split of layers in words: "12 layers per stage", "layers per stage 11, 6 x 12, 13"."""
    layers = [stage.layers for stage in strategy.stages]
    if len(set(layers)) == 1:
        return f"{plural(layers[0], 'layer')} per stage"
    return f"layers per stage {_runs(layers)}"


def along_the_pipeline(strategy: Strategy) -> list[str]:
    """The node groups from the first stage to the last, where there are several, each with what differs."""
    if len({stage.group for stage in strategy.stages}) < 2:
        return []
    lines, start = [], 0
    for name, run in groupby(strategy.stages, key=lambda stage: stage.group):
        stages = list(run)
        end = start + len(stages) - 1
        where = f"stage {start}" if start == end else f"stages {start} to {end}"
        parts = [f"{name}: {where}", f"layers {_runs([stage.layers for stage in stages])}", *_degrees_of(stages[0])]
        if again := sum(stage.recompute_layers for stage in stages):
            parts.append(f"{again} recomputed")
        lines.append("  " + "   ".join(parts))
        start = end + 1
    return lines


def _degrees_of(stage: Stage) -> list[str]:
    """The degrees of a stage that are not those of every stage."""
    known = (("TP", stage.tp), ("DP", stage.dp), ("micro-batch", stage.micro_batch_size))
    return [f"{name} {value}" for name, value in known if value is not None]


def _runs(values: Sequence[int]) -> str:
    counted = [(value, len(list(same))) for value, same in groupby(values)]
    return ", ".join(f"{count} x {value}" if count > 1 else str(value) for value, count in counted)


def model_facts(request: Mapping[str, Any]) -> list[str]:
    """Sizes of the model and of its training."""
    model = request.get("model")
    sizes = model if isinstance(model, Mapping) else {}
    asked = {"seq": "seq_length", "batch": "global_batch_size", "adapters": "adapters"}
    return [
        f"{format_count(sizes['parameters'])} parameters" if "parameters" in sizes else "",
        plural(sizes["num_layers"], "layer") if "num_layers" in sizes else "",
        *(f"{word} {request[name]}" for word, name in asked.items() if request.get(name)),
        str(request.get("precision") or ""),
        f"{format_count(request['tokens'])} tokens" if request.get("tokens") else "",
    ]


def machine_facts(request: Mapping[str, Any]) -> list[str]:
    """Nodes, devices and the software on them."""
    cluster = request.get("cluster")
    machines = cluster if isinstance(cluster, Mapping) else {}
    return [
        " + ".join(filter(None, map(_machines, machines.get("groups", [machines])))),
        plural(request["gpus"], "GPU") if "gpus" in request else "",
        _software(request.get("stack")),
    ]


def _software(stack: object) -> str:
    return f"stack {name_in(stack)}" + (", as you gave it" if isinstance(stack, Mapping) else "")


def _machines(group: Mapping[str, Any]) -> str:
    nodes, each = group.get("nodes"), group.get("gpus_per_node")
    held = f" within {group['power_limit']}" if "power_limit" in group else ""
    return f"{plural(nodes, 'node')} x {each} {group.get('accelerator', 'GPUs')}{held}" if nodes and each else ""


_LOSSES: Final = ("checkpoints", "failures", "repairs", "stragglers")


def goodput_lines(found: Goodput, width: int) -> str:
    """What is left of the wall time and why; how often, how long, how much."""
    often, every = found.mean_hours_between_failures, found.checkpoint_interval_seconds
    losses = [(name, getattr(found, name)) for name in _LOSSES]
    shares = [
        f"goodput     {format_percent(found.effective)}",
        *(f"{name} {format_percent(share)}" for name, share in losses if share >= _LEAST),
        f"{format_days(found.wall_days)} in all",
        format_dollars(found.wall_cost_dollars) if found.wall_cost_dollars is not None else "",
        f"{three_digits(energy)} MWh" if (energy := found.wall_energy_megawatt_hours) is not None else "",
    ]
    why = [
        "never interrupted" if often is None else f"interrupted every {short_seconds(often * 3600.0)}",
        f"back after {short_seconds(found.downtime_seconds)}" if often is not None else "",
        f"checkpoint of {format_prefixed(found.checkpoint_bytes)}B",
        "never written"
        if every is None
        else f"every {short_seconds(every)} ({plural(found.checkpoint_interval_iterations or 0, 'iteration')}), "
        f"stall {short_seconds(found.checkpoint_stall_seconds)}",
        _spares(found) if often is not None or found.spare_nodes else "",
    ]
    return flow(shares, width=width) + "\n" + flow(why, width=width, indent=14)


def _spares(found: Goodput) -> str:
    paid = f" for {format_dollars(found.spare_cost_dollars)}" if found.spare_cost_dollars else ""
    return plural(found.spare_nodes, "spare node") + paid
