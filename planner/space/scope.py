"""The scope of a proof: strategies that could run and that the lattice leaves out.

Only what restricts a request is said: nothing of an axis that it pins, nor of values that a rule refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from costmodels.arrays import distinct_values
from costmodels.layer.recompute_modules import module_mask, module_names, modules_of
from costmodels.layout.stage_contents import copies
from costmodels.names import CP_KINDS, OFFLOADS, Recompute
from costmodels.node_groups import AnyScenario, Mixed
from costmodels.scenario import Scenario
from costmodels.strategy import Ints, Strategies
from planner.answer.text import NO_OFFLOADING, SHARDED_OVER
from planner.request.pins import Pin, parse_pins
from planner.rules.divisors import divisors
from planner.space.active_rules import binding
from planner.space.lattice import LARGEST_MICRO_BATCH, Space, axes_of
from planner.space.mixed import MixedSpace
from planner.space.sharding import sharding_degrees, sharding_domains

_Values = Sequence[int] | Ints
_Axes = Mapping[str, Ints]


def scope_of(
    space: Space, question: AnyScenario, pins: Mapping[str, Pin], *, by_memory: bool = False
) -> tuple[str, ...]:
    """The restrictions of a proof, as phrases; of several node groups, those of any group.

    Args:
        space: the lattice.
        question: what was asked.
        pins: as it was asked.
        by_memory: whether the least memory is searched for.
    """
    if not isinstance(question, Mixed):
        return left_out(question, pins, space.outline or space.cores, by_memory=by_memory)
    assert isinstance(space, MixedSpace)
    alone = {**pins, **parse_pins({"offload": "none", "recompute_num_layers": 1})}  # rules refuse all else
    parts = zip(question.scenarios, space.cores.groups, strict=True)
    said = (phrase for scenario, cores in parts for phrase in left_out(scenario, alone, cores))
    width = " with as many ranks on every stage" if space.one_width else ""
    return (f"among strategies over all node groups{width}", *dict.fromkeys(said))


def left_out(
    scenario: Scenario, pins: Mapping[str, Pin], cores: Strategies, *, by_memory: bool = False
) -> tuple[str, ...]:
    """The restrictions on one node group, of a lattice that has these cores."""
    axes = axes_of(scenario, {axis: pin for axis, pin in pins.items() if axis != "micro_batch_size"})
    free = {axis: look for axis, look in _LOOKS.items() if axis not in pins}
    said = [look(scenario, axes, cores) for look in free.values()]
    return tuple(filter(None, [*said, *(_memory_scope(scenario, cores) if by_memory else ())]))


def offloads(scenario: Scenario, pins: Mapping[str, Pin]) -> tuple[str, ...]:
    """Names of what may be offloaded to the hosts, where the request leaves that alone."""
    return () if "offload" in pins else _offloads(scenario, axes_of(scenario, pins))


def _offloads(scenario: Scenario, axes: _Axes) -> tuple[str, ...]:
    mesh: dict[str, _Values] = {
        "zero_stage": _stages(axes),
        "recompute": axes["recompute"],
        "offload": range(1, len(OFFLOADS)),
    }
    return tuple(OFFLOADS[place] for place in distinct_values(_able(scenario, {}, mesh)["offload"]))


def _offloading(scenario: Scenario, axes: _Axes, _cores: Strategies) -> str:
    return NO_OFFLOADING if _offloads(scenario, axes) else ""


def _together(scenario: Scenario, axes: _Axes, cores: Strategies) -> str:
    """Layers that are recomputed together from one stored input."""
    full = axes["recompute"][axes["recompute"] == Recompute.FULL]
    together = divisors(scenario.model.num_layers)[1:]
    mesh: dict[str, _Values] = {"offload": [0], "recompute": full, "recompute_num_layers": together}
    found = _able(scenario, _columns(cores, "pp", "vpp", "schedule"), mesh)
    return "without layers recomputed together" if found["pp"].size else ""


def _sharding(scenario: Scenario, axes: _Axes, cores: Strategies) -> str:
    """Degrees of sharding other than all ranks and those that the looked-at domains hold."""
    most = _stages(axes)[-1:]
    near = sharding_domains(scenario, int(most[0]))
    layouts = _columns(cores, "tp", "cp", "dp")
    options = np.array([[0, *(-domain for domain in near)]])
    wide = {name: column[:, None] for name, column in layouts.items()} | {"zero_stage": np.full_like(options, most)}
    known = sharding_degrees(wide, options)
    mesh: dict[str, _Values] = {"sharding_degree": divisors(scenario.gpus)[1:], "zero_stage": most[most > 0]}
    found = _able(scenario, {**layouts, "place": np.arange(len(known))}, mesh)
    if not (known[found["place"]] != found["sharding_degree"][:, None]).all(axis=1).any():
        return ""
    within = f" or within {_either(map(str, near))} GPUs" if near else ""
    return f"{SHARDED_OVER}all data ranks{within}"


def _kinds(scenario: Scenario, axes: _Axes, cores: Strategies) -> str:
    """How context ranks exchange, where a sequence is too short to look at all ways."""
    degrees = _columns(cores, "tp", "cp")
    several = {name: column[degrees["cp"] > 1] for name, column in degrees.items()}
    others = set(map(CP_KINDS.index, scenario.stack.supports.cp_kinds)) - set(axes["cp_kind"].tolist())
    found = _able(scenario, several, {"cp_kind": sorted(others)})
    return f"with context parallelism by {scenario.stack.supports.cp_kinds[0]} alone" if found["cp"].size else ""


def _modules(scenario: Scenario, axes: _Axes, _cores: Strategies) -> str:
    """Sets of modules that selective recomputation names."""
    presets = axes["recompute_modules"].tolist()
    others = {module_mask([name]) for name in modules_of(scenario.model)} - set(presets)
    chosen = axes["recompute"][axes["recompute"] == Recompute.SELECTIVE]
    if not _able(scenario, {}, {"recompute": chosen, "recompute_modules": sorted(others)})["recompute"].size:
        return ""
    named = ["+".join(module_names(mask)) for mask in presets if mask]
    return f"with no modules named for recomputation{f' but {_either(named)}' if named else ''}"


def _expert_ranks(scenario: Scenario, axes: _Axes, cores: Strategies) -> str:
    """Ranks that share the matrices of one expert."""
    others = set(divisors(scenario.gpus)) - set(axes["etp"].tolist())
    mesh: dict[str, _Values] = {"ep": [1], "etp": sorted(others) if scenario.model.moe else []}
    found = _able(scenario, _columns(cores, "tp", "cp", "dp"), mesh)
    return f"with experts over {_either(map(str, axes['etp'].tolist()))} tensor ranks" if found["etp"].size else ""


def _micro_batches(scenario: Scenario, _axes: _Axes, cores: Strategies) -> str:
    """Micro-batches larger than anybody runs."""
    larger = [size for size in divisors(scenario.global_batch_size) if size > LARGEST_MICRO_BATCH]
    found = _able(scenario, _columns(cores, "dp"), {"micro_batch_size": larger})
    return f"with micro-batches of at most {LARGEST_MICRO_BATCH} sequences" if found["dp"].size else ""


_LOOKS: Mapping[str, Callable[[Scenario, _Axes, Strategies], str]] = {
    "offload": _offloading,
    "recompute_num_layers": _together,
    "sharding_degree": _sharding,
    "cp_kind": _kinds,
    "recompute_modules": _modules,
    "etp": _expert_ranks,
    "micro_batch_size": _micro_batches,
}
"""Phrases for every axis of which not all values are laid out."""


def _memory_scope(scenario: Scenario, cores: Strategies) -> tuple[str, ...]:
    """Splits that the search for the least memory does not look at."""
    several, said = cores.take(cores.pp > 1), []
    if scenario.stack.supports.uneven_stages and not scenario.depth.uniform and len(several):
        said.append("with layers split evenly over the stages")
    elif scenario.stack.supports.uneven_stages and (copies(several) > 1).any():
        said.append("with layers split evenly where stages hold two pieces of the model")
    if (several.recompute == Recompute.PARTIAL).any():
        said.append("with all layers recomputed or none")
    return tuple(said)


def _stages(axes: _Axes) -> Ints:
    """ZeRO stages of the lattice, ascending."""
    return distinct_values(axes["sharding"][:, 0])


def _columns(cores: Strategies, *names: str) -> dict[str, Ints]:
    """The distinct combinations of some axes."""
    if not len(cores):
        return {name: np.zeros(0, dtype=np.int64) for name in names}
    some, _ = cores.distinct(*names)
    return {name: getattr(some, name) for name in names}


def _either(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _able(scenario: Scenario, rows: _Axes, mesh: Mapping[str, _Values]) -> dict[str, Ints]:
    """The rows with every combination of further values, those that no rule on these axes refuses."""
    lengths = [len(next(iter(rows.values())))] if rows else []
    places = np.indices((*lengths, *(len(values) for values in mesh.values()))).reshape(len(lengths) + len(mesh), -1)
    columns = {name: column[places[0]] for name, column in rows.items()}
    for place, (name, values) in enumerate(mesh.items(), start=len(lengths)):
        columns[name] = np.asarray(values, dtype=np.int64)[places[place]]
    able = np.ones(places.shape[1], dtype=bool)
    for rule in binding(scenario):
        if set(rule.reads) <= set(columns):
            able &= rule.passes(columns, scenario)
    return {name: column[able] for name, column in columns.items()}


__all__ = ["left_out", "offloads", "scope_of"]
