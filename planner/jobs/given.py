"""What a file says of a job, before it is a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal

LIKE: Final = 0.85
"""How alike two names are of which one may be meant by the other (``difflib``)."""


@dataclass(frozen=True)
class Length:
    """How long a file has the training.

    Attributes:
        count: how many.
        of: iterations, sequences or tokens.
        word: the file's own for it.
    """

    count: int
    of: Literal["iterations", "sequences", "tokens"]
    word: str

    def tokens(self, batch: int, seq_length: int) -> int:
        """Tokens of the whole run; 0 where what they follow from is 0, being unknown."""
        each = {"iterations": batch * seq_length, "sequences": seq_length, "tokens": 1}[self.of]
        return self.count * each

    def told(self, batch: int, seq_length: int) -> str:
        """The same in words, with what it was multiplied from."""
        sides = {"iterations": (batch, seq_length), "sequences": (seq_length,), "tokens": ()}[self.of]
        product = " x ".join(f"{side:,}" for side in (self.count, *sides))
        found = self.tokens(batch, seq_length)
        whole = f" = {found:,}" if sides else ""
        return f"{self.word}: {product}{whole} training tokens, which days and cost are of"


@dataclass(frozen=True)
class Given:
    """Fields and pins of a request, and what else the file says.

    Attributes:
        fields: of ``PlanRequest``; what the file leaves open is absent.
        pins: the strategy, by axis.
        layers: of every stage, where the file says.
        recomputed: of these, the first so many, where the file says it and recomputation is partial.
        remarks: what was assumed, was not read, or cannot be.
        framework: that reads the file, by the name of its exporter, where one does.
        length: of the training, where the file says it.
        lacks: why it says no model, where it names one that is not known.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[int, ...] | None = None
    recomputed: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()
    framework: str | None = None
    length: Length | None = None
    lacks: str = ""


def said(**values: Any) -> dict[str, Any]:
    """The values that are said: neither None nor empty."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


class Asked(dict[str, Any]):
    """Values by name, and which names were asked for, whether they are there or not."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Of a file's values."""
        super().__init__(values)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping."""
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def unread(self, harmless: str, *, prefix: str = "") -> tuple[str, ...]:
        """A remark for every name that was not asked for and resembles one that was, and one for all the others.

        Args:
            harmless: pattern of names that change no price and need no remark.
            prefix: what stands in front of a name where it is shown.
        """
        near = {name: get_close_matches(name, self.names, 1, LIKE) for name in self if name not in self.names}
        slips = [f"{prefix}{name} is not read; {prefix}{close[0]} is" for name, close in near.items() if close]
        others = [name for name, close in near.items() if not (close or re.fullmatch(harmless, name))]
        told = ", ".join(f"{prefix}{name}" for name in others)
        return (*slips, *([f"not read, and without effect on the price: {told}"] if told else ()))
