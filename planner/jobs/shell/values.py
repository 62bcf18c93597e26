"""Values that may be known in part: text, where each unknown part is one character of a private plane.

Text with an unknown part is cut and joined as any other; what cannot be done with it (a product, a pattern)
makes a new unknown part that depends on the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from planner.jobs.data import data, words

_FIRST: Final = 0xF0000
RANKS: Final = frozenset(words(data("shell/words")["ranks"]))
"""Variables that number nodes or processes: a script is read as the first of them runs it."""
_PRIVATE: Final = re.compile("[\U000f0000-\U000ffffd]")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that a script does not say.

    Attributes:
        text: as the script writes it, such as ``${NNODES}`` or ``$(hostname)``.
        line: of the script, counted from 1, where it is first used.
        names: what would settle it: variables, and positions of arguments as "1".
        fresh: it is a variable that nobody has set, which a fresh shell has as an empty word.
    """

    text: str
    line: int
    names: frozenset[str]
    fresh: bool = False


@dataclass
class Unknowns:
    """Every unknown part of a script, and the character that stands for it.

    Attributes:
        marks: the character of each text with its names.
        known: what each character stands for.
    """

    marks: dict[tuple[str, frozenset[str]], str] = field(default_factory=dict)
    known: dict[str, Unknown] = field(default_factory=dict)

    def mark(self, text: str, line: int, names: Iterable[str] = (), *, fresh: bool = False) -> str:
        """The character that stands for an unknown part."""
        key = (text, frozenset(names))
        if key not in self.marks:
            made = chr(_FIRST + len(self.marks))
            self.marks[key] = made
            self.known[made] = Unknown(text, line, key[1], fresh)
        return self.marks[key]

    def derived(self, source: str, line: int, *values: str) -> str:
        """What follows from values of which a part is unknown, as the script writes it."""
        names = {name for value in values for one in self.of(value) for name in one.names}
        return self.mark(self.shown(source), line, names)

    def of(self, text: str) -> list[Unknown]:
        """The unknown parts of a text, in their order."""
        return [self.known[one] for one in _PRIVATE.findall(text)]

    def shown(self, text: str) -> str:
        """A text as a person reads it, its unknown parts as the script writes them."""
        return _PRIVATE.sub(lambda found: self.known[found[0]].text, text)

    def emptied(self, text: str) -> str:
        """A text where the variables that nobody has set are empty, and ranks 0."""

        def usual(found: re.Match[str]) -> str:
            one = self.known[found[0]]
            return ("0" if one.names <= RANKS else "") if one.fresh else found[0]

        return _PRIVATE.sub(usual, text)

    def unset(self, text: str) -> bool:
        """Whether a text is nothing but variables that nobody has set."""
        return bool(text) and not self.emptied(text)


def is_known(text: str) -> bool:
    """Whether no part of a text is unknown."""
    return _PRIVATE.search(text) is None


def without_private(text: str) -> str:
    """A text of which no character can be taken for an unknown part."""
    return _PRIVATE.sub("\ufffd", text)
