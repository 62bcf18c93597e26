"""What a shell offers behind a word: names of the catalogue, exporters, or files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem

_PLACES: Final = ("FILE", "DIR", "PATH")
"""What the placeholder of a parameter that is a file says."""
NAMES: Final[Mapping[str, str]] = {
    "model": "models",
    "cluster": "clusters",
    "stack": "stacks",
    "target": "exporters",
    "schedule": "schedules",
    "framework": "",
    "name": "",
}
"""The kind of the catalogue that the values of a parameter come from; "" is another place, or all kinds."""


def complete(param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that begin so, and files where the parameter takes them."""
    found = [CompletionItem(name) for name in _known(param.name or "") if name.startswith(incomplete)]
    placed = str(param.metavar or "")
    files = isinstance(param, click.Argument) or param.name == "output" or any(word in placed for word in _PLACES)
    return found or ([CompletionItem(incomplete, type="file")] if files else [])


def _known(parameter: str) -> Iterable[str]:
    if parameter not in NAMES:
        return ()
    from planner.frameworks.registry import FRAMEWORKS
    from planner.render.catalogue import KINDS

    if parameter == "framework":
        return FRAMEWORKS
    kinds = [NAMES[parameter]] if NAMES[parameter] else KINDS
    return sorted({name for kind in kinds for name in KINDS[kind].names()})
