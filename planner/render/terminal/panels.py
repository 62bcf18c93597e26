"""The parts of the screen: what was asked, time per iteration, memory per stage, goodput, alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from planner.answer.plan import Alternative, Goodput, Plan, Prediction, StageMemory
from planner.answer.text import (
    column_seconds,
    format_count,
    format_days,
    format_dollars,
    format_energy,
    format_gib,
    format_percent,
    format_prefixed,
    name_in,
    plural,
    short_seconds,
    three_digits,
)
from planner.render.terminal.bars import bar
from planner.render.terminal.strategy import recomputation
from planner.render.terminal.tables import unlined

TERMS: Final[Mapping[str, str]] = {
    "compute": "compute",
    "recompute": "recomputation",
    "tp": "tensor-parallel traffic",
    "cp": "context-parallel traffic",
    "pp": "pipeline transfers",
    "ep": "expert-parallel traffic",
    "dp": "data-parallel traffic",
    "bubble": "pipeline bubble (idle)",
    "optimizer": "optimizer step",
    "host": "host (kernel launches)",
    "straggler": "stragglers",
    "offload": "offload traffic",
}
"""Terms of an iteration as they are called on the screen; other terms keep their name."""
PARTS: Final[Mapping[str, str]] = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "logits": "logits",
    "slack": "fragmentation",
    "reserved": "context and buffers",
    "total": "total",
}
"""Parts of the memory, likewise."""

_BAR: Final = 16
WIDE: Final = 110
"""Columns from which the alternatives say in words what they differ in."""
_LEAST: Final = 5e-4
_SMALL: Final = 0.02
"""Share of an iteration below which terms are in_words together, unless all is asked for."""


def time_panel(plan: Plan, *, blocks: bool, whole: bool) -> Text:
    """Seconds per term with their shares, the largest first; small ones together unless the ``whole`` is wanted."""
    total = sum(plan.breakdown_seconds.values()) or 1.0
    large = {name: value for name, value in plan.breakdown_seconds.items() if value >= _SMALL * total}
    small = {name: value for name, value in plan.breakdown_seconds.items() if name not in large and value > 0.0}
    terms = {TERMS.get(name, name): value for name, value in (large | small if whole else large).items()}
    terms = dict(sorted(terms.items(), key=lambda term: -term[1]))
    if small and not whole:
        alone = next(iter(small))
        terms[TERMS.get(alone, alone) if len(small) == 1 else "all other terms"] = sum(small.values())
    longest = max(terms.values(), default=0.0) or 1.0
    hidden = "; traffic: what compute does not hide" if any(word.endswith("traffic") for word in terms) else ""
    text = Text("Time of an iteration", style="bold").append(hidden, style="not bold dim")
    for name, value in terms.items():
        if value < _LEAST * total:
            continue
        drawn = bar(value / longest, _BAR, blocks=blocks)
        row = f"\n  {name:<26}{column_seconds(value, longest):>9}{format_percent(value / total):>8} "
        text.append(row, style="not bold").append(drawn, style="not bold cyan")
    return text


def fullest_stage(stages: Sequence[StageMemory]) -> str:
    """Memory of the fullest device, and what it is made of."""
    stage = max(stages, key=lambda one: one.total / one.limit)
    where = f", in stage {stage.stage}" if len(stages) > 1 else ""
    share = format_percent(stage.total / stage.limit)
    full = f"{format_gib(stage.total)} of {format_gib(stage.limit)} GiB ({share}) on the fullest GPU{where}"
    parts = sorted(((getattr(stage, part), name) for part, name in PARTS.items() if part != "total"), reverse=True)
    return f"{full}: {', '.join(f'{name} {format_gib(value)}' for value, name in parts if value >= _SHOWN)}"


_SHOWN: Final = 0.05 * 2**30
"""Bytes that a tenth of a GiB shows."""


def memory_panel(stages: Sequence[StageMemory]) -> Text:
    """Memory of the busiest rank of the first, the worst inner and the last stage."""
    shown = _fullest_stages(stages)
    limits = {format_gib(stage.limit) for stage in stages}
    of = f" of {min(limits)}" if len(limits) == 1 else ""
    text = Text(f"Memory by stage, GiB{of} per GPU", style="bold")
    text.append("\n" + _row("stage", [str(stage.stage) for stage in shown]), style="not bold")
    for part, name in {**PARTS, **({} if len(limits) == 1 else {"limit": "usable"})}.items():
        values = [getattr(stage, part) for stage in shown]
        if any(value >= _SHOWN for value in values) or part == "total":
            style = "bold" if part == "total" else "not bold"
            text.append("\n" + _row(name, [format_gib(value) for value in values]), style=style)
    return text


def _row(name: str, cells: Sequence[str]) -> str:
    return f"  {name:<24}" + "".join(f"{cell:>8}" for cell in cells)


def _fullest_stages(stages: Sequence[StageMemory]) -> list[StageMemory]:
    inner = sorted(stages[1:-1], key=lambda stage: -stage.total)[:1]
    return [*stages[:1], *inner, *(stages[-1:] if len(stages) > 1 else ())]


def alternatives_table(plan: Plan, *, width: int, most: int) -> Table:
    """The plan and the first ``most`` runners-up; in what each differs where there is room, or columns do not tell.

    A choice that is 1 in all of them has no column. Columns do not tell what stages of several node groups have.
    """
    several = plan.strategy is not None and len({stage.group for stage in plan.strategy.stages}) > 1
    in_words, gap = width >= WIDE or several, 2 if width >= WIDE else 1
    rows = [*_the_plan(plan), *plan.alternatives[:most]]
    cells = [_cells(place, one) for place, one in enumerate(rows, start=1)]
    shown = [name for name in (cells[0] if cells else ()) if _told_by(name, cells, several=several)]
    table = unlined(gap, collapse_padding=True)
    for name in shown:
        text = name == "recompute"
        table.add_column(name, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    if in_words:
        table.add_column("in place of the first", overflow="fold")
    for row, one in zip(cells, rows, strict=True):
        style = "bold" if one is rows[0] and plan.strategy is not None else ""
        table.add_row(
            *(row[name] for name in shown), *([one.differs.replace("_", " ")] if in_words else []), style=style
        )
    return table


def _told_by(name: str, rows: Sequence[Mapping[str, str]], *, several: bool) -> bool:
    """Whether a column is of use: figures are, choices where they are not 1 in every row, or in_words in words."""
    if name in _CHOICES:
        return not several and (name in {"DP", "recompute"} or any(row[name] != "1" for row in rows))
    return True


_DEGREES: Final = ("TP", "CP", "PP", "VPP", "DP", "EP")
_CHOICES: Final = (*_DEGREES, "batch", "ZeRO", "recompute")


def _the_plan(plan: Plan) -> list[Alternative]:
    """The plan itself as the first of its runners-up."""
    if plan.strategy is None or plan.prediction is None or not plan.memory_bytes:
        return []
    wall = plan.goodput if plan.request.get("objective") == "goodput" else None
    best = Alternative(
        strategy=plan.strategy,
        iteration_seconds=plan.prediction.iteration_seconds,
        mfu=plan.prediction.mfu,
        peak_memory_bytes=max(stage.total for stage in plan.memory_bytes),
        effective=wall.effective if wall else None,
        differs="",
    )
    return [best]


def _cells(place: int, alternative: Alternative) -> dict[str, str]:
    """The cells of a row by their headings."""
    at = alternative.strategy
    wall = {} if alternative.effective is None else {"goodput": format_percent(alternative.effective)}
    return {
        "": f"{place}{'=' if alternative.tied else ''}",
        **{name: str(getattr(at, name.lower())) for name in _DEGREES},
        "batch": str(at.micro_batch_size),
        "ZeRO": str(at.zero_stage),
        "recompute": recomputation(at),
        "iteration": short_seconds(alternative.iteration_seconds),
        "MFU": format_percent(alternative.mfu),
        "GiB": format_gib(alternative.peak_memory_bytes),
        **wall,
    }


def model_facts(request: Mapping[str, Any]) -> list[str]:
    """Sizes of the model and of its training."""
    model = request.get("model")
    sizes = model if isinstance(model, Mapping) else {}
    asked = {"batch": "global_batch_size", "seq": "seq_length", "adapters": "adapters"}
    return [
        f"{format_count(sizes['parameters'])} parameters" if "parameters" in sizes else "",
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
    if not isinstance(stack, Mapping):
        return f"stack {name_in(stack)}"
    own = (stack.get("calibrated") or {}).get("own_runs")
    whose = f"fitted to {plural(own, 'run')} of yours" if own else "as you gave it"
    return f"stack {name_in(stack)}, {whose}"


def _machines(group: Mapping[str, Any]) -> str:
    nodes, each = group.get("nodes"), group.get("gpus_per_node")
    held = f" within {group['power_limit']}" if "power_limit" in group else ""
    return f"{plural(nodes, 'node')} x {each} {group.get('accelerator', 'GPUs')}{held}" if nodes and each else ""


_LOSSES: Final = ("checkpoints", "failures", "repairs", "stragglers")


def training_lines(found: Prediction, request: Mapping[str, Any]) -> list[str]:
    """How long the whole training takes undisturbed, what it costs, and how fast it goes."""
    model = request.get("model")
    windowed = isinstance(model, Mapping) and model.get("sliding_window") is not None
    attention = "attention within the window" if windowed else "full attention"
    cost = found.cost_dollars
    whole = [
        format_days(found.training_days),
        plural(found.iterations, "iteration"),
        format_dollars(cost) if cost is not None else "",
        f"{format_prefixed(found.gpu_hours)} GPU-hours",
        format_energy(found.energy_megawatt_hours),
    ]
    speed = [
        f"{format_prefixed(found.tokens_per_second)} tokens/s",
        f"{three_digits(found.model_tflops_per_gpu)} TFLOP/s per GPU",
        f"MFU {format_percent(found.mfu)} ({attention})",
        f"HFU {format_percent(found.hfu)} with recomputation" if found.hfu > found.mfu else "",
    ]
    return [", ".join(filter(None, parts)) for parts in (whole, speed)]


def goodput_lines(found: Goodput) -> list[str]:
    """What is left of the wall time and why; how often, how long, how much."""
    often, every = found.mean_hours_between_failures, found.checkpoint_interval_seconds
    losses = [(name, getattr(found, name)) for name in _LOSSES]
    shares = [
        f"{format_days(found.wall_days)} with interruptions",
        f"goodput {format_percent(found.effective)} of the time",
        format_dollars(found.wall_cost_dollars) if found.wall_cost_dollars is not None else "",
        format_energy(energy) if (energy := found.wall_energy_megawatt_hours) is not None else "",
    ]
    lost = [f"{name} {format_percent(share)}" for name, share in losses if share >= _LEAST]
    why = [
        "never interrupted" if often is None else f"interrupted every {short_seconds(often * 3600.0)}",
        f"back after {short_seconds(found.downtime_seconds)}" if often is not None else "",
        f"a checkpoint of {format_prefixed(found.checkpoint_bytes)}B "
        + (
            "never written"
            if every is None
            else f"every {short_seconds(every)} ({plural(found.checkpoint_interval_iterations or 0, 'iteration')}), "
            f"stall {short_seconds(found.checkpoint_stall_seconds)}"
        ),
        _spares(found) if often is not None or found.spare_nodes else "",
    ]
    shares += [f"lost to {', '.join(lost)}"] if lost else []
    return [", ".join(filter(None, parts)) for parts in (shares, why)]


def _spares(found: Goodput) -> str:
    paid = f" for {format_dollars(found.spare_cost_dollars)}" if found.spare_cost_dollars else ""
    return plural(found.spare_nodes, "spare node") + paid
