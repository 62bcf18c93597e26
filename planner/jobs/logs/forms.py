"""Tables of how a framework writes its lines: one row a form, with the names of what it says."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.jobs.logs.lines import last_digit, number_in, seconds_in, stamp_of

Groups = Mapping[str, str]
"""What a line says, by name: ``step``, ``of``, ``ms``, ``s``, ``per_s`` (iterations a second), ``elapsed`` (since the
start), ``hours`` and ``since`` (hours and seconds of training), ``speed`` (iterations a second since then), ``pace``
(seconds an iteration since the start), ``batch``, ``skipped``."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of line that reports a step.

    Attributes:
        mark: what all such lines have, so that others are passed over quickly.
        read: what a line says by name, None where it is none.
        of_last: iterations over which a running mean goes; 1 where the time is the line's own.
        since_last: whether the time is the mean of all iterations since the line before.
        first: number of the first iteration, where a framework counts from 0.
        clock: whether the time of day in front of the line, or the time since the start, says the time.
    """

    mark: str
    read: Callable[[str], Groups | None]
    of_last: int = 1
    since_last: bool = False
    first: int = 1
    clock: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What a line says of a step.

    Attributes:
        done: iterations that are done.
        of: iterations of the whole run, 0 where it is not said.
        seconds: of an iteration.
        fine: what one of the last printed digit of that is worth, in seconds.
        clock: seconds since some zero.
        coarse: how coarse that clock is, in seconds.
        batch: sequences of the iteration, 0 where it is not said.
        skipped: iterations since the last line whose update was dropped.
        aside: what happened since the step before it that is no training, such as "an evaluation".
    """

    done: int
    of: int = 0
    seconds: float | None = None
    fine: float = 0.0
    clock: float | None = None
    coarse: float = 0.0
    batch: int = 0
    skipped: int = 0
    aside: str = ""

    @property
    def apart(self) -> str:
        """Why its time is none of training alone; nothing where it is."""
        return self.aside or ("dropped updates" if self.skipped else "")


def row(mark: str, begin: str, parts: Sequence[str] = (), **more: Any) -> Form:
    """A form by a pattern of its begin and patterns of parts that may follow in any order.

    Named groups are those of ``Groups``.
    """
    pattern = re.compile(begin + "".join(rf"(?=.*?{part}|)" for part in parts))

    def read(line: str) -> Groups | None:
        found = pattern.search(line)
        return {name: value for name, value in found.groupdict().items() if value} if found else None

    return Form(mark, read, **more)


def keyed(mark: str, keys: Mapping[str, str], **more: Any) -> Form:
    """A form by the names of a table, JSON's or Python's, that a line has: what each is called here."""

    def read(line: str) -> Groups | None:
        found = table_in(line)
        if found is None:
            return None
        said = {ours: str(found[theirs]) for theirs, ours in keys.items() if found.get(theirs) is not None}
        step, _, total = said.get("step", "").partition("/")  # 12/100 is a step and how many there are
        return {**said, "step": step, **({"of": total} if total else {})} if "step" in said else None

    return Form(mark, read, **more)


LONGEST_TABLE: Final = 2**16
"""Characters of the longest table that is one step's."""


def table_in(line: str, *, longest: int = LONGEST_TABLE) -> Mapping[str, Any] | None:
    """The table, as JSON or Python prints it, that a line ends with; None where there is none."""
    start, end = line.find("{"), line.rfind("}")
    if not 0 <= start < end or end - start > longest:
        return None
    text = line[start : end + 1]
    parsers: tuple[Callable[[str], Any], ...] = (json.loads, ast.literal_eval)
    for parse in parsers:
        try:
            found = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, Mapping) else None
    return None


_PER: Final[Mapping[str, Callable[[float], float]]] = {
    "ms": lambda value: value / 1e3,
    "s": lambda value: value,
    "per_s": lambda value: 1.0 / value if value else 0.0,
}
"""Seconds of an iteration, by the name of what is printed."""


def step_of(form: Form, line: str) -> Step | None:
    """What a line says of a step, None where it is not of this form."""
    said = form.read(line)
    done = number_in(said["step"]) if said else None
    if said is None or done is None:
        return None
    seconds, fine = _seconds(said)
    clock, coarse = _clock(form, said, line, done)
    return Step(
        done=round(done) + 1 - form.first,
        of=int(_count(said, "of")),
        seconds=seconds,
        fine=fine,
        clock=clock,
        coarse=coarse,
        batch=int(_count(said, "batch")),
        skipped=int(_count(said, "skipped")),
    )


def _count(said: Groups, name: str) -> float:
    return (number_in(said[name]) or 0.0) if name in said else 0.0


def _seconds(said: Groups) -> tuple[float | None, float]:
    """Seconds of an iteration and what its last digit is worth."""
    for name, of in _PER.items():
        if name in said and (value := number_in(said[name])):
            seconds = of(value)
            return seconds, seconds * last_digit(said[name]) / value
    return None, 0.0


def _clock(form: Form, said: Groups, line: str, done: float) -> tuple[float | None, float]:
    """Seconds since some zero, and how coarse they are: of an average since the start where the time agrees with it."""
    for name, unit in _TRAINED.items():
        if name in said and (value := number_in(said[name])) is not None:
            return value * unit, last_digit(said[name]) * unit
    elapsed = seconds_in(said["elapsed"]) if "elapsed" in said else None
    for name in ("speed", "pace"):
        if name in said and (value := number_in(said[name])):
            clock = done / value if name == "speed" else done * value
            if elapsed is None or abs(clock - elapsed) <= max(_AGREES * elapsed, 2.0):
                return clock, min(clock * last_digit(said[name]) / value, 1.0)
    if elapsed is not None:
        return elapsed, 1.0
    return (stamp_of(line) or (None, 0.0)) if form.clock else (None, 0.0)


_TRAINED: Final = {"since": 1.0, "hours": 3600.0}
_AGREES: Final = 0.02
"""How far an average since the start may be from the time since then; a run that was resumed counts steps otherwise."""
