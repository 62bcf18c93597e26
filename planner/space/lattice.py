"""The lattice of strategies: every combination of the axes, refused by rules before anything is priced.

The lattice is a mesh of small axes (layouts, chunks, micro-batches, switches, sharding); what rules leave of it is
materialised as rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.recompute_modules import preset_masks
from costmodels.names import CP_KINDS, RANK_ORDERS, SCHEDULE_NAMES, SHARDED_GRADIENTS, VOCABULARIES, Recompute
from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Bools, Floats, Ints, Strategies, narrow, strategies
from planner.answer.text import plural
from planner.errors import BadRequest, UnfilledPins
from planner.request.budget import Budget
from planner.request.pins import Pin
from planner.rules.conditions import FOLDED, LOOPED, fills
from planner.rules.divisors import around, divisors
from planner.space.active_rules import active
from planner.space.divisors import nearest_degrees
from planner.space.sharding import SHARDING, by_option, sharding_domains
from planner.space.table import Columns, Refusal, Table

LARGEST_MICRO_BATCH = 64
LONG_SEQUENCE = 8192
"""Tokens from which every kind of context parallelism is searched."""

MESH_AXES = ("tp", "cp", "pp", "dp")
LAYER = frozenset({*MESH_AXES, "ep", "etp", "cp_kind", "micro_batch_size", "sequence_parallel"})
"""Axes that decide what a layer costs which nothing recomputes."""
PASSES = LAYER | {"vpp", "schedule"}
"""Those, and what decides in which order passes of micro-batches run."""
OUTLINE = (*MESH_AXES, "vpp", "schedule", "recompute")
"""Axes that the scope of a proof and the obvious other choices depend on."""
WIDE = 1 << 17
"""Rows that are bounded at a time before they are laid out further."""


@dataclass(frozen=True)
class Space:
    """All strategies considered, those that pass every rule but memory as cores x sharding options.

    ``cores`` are rows without sharding; ``allowed[c, z]`` says whether core c may take option z, which is
    ZeRO stage ``zero_stage[z]`` over ``degree[layout[c], z]`` ranks: what sharding depends on, few cores differ in.
    """

    candidates: int
    cores: Strategies
    zero_stage: Ints
    layout: Ints
    degree: Ints
    allowed: Bools
    refusals: tuple[Refusal, ...]
    below: float = field(default=math.inf, kw_only=True)
    """Seconds of an iteration, or bytes, that no core needs less of which was left out; infinite where none was."""
    sampled: bool = field(default=False, kw_only=True)
    """Whether it is some cores alone, as a time limit ended the laying out of the others."""
    outline: Strategies | None = field(default=None, kw_only=True)
    """What cores there are of the axes of `OUTLINE`, those left out among them, where any were."""

    def among(self, cores: Ints) -> Self:
        """The given cores alone."""
        return replace(self, cores=self.cores.take(cores), layout=self.layout[cores], allowed=self.allowed[cores])

    def same(self, other: Space) -> bool:
        """Whether both have the same strategies in the same order, whatever rules and pins left them."""
        if self.allowed.shape != other.allowed.shape or self.outline is not None or other.outline is not None:
            return False
        mine, its = ((one.allowed, one.layout, one.degree, one.zero_stage) for one in (self, other))
        columns = ((getattr(self.cores, name), getattr(other.cores, name)) for name in AXES)
        return all(np.array_equal(one, another) for one, another in (*zip(mine, its, strict=True), *columns))

    def rows(self, core: Ints, option: Ints) -> Strategies:
        """The strategies of (core, option) pairs, arrays of equal length."""
        taken, degree = self.cores.take(core), self.degree[self.layout[core], option]
        columns = {name: getattr(taken, name) for name in AXES if name not in SHARDING}
        return Strategies(**columns, zero_stage=self.zero_stage[option], sharding_degree=degree)


Likely = Callable[[Strategies], Bools]
"""Which rows are worth laying out further, (N,), by the axes of `LAYER`; the others have their neutral value."""


@dataclass(frozen=True)
class Begun:
    """A lattice that is laid out as far as the axes of `PASSES`, or of `LAYER`, or a little further."""

    table: Table
    rest: tuple[tuple[str, Ints], ...]
    """The axes to come with their values."""
    kinds: Ints
    """Kinds of recomputation asked for."""
    options: Ints
    """Pairs of ZeRO stage and degree, (Z, 2)."""
    candidates: int

    def each(self, find: Callable[[Strategies], NDArray[Any]]) -> NDArray[Any]:
        """What is found of every row, (N,), by the axes of `PASSES`; what is not laid out has its neutral value.

        Few rows at a time need little memory.
        """
        starts = range(0, max(len(self.table), 1), WIDE)
        return np.concatenate([find(self._rows(slice(start, start + WIDE))) for start in starts])

    def _rows(self, part: slice) -> Strategies:
        table = self.table.part(part)
        known = {name: table.shared[name] for name in PASSES & set(table.shared)}
        return strategies(**known, num_microbatches=_micro_batches(table))

    def further(self, axes: frozenset[str]) -> Begun:
        """The lattice laid out as far as the given axes."""
        table, rest = self.table.part(slice(None)), list(self.rest)
        while not set(table.shared) >= axes:
            table.expand(*rest.pop(0))
        return replace(self, table=table, rest=tuple(rest))

    def among(self, rows: Ints) -> Begun:
        """The given rows alone; counts and refusals are then of no use."""
        return replace(self, table=self.table.part(rows))

    def finish(self, rows: Ints | slice = slice(None)) -> Space:
        """All strategies of the given rows."""
        return self._finish(self.table.part(rows))

    def finish_near(self, likely: Ints, bound: Callable[[Strategies], Floats], below: float) -> tuple[Space, Floats]:
        """The strategies of ``likely`` rows whose cores' ``bound`` is below so many seconds or bytes, and it.

        All are counted; the others cannot need less.
        """
        late = {axis for axis, _ in self.rest} | SHARDING
        read = {name for rule in self.table.rules if late.intersection(rule.reads) for name in rule.reads}
        counted = self._finish(self.table.alike((read | set(OUTLINE)) & set(self.table.shared)))
        space = self.finish(likely)
        self.table.check_time()
        seconds = bound(space.cores)
        near = np.flatnonzero(seconds < below)
        some = replace(
            space.among(near),
            candidates=counted.candidates,
            refusals=counted.refusals,
            outline=counted.cores.distinct(*OUTLINE)[0],
            below=below,
        )
        return some, seconds[near]

    def _finish(self, table: Table) -> Space:
        for axis, values in self.rest:
            table.expand(axis, values)
        candidates = self.candidates + add_partial(table, self.kinds, self.options)
        table.check_budget(len(table))
        return _with_sharding(table, self.options, candidates)


def build(
    scenario: Scenario,
    pins: Mapping[str, Pin],
    *,
    without: str = "",
    budget: Budget | None = None,
) -> Space:
    """Lay out the lattice under the pins and apply every rule but memory, and but the one that it is asked ``without``.

    Of one node group only a time limit of the ``budget`` ends this, whose effort is counted where cores are bounded.

    Raises:
        BadRequest: pinned degrees that cannot make up the number of GPUs.
        OutOfTime: the time limit passed.
    """
    return begin(scenario, pins, without=without, budget=budget).finish()


def begin(
    scenario: Scenario,
    pins: Mapping[str, Pin],
    *,
    without: str = "",
    budget: Budget | None = None,
    layer_first: bool = False,
) -> Begun:
    """The lattice as far as the axes of `PASSES`, or of `LAYER` with ``layer_first``; the rest as of `build`."""
    axes = axes_of(scenario, pins)
    columns: Columns = {name: narrow(column) for name, column in layouts(scenario.gpus, pins).items()}
    options = axes.pop("sharding")
    rules = tuple(rule for rule in active(scenario, frozenset(pins)) if rule.name != without)
    beyond = math.prod(len(values) for values in axes.values()) * len(options)
    table = Table((scenario,), rules, columns, beyond, budget=budget if budget and budget.timed else None)
    candidates = len(table) * beyond
    table.refuse(MESH_AXES)
    # Axes of one value first: they multiply nothing, and let rules speak while there are few rows.
    few = [(axis, narrow(values)) for axis, values in axes.items()]
    ordered = sorted(few, key=lambda item: (len(item[1]) > 1, layer_first and item[0] not in LAYER))
    begun = Begun(table, tuple(ordered), axes["recompute"], options, candidates)
    return begun.further(LAYER if layer_first else PASSES)


def add_partial(table: Table, kinds: Ints, sharding: Ints) -> int:
    """Add rows that recompute some layers once more as none or full; how many strategies that adds.

    What recomputes some layers may come to none or to all, and is then priced as that (``effective_recompute``). Where
    that is another price and the ``kinds`` of recomputation asked for leave it out, it is laid out too. ``sharding``
    holds the pairs of stage and degree.
    """
    recompute = table.shared["recompute"]
    rows, found = [np.arange(len(table))], [recompute]
    some, filling = recompute == Recompute.PARTIAL, fills(table.shared)
    hiding = filling | (sharding[:, 0].max() >= SHARDED_GRADIENTS)
    for kind, another in ((Recompute.NONE, filling), (Recompute.FULL, hiding)):
        if kind not in kinds:
            rows.append(np.flatnonzero(some & another))
            found.append(np.full(len(rows[-1]), int(kind), dtype=recompute.dtype))
    added = sum(table.count(some) for some in rows[1:])
    if added:
        table.keep(np.concatenate(rows))
        table.shared["recompute"] = np.concatenate(found)
    return added * len(sharding)


def axes_of(scenario: Scenario, pins: Mapping[str, Pin]) -> dict[str, NDArray[Any]]:
    """The values of every axis but the layout, under the pins; "sharding" holds pairs of stage and degree."""
    model, stack = scenario.model, scenario.stack
    places = [model.num_layers + ends for ends in range(3 if stack.supports.ends_as_layers else 1)]
    chunks = {d for count in places for d in divisors(count) if d <= count // 2}
    usual: dict[str, list[int]] = {
        "cp_kind": sorted({0, *(CP_KINDS.index(kind) for kind in context_kinds(scenario))}),
        "micro_batch_size": [d for d in divisors(scenario.global_batch_size) if d <= LARGEST_MICRO_BATCH],
        "vpp": sorted({1, *_chunks(stack.supports.schedules, chunks)}),
        "schedule": [SCHEDULE_NAMES.index(name) for name in stack.supports.schedules],
        "sequence_parallel": [0, 1],
        "ep": divisors(model.moe.num_experts) if model.moe else [1],
        "etp": [1, 2, 4, 8] if model.moe else [1],
        "offload": [0],
        "recompute": list(Recompute),
        "recompute_modules": [0, *preset_masks(model, stack)],
        "rank_order": [RANK_ORDERS.index(order) for order in stack.supports.rank_orders],
        "vocabulary": [VOCABULARIES.index(place) for place in stack.supports.vocabulary],
        "recompute_num_layers": divisors(model.num_layers) if "recompute_num_layers" in pins else [1],
    }
    axes = {name: np.array(_restrict(pins, name, values), dtype=np.int64) for name, values in usual.items()}
    axes["sharding"] = _sharding_options(scenario, pins)
    return axes


def _chunks(schedules: tuple[str, ...], chunks: set[int]) -> set[int]:
    """Chunks per stage that some schedule can have: any number in a loop, two in a V."""
    if set(schedules) & set(LOOPED):
        return chunks
    return chunks & {2} if set(schedules) & set(FOLDED) else set()


def context_kinds(scenario: Scenario) -> tuple[str, ...]:
    """Kinds of context parallelism that are searched: all of the stack's for long sequences, else its usual one.

    A short sequence is hardly worth splitting, however its parts are exchanged; any other kind can be pinned. Where
    windows keep keys from going round a ring, all kinds are searched.
    """
    kinds = scenario.stack.supports.cp_kinds
    short = scenario.seq_length < LONG_SEQUENCE and scenario.model.sliding_window is None
    return kinds[:1] if short else kinds


def _restrict(pins: Mapping[str, Pin], axis: str, usual: list[int]) -> tuple[int, ...]:
    if axis not in pins:
        return tuple(usual)
    values = pins[axis].restrict(usual)
    if not values:
        raise BadRequest(f"{axis}: no possible value lies in that range; {_few(usual)} work")
    return values


def _few(values: list[int]) -> str:
    shown = ", ".join(map(str, values[:8]))
    return shown if len(values) <= 8 else f"{shown} ... {values[-1]}"


def _sharding_options(scenario: Scenario, pins: Mapping[str, Pin]) -> NDArray[np.int64]:
    """(stage, degree) pairs; degree 0 stands for all data and context ranks, -D for those within D devices."""
    stages = _restrict(pins, "zero_stage", list(scenario.stack.supports.zero_stages))
    asked, usual = None, {stage: (0, *(-domain for domain in sharding_domains(scenario, stage))) for stage in stages}
    if "sharding_degree" in pins:
        asked = pins["sharding_degree"].values or tuple(pins["sharding_degree"].restrict(divisors(scenario.gpus)))
    whole = (1,) if asked is None or 1 in asked else ()
    pairs = [(stage, degree) for stage in stages for degree in ((asked or usual[stage]) if stage else whole)]
    if not pairs:
        raise BadRequest("ZeRO stage 0 has sharding degree 1; drop the pinned degree or allow another stage")
    return np.array(pairs, dtype=np.int64)


def layouts(gpus: int, pins: Mapping[str, Pin], *, of: str = "") -> dict[str, Ints]:
    """Every ordered factorisation tp x cp x pp x dp of the GPUs that the pins allow, columns (A,).

    ``of`` names the node group, where there are several.
    """
    options = {}
    whole, said = divisors(gpus), f"the {gpus} GPUs of {of}" if of else plural(gpus, "GPU")
    for name in MESH_AXES:
        wanted = pins[name].restrict(whole) if name in pins else tuple(whole)
        options[name] = np.array([d for d in wanted if gpus % d == 0], dtype=np.int64)
        if not len(options[name]):
            asked = ", ".join(map(str, wanted[:4])) or "the range"
            raise UnfilledPins(f"{name} {asked} does not divide {said}; {around(whole, wanted[0] if wanted else 1)}")
    columns = {"tp": options["tp"], "dp": gpus // options["tp"]}
    for name in ("cp", "pp"):
        columns = _divide(columns, name, options[name])
    kept = np.isin(columns["dp"], options["dp"])
    if not kept.any():
        mine = {name: pins[name] for name in MESH_AXES if name in pins}
        pinned = ", ".join(f"{name} {shown(pin)}" for name, pin in mine.items())
        stages = "" if of else f": tp x cp x pp x dp must equal {gpus}"
        near = nearest_degrees(layouts(gpus, {}), mine)
        raise UnfilledPins(f"{pinned} does not fit {said}{stages}; {near} does")
    return {name: column[kept] for name, column in columns.items()}


def _divide(columns: dict[str, Ints], name: str, options: Ints) -> dict[str, Ints]:
    """The rows times one more degree, which is taken out of what is left for data parallelism."""
    row, option = np.nonzero(columns["dp"][:, None] % options[None, :] == 0)
    grown = {axis: column[row] for axis, column in columns.items()}
    return {**grown, name: options[option], "dp": grown["dp"] // options[option]}


def shown(pin: Pin) -> str:
    """A pin as it is written."""
    return ",".join(map(str, pin.values)) if pin.values else pin.span()


def _micro_batches(table: Table) -> Ints:
    dp, each = (table.shared[name].astype(np.int64) for name in ("dp", "micro_batch_size"))
    return table.parts[0].global_batch_size // (dp * each)


def _with_sharding(table: Table, options: Ints, candidates: int) -> Space:
    (scenario,), columns = table.parts, table.shared
    cores = strategies(**columns, num_microbatches=_micro_batches(table))
    late = [rule for rule in table.rules if set(rule.reads) & SHARDING]
    reads = dict.fromkeys((*MESH_AXES, *(axis for rule in late for axis in rule.reads if axis not in SHARDING)))
    table.check_time()
    layouts, layout = cores.distinct(*reads)
    layouts = layouts.take(slice(None))  # whose own combinations are found among fewer rows than those of the cores
    table.check_time()
    some, which = by_option(layouts, SHARDING, options)
    wide = some | {name: getattr(layouts, name)[:, None] for name in reads}
    wide["sharding_degree"] = some["sharding_degree"][which]
    allowed = np.ones((len(layouts), len(options)), dtype=bool)
    times = np.bincount(layout, table.times, minlength=len(layouts))
    for rule in late:
        table.check_time()
        some, which = by_option(layouts, rule.reads, options)
        passed = np.asarray(rule.passes(some, scenario))
        if not passed.all():
            failed = allowed & ~np.broadcast_to(passed, np.broadcast_shapes(*map(np.shape, some.values())))[which]
            table.note_options(rule, failed, wide, 0, times)
            allowed &= ~failed
    return Space(
        candidates=candidates,
        cores=cores,
        zero_stage=options[:, 0],
        layout=layout,
        degree=wide["sharding_degree"],
        allowed=allowed[layout],
        refusals=tuple(table.refusals),
    )
