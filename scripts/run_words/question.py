"""The request of a run: names of the catalogue where the records are equal, else tables; pins; layers of the stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from costmodels.model.catalogue import model as catalogued_model
from costmodels.model.catalogue import names as model_names
from costmodels.model.model import Model
from costmodels.names import Recompute
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from costmodels.strategy import AXES, Strategies, strategies
from hardware.assembly import cluster_record
from hardware.catalogue import accelerator as find_accelerator
from hardware.catalogue import cluster as find_cluster
from hardware.catalogue import names as hardware_names
from hardware.errors import MeshwrightError
from hardware.files import entry
from hardware.links import Link
from hardware.records import Accelerator, Cluster, NodeGroup
from hardware.writing import cluster_document
from planner.request.fields import PIN_AXES
from planner.request.pins import shown_value
from run_words.mapping import Case

Table = dict[str, Any]


def request_of(case: Case) -> Table:
    """The request that ``plan predict --config`` takes for a run, without what is the usual value of a field."""
    scenario, rows = case.scenario, case.rows
    asked: Table = {
        "model": model_of(scenario.model, scenario.seq_length),
        "gpus": scenario.gpus,
        "cluster": cluster_of(case),
        **stack_of(scenario),
        "global_batch_size": scenario.global_batch_size,
        "seq_length": scenario.seq_length,
        "precision": scenario.precision,
        "pins": pins_of(rows, scenario.gpus),
    }
    if rows.pp[0] > 1:
        asked["layers_per_stage"] = [int(n) for n in case.assignment.layers]
    if rows.recompute[0] == Recompute.PARTIAL:
        asked["recomputed_per_stage"] = [int(n) for n in case.assignment.recomputed]
    return asked


# The stack --------------------------------------------------------------------------------------------------------

_IDENTITY: Final = frozenset({"name", "title", "source", "release", "bf16", "fp16", "own_model"})
_UNSETTABLE: Final = frozenset(
    {
        *(f"calibrated.{name}" for name in ("basis", "own_runs", "uncorrected", "covariance", "memory_runs")),
        "switches.adapters",
    }
)


def stack_of(scenario: Scenario) -> Table:
    """The stack by its name and release, what the run changes of it by path, and its adapters."""
    stack = scenario.stack
    base = find_stack(stack.full_name).at(scenario.precision)
    before, after = _flat(base), _flat(_without_idle(scenario, base))
    changes = {_spelt(path): new for path, new in after.items() if before[path] != new}
    asked: Table = {"stack": stack.full_name}
    if changes:
        asked["changes"] = changes
    if stack.switches.adapters is not None:
        asked["adapters"] = str(stack.switches.adapters)
    return asked


_KERNEL: Final = ("kernels.recent_cudnn", "kernels.blackwell_attention", "switches.attention_backend")
"""Fields that choose the kernel of attention, and do nothing else; on many machines several values choose one."""


def _without_idle(scenario: Scenario, base: Stack) -> Stack:
    """The run's stack without changes that choose no other kernel on its machines."""
    rates = scenario.rates
    for path in _KERNEL:
        usual = replace(scenario, stack=scenario.stack.changed({path: base.value(path)}))
        first, named = (one.stack.switches.attention_backend[0] for one in (usual, scenario))
        if usual.rates == rates and (first == "unfused") == (named == "unfused"):
            scenario = usual
    return scenario.stack


def _flat(stack: Stack) -> Table:
    groups = stack.model_dump(mode="json", exclude=set(_IDENTITY), warnings=False)
    fields = {f"{group}.{name}": value for group, inner in groups.items() for name, value in inner.items()}
    return {path: value for path, value in fields.items() if path not in _UNSETTABLE}


def _spelt(path: str) -> str:
    """A path as requests write it: switches by their names alone."""
    return f"stack.{path.removeprefix('switches.')}"


# The model --------------------------------------------------------------------------------------------------------

_ABOUT: Final = frozenset(
    {"name", "title", "family", "source", "reach", "tokens", "batch_tokens", "published_parameters"}
)
"""Fields of a model that nothing is priced by."""


def model_of(model: Model, seq_length: int) -> str | Table:
    """The catalogue's name of a model that is priced as one of it, else the fields that differ from the usual."""
    for name in model_names():
        known = catalogued(name)
        if known.num_layers == model.num_layers and known.hidden_size == model.hidden_size:
            same = known.model_copy(update={"seq_length": model.seq_length})
            if _priced(same) == _priced(model) and _reaches(known, seq_length):
                return name
    return model.model_dump(mode="json", exclude_defaults=True)


def _reaches(known: Model, seq_length: int) -> bool:
    return known.position != "learned" or seq_length <= max(known.max_positions, known.seq_length)


def _priced(model: Model) -> Table:
    return model.model_dump(exclude=set(_ABOUT))


@cache
def catalogued(name: str) -> Model:
    """A model of the catalogue."""
    return catalogued_model(name)


# The machines -----------------------------------------------------------------------------------------------------


def cluster_of(case: Case) -> str | Table:
    """The catalogue's name of a cluster that gives the run the same nodes, else its table."""
    gpus, group = case.scenario.gpus, case.scenario.group
    own = case.machines.name
    for name in (own, *(name for name in _single_clusters() if name != own)):
        known = _single_clusters().get(name)
        if known and known.groups[0].accelerator == group.accelerator and _nodes(known, gpus) == group:
            return name
    hosts = {name: getattr(group, name) for name in ("host_memory", "host_link", "host_bandwidth")}
    whole = case.machines.groups[0].model_copy(update=hosts)
    return _small(case.machines.model_copy(update={"groups": (whole,)}))


@cache
def _single_clusters() -> Mapping[str, Cluster]:
    every = {name: find_cluster(name) for name in hardware_names("cluster")}
    return {name: found for name, found in every.items() if len(found.groups) == 1}


def _nodes(cluster: Cluster, gpus: int) -> NodeGroup | None:
    try:
        return cluster.with_gpus(gpus).groups[0]
    except MeshwrightError:
        return None


def _small(cluster: Cluster) -> Table:
    """The shortest table that reads as machines of the same price."""
    table = cluster_document(cluster)
    for name in ("title", "sources", "price", "node_power_overhead"):
        table.pop(name, None)
    group = cluster.groups[0]
    table["tiers"] = [_tier(given, tier.link) for given, tier in zip(table["tiers"], group.tiers, strict=True)]
    if isinstance(table["accelerator"], dict):
        table["accelerator"] = _device(table["accelerator"], group.accelerator)
    read = cluster_record(table)
    return table if _bare(read) == _bare(cluster) else cluster_document(cluster)


def _tier(table: Table, link: Link) -> Table:
    """A tier whose link is said by the one of the catalogue that it differs least from."""
    said = table["link"]
    short = {key: value for key, value in said.items() if key != "source"}
    for name in hardware_names("link"):
        differs = _differs(_link(name), link)
        if len(differs) + 1 < len(short) and set(differs) <= said.keys():
            short = {"like": name} | {key: said[key] for key in differs}
    usual = {"oversubscription": 1.0, "lanes": 0}
    return {k: v for k, v in table.items() if k != "link" and usual.get(k) != v} | {"link": short}


@cache
def _link(name: str) -> Link:
    return Link.model_validate(entry("link", name))


def _differs(one: Link, other: Link) -> list[str]:
    return [name for name in Link.model_fields if name != "source" and getattr(one, name) != getattr(other, name)]


def _device(table: Table, device: Accelerator) -> Table:
    """A device by the one of the catalogue that it is like, where it reads the same."""
    known = find_accelerator(device.name)
    changed = {name: table[name] for name in table if getattr(known, name, None) != getattr(device, name)}
    if "kernels" in changed:
        return table
    return {"like": device.name, "name": device.name, "usable_memory": table["usable_memory"], **changed}


def _bare(cluster: Cluster) -> Table:
    """What is priced of a cluster."""
    (group,) = cluster.groups
    texts = {"source", "sources", "title", "price", "node_power_overhead"}

    def without(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: without(one) for key, one in value.items() if key not in texts and not key.startswith("error_")
            }
        return [without(one) for one in value] if isinstance(value, list | tuple) else value

    return {name: value for name, value in without(group.model_dump()).items() if name != "name"}


# The strategy -----------------------------------------------------------------------------------------------------

_SHOWN: Final = ("tp", "pp", "zero_stage", "micro_batch_size")
"""Axes that are always said."""


def pins_of(rows: Strategies, gpus: int) -> Table:
    """The axes that are not neutral, and those that a stack may fill otherwise."""
    row, neutral = rows.row(0), strategies().row(0)
    tp, cp, pp, zero = (int(row[name]) for name in ("tp", "cp", "pp", "zero_stage"))
    asked = {
        *_SHOWN,
        *(("cp_kind",) if cp > 1 else ()),
        *(("schedule", "vocabulary") if pp > 1 else ()),
        *(("sequence_parallel",) if tp > 1 else ()),
        *(("sharding_degree",) if zero else ()),
        *(("dp",) if tp * cp * pp * row["dp"] != gpus else ()),
        *(("recompute",) if row["recompute_modules"] else ()),
        *(name for name in AXES if row[name] != neutral[name] and name not in ("dp", "num_microbatches")),
    }
    return {name: _plain(name, row[name]) for name in PIN_AXES if name in asked}


def _plain(axis: str, value: float) -> Any:
    if axis == "sequence_parallel":
        return bool(value)
    shown = shown_value(axis, int(value))
    return int(value) if shown == str(int(value)) else shown
