"""Shell text: words in lines that a person reads and a shell takes back word by word."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.version import VERSION


def header(target: str) -> list[str]:
    """Who wrote a file, and for what."""
    return [f"# Written by meshwright {VERSION} for {target}."]


def exports(environment: Mapping[str, str]) -> list[str]:
    """Variables as a shell sets them."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def array(name: str, words: Sequence[str]) -> list[str]:
    """A bash array of words, an option with its values per line."""
    return [f"{name}=(", *(f"  {line}" for line in options(words)), ")"]


def options(words: Iterable[str]) -> Iterator[str]:
    """Quoted words, a new line in front of every option."""
    line: list[str] = []
    for word in words:
        if line and word.startswith("--"):
            yield " ".join(line)
            line = []
        line.append(shlex.quote(word))
    if line:
        yield " ".join(line)


def text(*parts: Iterable[str]) -> str:
    """Lines of several parts, with a blank line between two of them, ending with a newline."""
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part) + "\n"


def commented(target: str, about: Iterable[str], body: str) -> str:
    """A file behind comments: who wrote it, for what, and what a reader has to know."""
    return "\n".join([*header(target), *remarks(about), body])


def remarks(lines: Iterable[str]) -> list[str]:
    """What a reader has to know, as comments."""
    return [f"# {line}" for line in lines]
