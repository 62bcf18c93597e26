"""What the fields of the page's form offer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from costmodels.model import catalogue
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.stack.precision import PRECISIONS
from hardware.catalogue import cluster
from planner.errors import MeshwrightError
from planner.frameworks.registry import ANY, FRAMEWORKS
from planner.jobs.registry import TARGETS
from planner.render.catalogue import rows
from planner.request.fields import FIELDS
from planner.request.request import Objective


def choices() -> dict[str, Any]:
    """Names, with what a person calls them, for every field of the form, and the field behind each option."""
    return {
        "schema": "choices/1",
        "model": [*_models()],
        "cluster": [*_clusters()],
        "stack": [[row["name"], row["title"] or ""] for row in rows("stacks")],
        "framework": [ANY, *FRAMEWORKS],
        "objective": list(get_args(Objective)),
        "precision": list(PRECISIONS),
        "schedule": list(SCHEDULES),
        "exporters": [
            {"name": one.name, "kind": one.kind, "title": one.title, "versions": one.versions}
            for one in TARGETS.values()
        ],
        "options": {word: name for name, field in FIELDS.items() for word in field.words},
    }


def _models() -> Iterator[list[str]]:
    """Names and titles; other names lead to the same entry."""
    titles = {row["name"]: row["title"] or row["name"] for row in rows("models")}
    yield from ([name, title] for name, title in titles.items())
    yield from ([alias, titles[name]] for alias, name in catalogue.aliases().items() if name in titles)


def _clusters() -> Iterator[dict[str, Any]]:
    """Machines with their price in dollars a GPU-hour, where one is known, and GPUs of a node."""
    for row in rows("clusters"):
        try:
            found = cluster(row["name"])
        except MeshwrightError:  # a part of it needs a size that the name alone does not say
            continue
        dollars = found.usd_per_gpu_hour and round(found.usd_per_gpu_hour, 4)
        size = found.groups[0].gpus_per_node
        yield {"name": row["name"], "title": row["title"] or "", "price": dollars, "gpus_per_node": size}
