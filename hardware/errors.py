"""Errors that a person can act on.

Every error that this project raises on purpose descends from one root, so that an embedding program
needs one ``except`` clause, and every message fits one line: what was wrong, the numbers, and the
nearest thing that works. ::

    MeshwrightError
    ├── UnknownName      a catalogue name that does not exist
    ├── BadQuantity      a quantity without a unit, with the wrong unit, or out of range
    └── BadFile          a file that is missing, unreadable, or whose fields are wrong
        (further branches live with the code that raises them)
"""

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import ValidationError

_LONGEST_VALUE = 60
_MANY, _SOME = 50, 12
"""Of more names than so many, so many are shown."""
_EXPECTED = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "expected a table of fields"),
    **dict.fromkeys(("tuple_type", "list_type"), "expected a list"),
    **dict.fromkeys(("int_from_float", "int_parsing_size"), "expected a whole number"),
}
"""What pydantic says in Python's words, by the type of its finding."""
_PLAIN: Final = {
    "Input should be ": "expected ",
    "a valid integer": "a whole number",
    "a valid ": "a ",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
}
"""What pydantic says otherwise, in plain words; the first of them first."""


class MeshwrightError(Exception):
    """Root of every error that the planner raises on purpose."""

    def __str__(self) -> str:
        """The message on one line, whatever its reader wrote at length."""
        return one_line(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is, whatever it was made from: sweeps send errors between processes."""
        return _rebuild, (type(self), self.args, self.__dict__)


def nearest(asked: str, known: Iterable[str]) -> list[str]:
    """The three names at most that are like one in lower case: first those that go on where it ends."""
    every = sorted(set(known))
    close = difflib.get_close_matches(asked, every, n=3)
    longer = [other for other in every if asked and other.startswith(asked)]
    return list(dict.fromkeys((*longer, *close)))[:3]


class UnknownName(MeshwrightError):
    """A name that the catalogue does not hold.

    Args:
        kind: what was looked up, singular ("cluster").
        name: what was asked for.
        known: every name that exists.
        plain: the name without the words that say nothing, by which the nearest are found; the name itself if empty.
        listed_by: the command that shows every name; the list of that kind if empty.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], plain: str = "", listed_by: str = "") -> None:
        self.kind, self.name = kind, name
        self.near = nearest(plain or name.lower(), known)
        hint = f"did you mean {' or '.join(self.near)}? " if self.near else ""
        own = ", `plan init` writes a file of your own" if kind == "cluster" else ""
        super().__init__(f"unknown {kind} {name!r}: {hint}`{listed_by or f'plan list {kind}s'}` shows all{own}")


class BadQuantity(MeshwrightError, ValueError):
    """A quantity that cannot be read: no unit, another dimension, negative or not finite."""


class BadFile(MeshwrightError):
    """A file that cannot be used.

    Args:
        path: the file.
        reason: one line saying why.
    """

    def __init__(self, path: str | Path, reason: str) -> None:
        self.path, self.reason = str(path), reason
        super().__init__(f"{path}: {reason}")


def _rebuild(kind: type[MeshwrightError], args: tuple[Any, ...], state: Mapping[str, Any]) -> MeshwrightError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def meant(name: str, known: Iterable[str], *, most: int = 1, otherwise: str | None = None) -> str:
    """The end of a sentence about a name that is none of those known: what may be meant by it.

    Args:
        name: as it was given.
        known: the names that there are, in the order in which they are shown; those of a set by the alphabet.
        most: how many of the nearest are offered.
        otherwise: what to say where none is near; all names unless given.
    """
    every = sorted(known) if isinstance(known, set | frozenset) else list(known)
    possible = same_sense(name, every)
    same = [one for one in possible if _stem(one) == _stem(name)]
    if near := same[:1] or difflib.get_close_matches(name, possible, n=most):
        return f"did you mean {' or '.join(near)}?"
    if otherwise is not None:
        return otherwise
    shown, left = (every[:_SOME], len(every) - _SOME) if len(every) > _MANY else (every, 0)
    return f"there are {', '.join(shown)}" + (f" and {left} more" if left else "")


def same_sense(name: str, others: Iterable[str]) -> list[str]:
    """Those of some names that are negated where the name is, as ``no-x`` and ``disable_x`` are: no other is meant."""
    return [other for other in others if bool(_NEGATED.match(other)) == bool(_NEGATED.match(name))]


_NEGATED: Final = re.compile(r"-*(?:\w+\.)*(?:no|not|disable|disabled|without)[-_]")


def _stem(name: str) -> str:
    """What a name has in common with its plural and with other ways to join and capitalise its words."""
    return "".join(filter(str.isalnum, name.lower())).removesuffix("s")


def no_such(name: str, known: Iterable[str], kind: str = "") -> str:
    """The whole sentence about such a name, of a ``kind`` such as "field" where that is not clear."""
    return f"there is no {kind}{' ' if kind else ''}{_short(name)}; {meant(name, known)}"


def check_fields(table: Mapping[str, Any], fields: Collection[str]) -> None:
    """Refuse an unknown field before anything else, with the nearest known one, or all where none is near.

    Raises:
        ValueError: what pydantic's validators and the readers of files pass on.
    """
    for key in table:
        if key not in fields:
            raise ValueError(f"{key!s:.40}: there is no such field; {meant(str(key), fields)}")


def flatten(error: "ValidationError", shares: Collection[str] = ()) -> str:
    """The findings of pydantic in one line: field, what was given, what was expected; of ``shares`` in per cent."""
    found = error.errors(include_url=False)
    # A list whose items are wrong counts as empty besides.
    within = {finding["loc"][:depth] for finding in found for depth in range(len(finding["loc"]))}
    findings = [finding for finding in found if finding["type"] != "too_short" or finding["loc"] not in within]
    findings.sort(key=lambda finding: finding["type"] != "extra_forbidden")  # a misspelt field is missing besides
    lines = [_finding(finding, shares) for finding in findings[:3]]
    if len(findings) > len(lines):
        lines.append(f"and {len(findings) - len(lines)} more")
    return "; ".join(lines)


def _finding(finding: Mapping[str, Any], shares: Collection[str]) -> str:
    where = ".".join(str(part) for part in finding["loc"]) or "the file"
    given, kind, message = finding["input"], finding["type"], str(finding["msg"])
    if kind == "extra_forbidden":
        return f"{where}: there is no such field"
    if kind == "missing":
        return f"{where}: required, but missing"
    if isinstance(given, float) and math.isnan(given):
        return f"{where}: expected a number, and nan is none"
    message = _EXPECTED.get(kind, message.removeprefix("Value error, "))
    if message.startswith("Input should be "):
        for theirs, plain in _PLAIN.items():
            message = message.replace(theirs, plain)
    # Our own sentences about a whole table, or those that show the value, need it not a second time.
    parts = [given, *(given if isinstance(given, list | tuple) else ())]
    said = any(_short(part) in message or (isinstance(part, str) and part and part in message) for part in parts)
    shown = kind == "value_error" and (isinstance(given, Mapping) or said)
    if where in shares and isinstance(given, float):
        limit = f"{message.rpartition(' ')[0]} {100.0 * float(message.rpartition(' ')[2]):g} %"
        return f"{where}: {limit}, got {100.0 * given:g} %"
    if "got " in message or shown:
        return f"{where}: {message}"
    return f"{where}: {message[:1].lower()}{message[1:]}, got {_short(given)}"


def not_parsed(syntax: str, error: Exception, wrong: str = "") -> str:
    """Why a text is not read as JSON, TOML or YAML, by what its parser raised; ``wrong`` is that it is none of it."""
    if isinstance(error, RecursionError) or "nesting depth" in str(error):
        return f"{syntax} nested too deeply"
    return f"{wrong or f'not {syntax}'}: {' '.join(str(error).split())}"


def kind_of(value: object) -> str:
    """What a value of a document is, in plain words."""
    return _KINDS.get(type(value), "something else")


_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "true or false",
    str: "text",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}

_LONGEST_WORD: Final = 200
_LONGEST_LINE: Final = 2000
_LONG_WORD: Final = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")


def one_line(message: str) -> str:
    """A message on one line that a terminal can show: what its reader wrote at length, or in control codes, is cut."""
    line = _LONG_WORD.sub(lambda word: f"{word[0][:_LONGEST_VALUE]}...{word[0][-10:]}", " ".join(message.split()))
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 4 :]}"
    return "".join(char if char.isprintable() else "?" for char in line)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
