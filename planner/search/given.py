"""One strategy that somebody has in mind: its row, the rules that it breaks, its layers by stage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.layout.split import ENDS, Assignment, end_places, ends_of_cut, nearest_cut, odd_stage, places_of
from costmodels.layout.stage_contents import joined
from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.node_groups import as_it_runs
from costmodels.pricing import row_assignment
from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Strategies, strategies
from planner.answer.plan import Rejection
from planner.answer.text import plural
from planner.errors import BadRequest, UnfilledPins
from planner.request.budget import Budget
from planner.request.pins import Pin, shown_value
from planner.request.resolve import Resolved
from planner.rules.conditions import FOLDED, gradients_accumulate
from planner.rules.core import Rule, sentence
from planner.rules.divisors import nearest_divisor, nearest_multiple
from planner.search.least_memory import least_memory_split
from planner.search.plain_strategy import plain_strategy
from planner.search.split import best_split, given_split
from planner.space.active_rules import binding
from planner.space.divisors import nearest_degrees
from planner.space.lattice import layouts
from planner.stages.from_strategies import fewest_layers, framework_split, own_split

CHUNKS = "chunks"
"""The rule that every chunk has a layer."""


@dataclass(frozen=True)
class Given:
    """One strategy that is priced as it was given, and the rules that it breaks."""

    row: Strategies
    split: Assignment
    broken: tuple[Rejection, ...]
    meant: str = ""
    """What was priced in place of what was given, in words, where a framework means something else by it."""

    @property
    def running(self) -> Strategies:
        """The row with recomputation as what it comes to, which is what is priced."""
        return as_it_runs(self.row, self.split)


def given_strategy(
    resolved: Resolved,
    pins: Mapping[str, Pin],
    layers: Sequence[int] | None,
    recomputed: Sequence[int] | None,
    *,
    budget: Budget | None = None,
    chunked: bool = True,
    as_ran: bool = False,
) -> Given | tuple[Rejection, ...]:
    """The strategy that the pins describe with its layers by stage; or only the rules that it breaks.

    ``as_ran`` lets it break rules, and take degrees that make up other GPUs and batches that are no whole number of
    micro-batches: what a run did, it could do.

    Raises:
        BadRequest: an axis with several values, or what no strategy has.
    """
    scenario = resolved.scenario
    row, meant = single_strategy(scenario, pins, layers, as_ran=as_ran), ""
    if not as_ran:
        row, meant = as_frameworks_mean(row, scenario)
    broken = broken_rules(row, scenario, layers)
    if broken and not as_ran:
        return broken
    if row.pp[0] == 1 < row.vpp[0] and SCHEDULE_NAMES[row.schedule[0]] not in FOLDED:
        row = strategies(**row.row(0) | {"vpp": 1})  # a run that says chunks of one stage interleaved nothing
    if layers is not None:
        layers, odd = _layers_as_given(layers, row, scenario, chunked=chunked, as_ran=as_ran)
        broken += odd
    elif row.pp[0] == 1 and (recomputed is not None or row.recompute[0] != Recompute.PARTIAL):
        layers = [scenario.model.num_layers]  # there is nothing to split
    if layers is not None and recomputed is not None:
        split = row_assignment(row, scenario.model.num_layers, layers)
    else:
        by_memory = resolved.request.objective == "memory"
        split = split_or_given(scenario, row, layers, budget=budget, by_memory=by_memory)
    return Given(row, with_recomputed(row, split, recomputed, as_ran=as_ran), broken, meant)


def _layers_as_given(
    layers: Sequence[int], row: Strategies, scenario: Scenario, *, chunked: bool, as_ran: bool
) -> tuple[Sequence[int], tuple[Rejection, ...]]:
    """The layers, and what is wrong with those of a run; wrong ones of a plan are refused."""
    _check_sum(layers, row, scenario)
    try:
        return checked_layers(layers, row, scenario, chunked=chunked), ()
    except BadRequest as error:
        if not as_ran:
            raise
        return layers, (Rejection(rule="layers-per-stage", count=1, example=str(error)),)


def single_strategy(
    scenario: Scenario, pins: Mapping[str, Pin], layers: Sequence[int] | None, *, as_ran: bool = False
) -> Strategies:
    """The one strategy that the pins describe; data parallelism takes the GPUs that are left.

    ``as_ran`` prices the nearest whole number of micro-batches, and the data-parallel degree that is pinned.
    """
    axes = {name: single_value(pins[name]) for name in pins}
    tp, cp = axes.get("tp", 1), axes.get("cp", 1)
    pp = axes.get("pp", len(layers) if layers else 1)
    dp_given = as_ran and "dp" in axes
    dp = axes["dp"] if dp_given else _replicas(scenario, axes, {"tp": tp, "cp": cp, "pp": pp})
    micro = axes.get("micro_batch_size", 1)
    batches = _batches(scenario, micro, dp, as_ran=as_ran)
    return plain_strategy(scenario, {**axes, "tp": tp, "cp": cp, "pp": pp, "dp": dp}, batches)


def as_frameworks_mean(row: Strategies, scenario: Scenario) -> tuple[Strategies, str]:
    """The row as frameworks run what says nothing, and what else is priced, in words; "" where nothing is.

    One data-parallel rank has nothing to shard, though its stage decides what hosts hold, and one tensor rank splits no
    sequence, whatever the switches say. What shards fully keeps parameters and gradients whole under a pipeline until
    its last micro-batch, as PyTorch's pipelines tell FSDP to [FSDP2].
    """
    at, meant = row.row(0), ""
    if at["dp"] * at["cp"] == 1 and at["sharding_degree"] <= 1 and not at["offload"]:
        at |= {"zero_stage": 0, "sharding_degree": 1}
    if at["tp"] == 1:
        at["sequence_parallel"] = 0
    columns = {name: getattr(row, name) for name in AXES}
    if scenario.stack.sharding.fsdp_stage2 and not gradients_accumulate(columns, scenario).all():
        meant = f"ZeRO stage {at['zero_stage']} with {at['pp']} pipeline stages keeps parameters and gradients whole"
        at["zero_stage"] = 1
    return strategies(**at), f"{meant} until the last micro-batch: priced as stage 1" if meant else ""


def _replicas(scenario: Scenario, axes: Mapping[str, int], degrees: Mapping[str, int]) -> int:
    """The data-parallel ranks: GPUs over the ranks of one copy, which ``degrees`` make up."""
    ranks, gpus = math.prod(degrees.values()), scenario.gpus
    dp = gpus // ranks
    if gpus % ranks == 0 and axes.get("dp", dp) == dp:
        return dp
    above, there = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1], plural(gpus, "GPU")
    if gpus % ranks:
        whole = f" = {ranks}" if len(above) > 1 else ""
        raise UnfilledPins(f"{' x '.join(above)}{whole} does not divide {there}; {_dividing(gpus, axes)}")
    raise UnfilledPins(f"{' x '.join(['dp ' + str(axes['dp']), *above])} is not {there}; dp {dp} is")


def _dividing(gpus: int, axes: Mapping[str, int]) -> str:
    """The degrees closest to those of one copy that divide the devices, to end a sentence: of one both neighbours."""
    asked = {name: Pin(name, (axes[name],)) for name in ("tp", "cp", "pp") if axes.get(name, 1) > 1}
    if len(asked) > 1:
        return f"{nearest_degrees(layouts(gpus, {}), asked)} do"
    return " ".join(f"{name} {nearest_divisor(gpus, axes[name])}" for name in asked)


def _batches(scenario: Scenario, micro: int, dp: int, *, as_ran: bool) -> int:
    if as_ran and scenario.global_batch_size > micro * dp:
        return round(scenario.global_batch_size / (micro * dp))
    if scenario.global_batch_size % (micro * dp):
        raise UnfilledPins(
            f"micro-batch {micro} x dp {dp} does not divide the global batch of {scenario.global_batch_size}; "
            f"{nearest_multiple(scenario.global_batch_size, micro * dp)} would"
        )
    return scenario.global_batch_size // (micro * dp)


def single_value(pin: Pin) -> int:
    """The value of a pin that has one; raises BadRequest where it has several."""
    if len(pin.values) != 1:
        several = ",".join(shown_value(pin.axis, value) for value in pin.values) or pin.span()
        raise BadRequest(
            f"{pin.axis} {several}: one strategy is priced at a time; give one value, or search with `plan`"
        )
    return pin.values[0]


def broken_rules(row: Strategies, scenario: Scenario, layers: Sequence[int] | None = None) -> tuple[Rejection, ...]:
    """The rules that refuse the row, each in its own words.

    ``layers`` that are given fill chunks with ends where they say so, and the refusal names which would.
    """
    broken = refused_by(binding(scenario), {name: getattr(row, name) for name in AXES}, scenario)
    if layers is not None and CHUNKS in broken:
        if _filled(layers, row, scenario):
            del broken[CHUNKS]
        else:
            broken[CHUNKS] += f"; {_filling(row, scenario)} would do"
    return tuple(Rejection(rule=name, count=1, example=words) for name, words in broken.items())


def refused_by(rules: Iterable[Rule], columns: Mapping[str, NDArray[Any]], scenario: Scenario) -> dict[str, str]:
    """The rules that refuse one strategy, columns (1,), each in its own words.

    Rules are asked about numpy's numbers, which cost them less than half of what arrays of one cost.
    """
    numbers = {name: column[0] for name, column in columns.items()}
    failing = [rule for rule in rules if not rule.passes(numbers, scenario)]
    at = {name: number.item() for name, number in numbers.items()} if failing else {}
    return {rule.name: sentence(rule, at, scenario) for rule in failing}


def _filled(layers: Sequence[int], row: Strategies, scenario: Scenario) -> bool:
    """Whether each of the equal chunks of such stages has a layer, or an end that takes the place of one."""
    if len(layers) != row.pp[0] or sum(layers) != scenario.model.num_layers:
        return False
    ends = _ends(layers, row, scenario)
    return ends is not None and bool((places_of(layers, ends) >= row.vpp[0]).all())


def _filling(row: Strategies, scenario: Scenario) -> str:
    """Layers that fill as many chunks with the help of ends, in words; one chunk a stage where none do."""
    pp = int(row.pp[0])
    for first, last in ENDS:
        each, left = divmod(scenario.model.num_layers + first + last, pp)
        layers = [each] * pp
        layers[0], layers[-1] = layers[0] - first, layers[-1] - last
        if not left and _filled(layers, row, scenario):
            return f"layers {','.join(map(str, layers))}, where embedding or head counts as a layer,"
    return "one chunk on each"


def _ends(
    layers: Sequence[int], row: Strategies, scenario: Scenario, *, counted: bool = True
) -> tuple[int, int] | None:
    """Layers' places that the ends take where all stages make equal chunks of what they hold; None where they do not.

    What moves the places of ends by hand goes where the rule ``ends-as-layers`` lets them take places.
    """
    plain = row.vocabulary[0] == 0 and row.recompute[0] != Recompute.PARTIAL and not joined(row)[0]
    return ends_of_cut(
        layers, int(row.vpp[0]), counted=bool(counted and plain and scenario.stack.supports.ends_as_layers)
    )


def split_or_given(
    scenario: Scenario,
    row: Strategies,
    layers: Sequence[int] | None,
    *,
    budget: Budget | None = None,
    by_memory: bool = False,
) -> Assignment:
    """The ``checked_layers`` given, else the split that a search would choose, else, where none fits, the even one.

    ``by_memory`` is a search for the least memory; ``budget`` is charged, one of its own unless given.
    """
    if layers is not None:
        return given_split(row, scenario, layers)
    solved = (least_memory_split if by_memory else best_split)(row, scenario, budget=budget)
    pp, total, cut = int(row.pp[0]), scenario.model.num_layers, framework_split(scenario)
    return solved.assignment if solved else row_assignment(row, total, cut(scenario.model, pp) if cut else None)


def checked_layers(
    layers: Sequence[int], row: Strategies, scenario: Scenario, *, counted: bool = True, chunked: bool = True
) -> Sequence[int]:
    """Layers of every stage as they were given.

    Args:
        layers: of every stage.
        row: the one strategy, which breaks no rule.
        scenario: what is trained on what.
        counted: whether ends may count as layers, where the stack lets them.
        chunked: whether they must make equal chunks.

    Raises:
        BadRequest: they are not those of the model, or not as the stack, the framework or the schedule wants them.
    """
    pp, total, stack = int(row.pp[0]), scenario.model.num_layers, scenario.stack
    _check_sum(layers, row, scenario)
    if not (counted and _filled(layers, row, scenario)):
        _check_fewest(layers, row, scenario)
    _check_groups(row, layers)
    if len(set(layers)) > 1 and not stack.supports.uneven_stages:
        raise BadRequest(f"stack {stack.name} needs equal stages; {total // pp} layers each would be equal")
    if chunked and (odd := unequal_chunks(layers, row, scenario, counted=counted)):
        step = int(row.vpp[0] * row.recompute_num_layers[0])
        raise BadRequest(f"{odd}; {','.join(map(str, nearest_cut(layers, int(row.vpp[0]), step)))} would")
    return layers


def _check_sum(layers: Sequence[int], row: Strategies, scenario: Scenario) -> None:
    """Refuse layers of other stages than the strategy's, or of another model."""
    pp, total = int(row.pp[0]), scenario.model.num_layers
    if len(layers) != pp:
        raise BadRequest(
            f"layers are given for {plural(len(layers), 'stage')}, pp is {pp}; {_evenly(total, pp)} would do"
        )
    if sum(layers) != total:
        said = f"the stages hold {plural(sum(layers), 'layer')}, the model has {total}"
        raise BadRequest(f"{said}; {_evenly(total, pp)} would do")


def _evenly(layers: int, stages: int) -> str:
    """The layers of every stage, as evenly as they go."""
    return ",".join(str((layers + place) // stages) for place in reversed(range(stages)))


def _check_fewest(layers: Sequence[int], row: Strategies, scenario: Scenario) -> None:
    """Refuse stages with a chunk of nothing, and layers other than those that a framework itself gives a stage."""
    least = fewest_layers(row, scenario)[0]
    if own_split(scenario) and list(layers) != least.tolist():
        raise BadRequest(f"{scenario.framework} divides the layers itself, into {','.join(map(str, least))}")
    if not own_split(scenario) and framework_split(scenario):
        least = np.ones_like(least)  # its options say another way to divide them
    if short := [held for held, fewest in zip(layers, least, strict=True) if held < fewest]:
        raise BadRequest(f"a stage holds {plural(short[0], 'layer')}; each of its {int(row.vpp[0])} chunks needs one")


def unequal_chunks(layers: Sequence[int], row: Strategies, scenario: Scenario, *, counted: bool = True) -> str:
    """Which stage's layers make no equal chunks, in words; empty where all do."""
    if _ends(layers, row, scenario, counted=counted):
        return ""
    vpp = int(row.vpp[0])
    stage = odd_stage(layers, vpp)
    embedded = " and the embedding" if stage == 0 and end_places(sum(layers), row)[0][0] else ""
    return f"stage {stage} holds {plural(layers[stage], 'layer')}{embedded}, which make no {vpp} equal chunks"


def drawn_chunks(
    layers: Sequence[int], row: Strategies, scenario: Scenario, *, counted: bool = True
) -> tuple[str, ...]:
    """A word on chunks that are priced as equal ones and are none."""
    odd = unequal_chunks(layers, row, scenario, counted=counted)
    return (f"{odd}; they are priced as equal chunks",) if odd else ()


def with_recomputed(
    row: Strategies, split: Assignment, recomputed: Sequence[int] | None, *, as_ran: bool = False
) -> Assignment:
    """The split with so many recomputed layers on every stage; ``as_ran`` they may lie in its chunks as they did.

    Raises:
        BadRequest: recomputation that is not partial, more layers than a stage holds, or not as many of each chunk.
    """
    if recomputed is None:
        return split
    if row.recompute[0] != Recompute.PARTIAL:
        kind = Recompute(int(row.recompute[0])).name.lower()
        raise BadRequest(f"recomputed layers are given, but recompute is {kind}; recompute partial takes them")
    if len(recomputed) != len(split.layers):
        raise BadRequest(
            f"recomputed layers are given for {plural(len(recomputed), 'stage')}, pp is {len(split.layers)}"
        )
    if odd := [pair for pair in zip(recomputed, split.layers.tolist(), strict=True) if not 0 <= pair[0] <= pair[1]]:
        raise BadRequest(
            f"a stage of {plural(odd[0][1], 'layer')} cannot recompute {odd[0][0]}; 0 to {odd[0][1]} works"
        )
    chunks = 1 if SCHEDULE_NAMES[row.schedule[0]] in FOLDED or as_ran else int(row.vpp[0])
    pairs = zip(recomputed, split.layers.tolist(), strict=True)
    if unlike := [(asked, held) for asked, held in pairs if asked % chunks and asked < held]:
        asked, held = unlike[0]
        near = min(nearest_multiple(asked, chunks), held)
        raise BadRequest(
            f"{chunks} chunks cannot recompute {plural(asked, 'layer')}, the same number in each; {near} works"
        )
    return Assignment(split.layers, np.asarray(recomputed, dtype=np.int64))


def _check_groups(row: Strategies, layers: Sequence[int]) -> None:
    """Refuse stages that layers which are recomputed together do not divide."""
    together, vpp = int(row.recompute_num_layers[0]), int(row.vpp[0])
    odd = [held for held in layers if together > 1 and held % (together * vpp)]
    if odd:
        raise BadRequest(
            f"a stage of {vpp} chunks holds {odd[0]} layers, of which {together} are recomputed together; "
            f"{nearest_multiple(odd[0], together * vpp)} would do"
        )
