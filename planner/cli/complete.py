"""What a shell offers behind a word: names of the catalogue, exporters, or files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem

_PLACES: Final = ("FILE", "DIR", "PATH")
"""What the placeholder of a parameter that is a file says."""


def _kind(kind: str) -> Callable[[], Iterable[str]]:
    def listed() -> Iterable[str]:
        from planner.render.catalogue import KINDS

        return KINDS[kind].names()

    return listed


def _frameworks() -> Iterable[str]:
    from planner.frameworks.registry import FRAMEWORKS

    return FRAMEWORKS


def _everything() -> Iterable[str]:
    from planner.render.catalogue import KINDS

    return sorted({name for kind in KINDS.values() for name in kind.names()})


NAMES: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    "model": _kind("models"),
    "cluster": _kind("clusters"),
    "stack": _kind("stacks"),
    "target": _kind("exporters"),
    "schedule": _kind("schedules"),
    "framework": _frameworks,
    "name": _everything,
}
"""Where the values of a parameter come from."""


def complete(param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that begin so, and files where the parameter takes them."""
    known = NAMES.get(param.name or "")
    found = [CompletionItem(name) for name in known() if name.startswith(incomplete)] if known else []
    placed = str(param.metavar or "")
    files = isinstance(param, click.Argument) or param.name == "output" or any(word in placed for word in _PLACES)
    return found or ([CompletionItem(incomplete, type="file")] if files else [])
