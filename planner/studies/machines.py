"""Fields of the machines by path: ``cluster.fabric.bandwidth``, ``cluster.accelerator.memory``, ``cluster.price``.

A path names a part and a field of its record. Parts are ``accelerator``, ``fabric`` (every tier between
nodes), ``scale_up`` (the links inside) and any tier by its name; without a part the field is one of the node
group, or of the accelerator. With several node groups all of them change, or the one that ``cluster.groups.NAME.``
says. Values are written as in a cluster's file, or as a multiple of what is there: "2x".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel

from hardware.catalogue import cluster as find_cluster
from hardware.errors import no_such
from hardware.links import Link, Tier
from hardware.records import Accelerator, Cluster, NodeGroup
from planner.errors import BadRequest
from planner.request.values import adapter, changed_value, checked_value, multiple

Changes = tuple[tuple[str, Any], ...]
"""Paths and their values, as the study writes them."""

_ALIASES: Final = {"latency": "step_latency", "hbm": "memory", "hbm_bandwidth": "memory_bandwidth"}
_DESCRIPTIVE: Final = {"name", "title", "vendor", "source", "sources", "host_power", "kernel_power"}
_FIXED: Final = _DESCRIPTIVE | {"kernels", "tiers", "accelerator", "scale_up", "link"}
_FIXED_GROUP: Final = {"nodes", "gpus_per_node"}
"""What a request says by its number of GPUs."""
_BASE_FIELDS: Final = {(NodeGroup, "price"): "rent", (Accelerator, "power_limit"): "drawn"}
"""What a multiple of a field is a multiple of, where the field itself may be absent."""


def changed_cluster(name: str | Cluster, changes: Changes) -> Cluster:
    """The cluster with those fields changed, called after what differs.

    Raises:
        BadRequest: a path that leads nowhere, or a value that does not belong there.
    """
    return _changed(name, changes) if isinstance(name, str) else _apply(name, changes)


@lru_cache(maxsize=4096)
def _changed(name: str, changes: Changes) -> Cluster:
    return _apply(find_cluster(name), changes)


def _apply(base: Cluster, changes: Changes) -> Cluster:
    cluster, said = base, []
    for path, value in changes:
        after = _set(cluster, path, value)
        if after != cluster:
            said.append(f"{path.removeprefix('cluster.')} {value}")
        cluster = after
    return cluster.model_copy(update={"name": f"{base.name} with {', '.join(said)}"}) if said else cluster


def _set(cluster: Cluster, path: str, value: Any) -> Cluster:
    parts = path.split(".")[1:]
    chosen = None
    if parts[0] == "groups" and len(parts) > 2:
        chosen, parts = parts[1], parts[2:]
        names = [group.name for group in cluster.groups]
        if chosen not in names:
            raise BadRequest(f"{path}: {cluster.name} has no group {chosen!r}; its groups are {', '.join(names)}")
    groups = tuple(
        _set_group(group, parts, value, path) if chosen in (None, group.name) else group for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups})


def _set_group(group: NodeGroup, parts: list[str], value: Any, path: str) -> NodeGroup:
    field = _ALIASES.get(parts[-1], parts[-1])
    match parts[:-1]:
        case []:
            if field in NodeGroup.model_fields and field not in _FIXED | _FIXED_GROUP:
                return _set_field(group, field, _value(group, field, value, path))
            return _set_group(group, ["accelerator", *parts], value, path)
        case ["accelerator"] if field == "price":  # a group's own price would go before it
            return _set_group(group, [field], value, path)
        case ["accelerator"]:
            return group.model_copy(update={"accelerator": _set_device(group.accelerator, field, value, path)})
        case ["accelerator", "peak"] | ["peak"]:
            return group.model_copy(update={"accelerator": _set_peak(group.accelerator, field, value, path)})
        case [tier]:
            return _set_tier(group, tier, field, value, path)
        case _:
            tiers = ", ".join(tier.name for tier in group.tiers)
            way = f"accelerator.memory, fabric.bandwidth, a tier ({tiers}) or a field such as price"
            raise BadRequest(f"{path}: {'.'.join(parts)} does not exist; write {way}")


def _set_field(group: NodeGroup, field: str, value: Any) -> NodeGroup:
    before = group.rent if field == "price" else getattr(group, field)
    return group if value == before else group.model_copy(update={field: value})


def _set_device(device: Accelerator, field: str, value: Any, path: str) -> Accelerator:
    if field not in Accelerator.model_fields or field in _FIXED | {"peak", "year", "architecture", "training_rate"}:
        raise BadRequest(f"{path}: {no_such(field, _settable(Accelerator) | _settable(NodeGroup))}")
    changes = {field: _value(device, field, value, path)}
    if field == "power_limit":
        if wrong := device.wrong_limit(changes[field]):
            raise BadRequest(f"{path}: {wrong}")
        return device if changes[field] == device.drawn else device.model_copy(update=changes)
    if field == "memory":  # what the driver keeps stays the same share
        changes["usable_memory"] = device.usable_memory / device.memory * changes[field]
    return device.model_copy(update=changes)


def _set_peak(device: Accelerator, dtype: str, value: Any, path: str) -> Accelerator:
    if dtype not in device.peak:
        raise BadRequest(f"{path}: {device.name} has no peak {dtype!r}; it has {', '.join(device.peak)}")
    rates = checked_value(adapter(Accelerator, "peak"), {dtype: multiple(device.peak[dtype], value, "rate")}, path)
    return device.model_copy(update={"peak": device.peak | rates})


def _set_tier(group: NodeGroup, name: str, field: str, value: Any, path: str) -> NodeGroup:
    names = [tier.name for tier in group.tiers]
    chosen = _places(group, name)
    if not chosen:
        raise BadRequest(f"{path}: {no_such(name, {*names, 'fabric', 'scale_up', 'accelerator'})}")
    tiers = (
        _changed_tier(tier, field, value, path) if place in chosen else tier for place, tier in enumerate(group.tiers)
    )
    return group.model_copy(update={"tiers": tuple(tiers)})


def _places(group: NodeGroup, name: str) -> list[int]:
    """Places of the tiers that a name means: those between nodes, those inside, or one by its own name."""
    places = range(len(group.tiers))
    if name not in {"fabric", "scale_up"}:
        return [place for place in places if group.tiers[place].name == name]
    domains = [tier.domain for tier in group.tiers]
    outside = [n for n in places if (n or len(domains) == 1) and not 0 < domains[n] <= group.gpus_per_node]
    return outside if name == "fabric" else [place for place in places if place not in outside]


def _changed_tier(tier: Tier, field: str, value: Any, path: str) -> Tier:
    if field == "oversubscription":
        return tier.model_copy(update={field: _value(tier, field, value, path)})
    if field not in Link.model_fields or field in _FIXED:
        raise BadRequest(f"{path}: {no_such(field, _settable(Link) | {'oversubscription'})}")
    return tier.model_copy(update={"link": tier.link.model_copy(update={field: _value(tier.link, field, value, path)})})


def _value(record: BaseModel, field: str, value: Any, path: str) -> Any:
    """The value of a field as its record has it: in SI units, within the record's bounds."""
    before = getattr(record, _BASE_FIELDS.get((type(record), field), field))
    return changed_value(type(record), field, before, value, path)


def _settable(record: type[BaseModel]) -> set[str]:
    return set(record.model_fields) - _FIXED - _FIXED_GROUP
