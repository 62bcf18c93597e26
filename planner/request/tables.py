"""Models, clusters and stacks given within a request, in place of a name.

A table is what the file of such a thing would hold. The ``request`` of a plan's document says each in its
own short way, so that the same question can be asked again from the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, Field, ValidationError

from costmodels.model.catalogue import entry_on_hub
from costmodels.model.catalogue import model as find_model
from costmodels.model.model import Model, checked, from_shape
from costmodels.stack.stack import Stack
from hardware.assembly import cluster_record
from hardware.catalogue import cluster as find_cluster
from hardware.errors import MeshwrightError, UnknownName, flatten
from hardware.records import Cluster, NodeGroup
from hardware.units import exact_quantity
from hardware.writing import short_quantity
from planner.request.values import name_or_path

_R = TypeVar("_R", bound=BaseModel)
Table = Mapping[str, Any]


def name_or_record(record: type[_R], value: object, build: Callable[[Table], _R | str]) -> _R | str:
    """A name as it is, a record as it is, a table as the record that it describes.

    Raises:
        ValueError: anything else, or a table that describes none; one line.
    """
    value = name_or_path(value)
    if isinstance(value, str | record):
        return value
    if not isinstance(value, Mapping):
        shown = "null" if value is None else f"{value!r:.60}"
        raise ValueError(f"expected a name, a file or a table of fields, got {shown}")  # noqa: TRY004 - pydantic's
    try:
        return build(value)
    except ValidationError as error:
        raise ValueError(flatten(error)) from None
    except MeshwrightError as error:
        raise ValueError(str(error)) from None


def also_accepts(form: Mapping[str, Any]) -> Any:
    """A field that its JSON Schema says to take one form more, which validators turn into the record."""

    def extended(schema: dict[str, Any]) -> None:
        known = schema.pop("anyOf", None) or [{"type": schema.pop("type")}]
        schema["anyOf"] = [*known, dict(form)]

    return Field(json_schema_extra=extended)


def accepts_table(of: str) -> Any:
    """A field that takes the table of a model, a cluster or a stack too."""
    return also_accepts(
        {"type": "object", "description": f"As the file of a {of}, or as an answer's request states it."}
    )


def model_of(table: Table) -> Model:
    """The model of a table: a record, as the schema has it and an answer states it, or the sizes of a model file.

    A record says every field that has no default; the number of parameters, which follows, and the name on a hub may
    be given too.
    """
    fields = {name: value for name, value in table.items() if name not in {"parameters", "hub"}}
    if any(field.is_required() and name not in fields for name, field in Model.model_fields.items()):
        return from_shape(fields)
    return checked(fields, label=str(fields["name"]))


def hub_or_model(table: Table) -> Model | str:
    """The same, or the name on a hub that an answer says the model was asked for by, while it means these sizes."""
    found, hub = model_of(table), table.get("hub")
    if isinstance(hub, str) and entry_on_hub(hub) and find_model(hub) == found:
        return hub
    return found


def stack_of(table: Table) -> Stack:
    """The stack of a table of its fields."""
    return Stack.model_validate(dict(table))


def cluster_of(table: Table) -> Cluster | str:
    """The cluster of a table as in its file, or the name of the one that an answer gives in short.

    An answer on a cluster that the catalogue does not hold states all of it, under ``file``.

    Raises:
        ValueError: an answer's cluster is not, or is no longer, in the catalogue.
    """
    if "file" in table:
        return cluster_record(dict(table["file"]))
    groups = table["groups"] if set(table) == {"name", "groups"} else [table]
    if not (isinstance(groups, list | tuple) and groups and all(map(_is_short, groups))):
        return cluster_record(dict(table))
    try:
        known = find_cluster(table["name"]).with_gpus(sum(one["nodes"] * one["gpus_per_node"] for one in groups))
        same = short_cluster(known) == table
    except UnknownName:
        same = False
    except (KeyError, TypeError, AttributeError):
        raise ValueError("expected the cluster as the answer stated it, or the fields of a cluster file") from None
    if not same:
        raise ValueError(f"the answer holds {table['name']!r} only in short; give its file as --cluster")
    return str(table["name"])


def short_cluster(cluster: Cluster) -> dict[str, Any]:
    """A cluster as an answer shows it: its one node group at the top level, several under ``groups``."""
    if len(cluster.groups) == 1:
        return {"name": cluster.name, **_short_group(cluster.groups[0])}
    return {"name": cluster.name, "groups": [{"name": one.name, **_short_group(one)} for one in cluster.groups]}


def _short_group(group: NodeGroup) -> dict[str, Any]:
    limit = group.accelerator.power_limit
    return {
        "accelerator": group.accelerator.name,
        **({} if limit is None else {"power_limit": short_quantity(exact_quantity(limit, "power"))}),
        "gpus_per_node": group.gpus_per_node,
        "nodes": group.nodes,
        "tiers": [
            {"name": tier.name, "gpus": tier.domain, "bandwidth": exact_quantity(tier.link.bandwidth, "bandwidth")}
            for tier in group.tiers
        ],
    }


def _is_short(group: object) -> bool:
    """Whether a table describes a node group so; the tiers of a file say ``domain``."""
    tiers = group.get("tiers") if isinstance(group, Mapping) and "accelerator" in group else None
    return isinstance(tiers, list | tuple) and all(isinstance(tier, Mapping) and "gpus" in tier for tier in tiers)


RECORDS: Final[Mapping[str, tuple[type[BaseModel], Callable[[Table], Any]]]] = {
    "model": (Model, hub_or_model),
    "cluster": (Cluster, cluster_of),
    "stack": (Stack, stack_of),
}
"""Fields of a request that are a name, a file or a table: what the table becomes, and what reads it."""
