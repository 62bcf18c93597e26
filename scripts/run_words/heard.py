"""The regular expressions of the rules, as ``re`` has them, which remember the words that they matched.

So a clause that no rule understood can be distinguished from one that a rule read and found to be the usual.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from re import IGNORECASE, Match, split
from typing import Any

__all__ = [
    "IGNORECASE",
    "Match",
    "compile",
    "findall",
    "finditer",
    "fullmatch",
    "listening",
    "match",
    "search",
    "split",
    "sub",
]

_heard: set[str] = set()
_SHORTEST, _LONGEST = 3, 60
"""Characters of a match that says which clause it was made of."""


@contextmanager
def listening() -> Iterator[set[str]]:
    """The words that rules match within, in lower case."""
    _heard.clear()
    yield _heard


def _keep(found: Match[str] | None) -> Match[str] | None:
    if found is not None and _SHORTEST <= len(found[0].strip()) <= _LONGEST:
        _heard.add(found[0].strip().lower())
    return found


def search(pattern: str, words: str, flags: int = 0) -> Match[str] | None:
    """As ``re.search``."""
    return _keep(re.search(pattern, words, flags))


def match(pattern: str, words: str, flags: int = 0) -> Match[str] | None:
    """As ``re.match``."""
    return _keep(re.match(pattern, words, flags))


def fullmatch(pattern: str, words: str, flags: int = 0) -> Match[str] | None:
    """As ``re.fullmatch``."""
    return _keep(re.fullmatch(pattern, words, flags))


def finditer(pattern: str, words: str, flags: int = 0) -> Iterator[Match[str]]:
    """As ``re.finditer``."""
    for found in re.finditer(pattern, words, flags):
        _keep(found)
        yield found


def findall(pattern: str, words: str, flags: int = 0) -> list[Any]:
    """As ``re.findall``."""
    _ = list(finditer(pattern, words, flags))
    return re.findall(pattern, words, flags)


def sub(pattern: str, new: str, words: str, count: int = 0, flags: int = 0) -> str:
    """As ``re.sub``, of what a rule spells otherwise; nothing is heard of it."""
    return re.sub(pattern, new, words, count=count, flags=flags)


class compile:  # noqa: A001, N801 - as re has it
    """As ``re.compile``."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._made = re.compile(pattern, flags)

    def search(self, words: str) -> Match[str] | None:
        """As a pattern's ``search``."""
        return _keep(self._made.search(words))

    def match(self, words: str) -> Match[str] | None:
        """As a pattern's ``match``."""
        return _keep(self._made.match(words))

    def fullmatch(self, words: str) -> Match[str] | None:
        """As a pattern's ``fullmatch``."""
        return _keep(self._made.fullmatch(words))

    def findall(self, words: str) -> list[Any]:
        """As a pattern's ``findall``."""
        return findall(self._made.pattern, words, self._made.flags)

    def finditer(self, words: str) -> Iterator[Match[str]]:
        """As a pattern's ``finditer``."""
        return finditer(self._made.pattern, words, self._made.flags)

    def sub(self, new: str, words: str, count: int = 0) -> str:
        """As a pattern's ``sub``, of which nothing is heard."""
        return self._made.sub(new, words, count)

    def split(self, words: str) -> list[str]:
        """As a pattern's ``split``."""
        return self._made.split(words)
