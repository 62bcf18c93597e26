"""The options of a framework as one table: what reads a file of it and what writes one go through the same rows.

A row has the option's word, the field that it stands for, and how its value is spelled. Command lines hold words; JSON
and TOML hold tables, where a word is a path such as ``parallelism.tensor_parallel_degree``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, get_args

from hardware.errors import same_sense
from planner.errors import BadRequest
from planner.jobs.values import ABSENT, data, pattern, put, truth, whole, words

ALIKE: Final = 0.85
"""How alike two names are of which one may be meant by the other (``difflib``)."""


Kind = Literal["number", "flag", "choice", "text"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        word: as files spell it, without dashes in front; where they have tables, the path of table and key.
        field: of the request, the strategy or the model; a name of its own where it says a part of one.
        kind: what its value is: a whole number, on or off, one of some words, or anything else.
        values: what each of these words stands for; the first word of a value is the one that is written.
        default: the value where a file leaves it out, where that is known.
        least: the smallest number that it takes.
        since: the first version that has it, where older ones are written too.
        until: the last version that has it.
        older: spellings of before, which are read.
    """

    word: str
    field: str
    kind: Kind
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    default: Any = None
    least: int = 1
    since: str = ""
    until: str = ""
    older: tuple[str, ...] = ()

    def spelled(self, value: Any) -> Any:
        """The file's value for a field's."""
        return next(word for word, meant in self.values.items() if meant == value) if self.values else value

    def known_to(self, version: str) -> bool:
        """Whether a version of the framework has it."""
        return not version or (self.since <= version and (not self.until or version <= self.until))


_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def rows(
    table: Mapping[str, str | Mapping[str, Any]], values: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Option]:
    """Options of a table of data.

    Args:
        table: by an option's word its kind, or its field under the kind with the rest of it; older words are one text,
            and so are the words of a choice that stand for themselves.
        values: what words stand for, by field, where the row does not say it.
    """
    for word, said in table.items():
        more: dict[str, Any] = {said: ""} if isinstance(said, str) else dict(said)
        kind = next(one for one in _KINDS if one in more)
        field, older = more.pop(kind) or word.replace("-", "_"), tuple(more.pop("older", "").split())
        if kind == "flag":
            more["default"] = False
        if kind == "choice":
            known = more.pop("values", None) or (values or {})[field]
            more["values"] = {one: one for one in known.split()} if isinstance(known, str) else known
        yield Option(word, field, kind, older=older, **more)


class Options:
    """The options of a framework by field, in the order in which they are written."""

    def __init__(self, *rows: Option) -> None:
        self._rows = {row.field: row for row in rows}
        assert len(self._rows) == len(rows), "two options of one field"

    def __iter__(self) -> Iterator[Option]:
        return iter(self._rows.values())

    def __getitem__(self, field: str) -> Option:
        return self._rows[field]

    def written(self, values: Mapping[str, Any], version: str = "") -> Iterator[tuple[Option, Any]]:
        """Every option of a version whose field has a value, with the value as the file spells it."""
        assert set(values) <= set(self._rows), set(values) - set(self._rows)
        for row in self:
            if values.get(row.field) is not None and row.known_to(version):
                yield row, row.spelled(values[row.field])

    def words(self, values: Mapping[str, Any], version: str = "") -> list[str]:
        """A command line of the fields that have a value: a flag that is on has none of its own."""
        found: list[str] = []
        for row, value in self.written(values, version):
            if value is not False:
                found += [f"--{row.word}", *_words(value)]
        return found

    def tables(self, values: Mapping[str, Any], version: str = "") -> dict[str, dict[str, Any]]:
        """Keys and values of the fields that have one, by the path of their table."""
        found: dict[str, dict[str, Any]] = {}
        for row, value in self.written(values, version):
            path, _, key = row.word.rpartition(".")
            found.setdefault(path, {})[key] = value
        return found

    def document(self, values: Mapping[str, Any], version: str = "") -> dict[str, Any]:
        """The same, as tables within tables."""
        found: dict[str, Any] = {}
        for row, value in self.written(values, version):
            put(found, row.word.split("."), value)
        return found


def options_of(name: str) -> Options:
    """The options of a framework by its folder, whose ``options.toml`` has a row each."""
    said = data(f"{name}/options")
    return Options(*rows(said["options"], said.get("values")))


def _words(value: Any) -> list[str]:
    if value is True:
        return []
    several = value if isinstance(value, list | tuple) else [value]
    return [f"{one:g}" if isinstance(one, float) else str(one) for one in several]


def without_price(word: str, value: object, priced: Collection[str]) -> BadRequest:
    """The refusal of an option's value, with those that have a price."""
    return BadRequest(f"{word}: {value!r:.40} is not priced; {', '.join(priced)} {'are' if len(priced) > 1 else 'is'}")


def applicable(remarks: Mapping[str, bool]) -> tuple[str, ...]:
    """The remarks that hold, of a table of remarks and whether they do."""
    return tuple(remark for remark, holds in remarks.items() if holds)


def present(**values: Any) -> dict[str, Any]:
    """The values that are neither None nor empty."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


def typed(values: Mapping[str, Any], options: Options, *, words: bool = True) -> dict[str, Any]:
    """A file's or a command line's values with those of the options as what they are, under their present names.

    Numbers may be words (``300_000_000``, ``2e9``) unless a file takes them for text, switches too (``True``, ``no``);
    ``none`` says nothing. What is no such value stays, and is refused where it is read.
    """
    found = {str(name): dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    for row in options:
        for word in (row.word, *row.older):
            _retype(found, word, row, words=words)
    return found


def _retype(found: dict[str, Any], word: str, row: Option, *, words: bool) -> None:
    """Put the value of one spelling, if it is there, as it is meant where the present spelling stands."""
    at, key = _table(found, word)
    if at is None or key not in at:
        return
    value = at.pop(key)
    value = _meant(value, row) if words or row.kind == "flag" or not isinstance(value, str) else value
    place, name = (at, key) if word == row.word else _table(found, row.word)
    if place is None:
        place, name = at, key  # an older table as a whole
    if value is not None and name not in place:
        place[name] = value


def _table(found: dict[str, Any], word: str) -> tuple[dict[str, Any] | None, str]:
    """The table of a path, and its key in it; None where there is no such table."""
    *path, key = word.split(".")
    at: Any = found
    for name in path:
        inner = at.get(name)
        if not isinstance(inner, Mapping):
            return None, key
        if not isinstance(inner, dict):
            at[name] = inner = dict(inner)
        at = inner
    return at, key


def _meant(value: Any, row: Option) -> Any:
    if isinstance(value, str) and value.strip().lower() in ABSENT and row.kind != "choice":
        return None
    if row.kind == "number":
        found = whole(value)
        return value if found is None else found
    if row.kind == "flag":
        found_truth = truth(value)
        return value if found_truth is None else found_truth
    if row.kind == "choice" and isinstance(value, bool):
        return "yes" if value else "no"  # YAML's no stands for itself in words
    return value


class Tracked(dict[str, Any]):
    """Values by name, and which names were asked for, whether they are there or not."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Of a file's values; YAML's names may be numbers."""
        super().__init__({str(name): value for name, value in values.items()})
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

        Names of the pattern of harmless ones need none; the prefix stands in front of a name where it is shown.
        """
        left = [name for name in self if name not in self.names and not re.fullmatch(harmless, name)]
        near = {f"{prefix}{name}": get_close_matches(name, same_sense(name, self.names), 1, ALIKE) for name in left}
        slips = [f"{name} is not known; did you mean {prefix}{close[0]}?" for name, close in near.items() if close]
        listed = ", ".join(name for name, close in near.items() if not close)
        return (*slips, *([f"not read, so their effect on time and memory is not priced: {listed}"] if listed else ()))


class Document:
    """A file of tables, parsed, that is read by the fields of a framework's options."""

    def __init__(self, document: Mapping[str, Any], options: Options) -> None:
        self._options = options
        self._tables = {"": Tracked(document)}

    def table(self, path: str) -> Tracked:
        """A table of the file, empty where absent; refused where something else is there."""
        if path not in self._tables:
            above, _, name = path.rpartition(".")
            found = self.table(above).get(name)
            if found is not None and not isinstance(found, Mapping):
                key = next(row.word for row in self._options if row.word.startswith(path)).removeprefix(f"{path}.")
                raise BadRequest(f"{path}: expected a table with keys such as {key}, got {found!r:.40}")
            self._tables[path] = Tracked(found or {})
        return self._tables[path]

    def raw(self, field: str) -> Any:
        """What the file has for a field, whatever it is; None where it has nothing."""
        at, name = self._place(field)
        return at.get(name)

    def __call__(self, field: str) -> Any:
        """The value of a field, the option's default where the file has none; refused if the option takes no such."""
        option = self._options[field]
        value, shown = self.raw(field), option.word
        if value is None:
            return option.default
        if option.kind == "number" and (isinstance(value, bool) or not isinstance(value, int) or value < option.least):
            raise BadRequest(f"{shown}: expected a whole number from {option.least} on, got {value!r:.40}")
        if option.kind == "flag" and not isinstance(value, bool):
            raise BadRequest(f"{shown}: expected true or false, got {value!r:.40}")
        if option.kind == "choice":
            known = {word.lower(): meant for word, meant in option.values.items()}
            if not isinstance(value, str) or value.lower() not in known:
                raise without_price(shown, value, option.values)
            return known[value.lower()]
        return value

    def each(self, *fields: str) -> dict[str, Any]:
        """The values of some fields."""
        return {field: self(field) for field in fields}

    def needed(self, field: str) -> int:
        """The whole number of a field, which the file must have."""
        found: int | None = self(field)
        if found is None:
            raise BadRequest(f"{self._options[field].word} is missing")
        return found

    def unread(self, path: str, harmless: str) -> tuple[str, ...]:
        """Remarks on the names of a table that were not read."""
        return self.table(path).unread(harmless, prefix=path and f"{path}.")

    def left(self, tables: Mapping[str, str]) -> tuple[str, ...]:
        """Remarks on the names of tables that were not read; those behind each table's path change no price."""
        return tuple(line for path, names in tables.items() for line in self.unread(path, pattern(words(names))))

    def _place(self, field: str) -> tuple[Tracked, str]:
        """The table and the key that a field has here, of the older spellings where only their table is there."""
        option = self._options[field]
        places = [word.rpartition(".") for word in (option.word, *option.older)]
        there = [place for place in places if dict.__contains__(self.table(place[0]), place[2])]
        near = [place for place in places if self.table(place[0])]
        path, _, name = (*there, *near, *places)[0]
        return self.table(path), name


class Arguments(Tracked):
    """The options of a command line, without dashes, with their words, read by the fields of a framework's options."""

    _DIGITS: Final = 16

    def __init__(self, words: Mapping[str, Sequence[str]], options: Options) -> None:
        super().__init__(words)
        self._options = options

    def word_of(self, field: str) -> str:
        """The spelling that the command line has of an option, its present one where it has none."""
        option = self._options[field]
        return next((word for word in (option.word, *option.older) if word in self), option.word)

    def given(self, field: str) -> bool:
        """Whether the option is there."""
        return self.word_of(field) in self

    def words(self, field: str) -> Sequence[str]:
        """All its words."""
        return super().get(self.word_of(field), ())

    def text(self, field: str) -> str:
        """Its first word, empty where it has none."""
        return next(iter(self.words(field)), "")

    def __call__(self, field: str) -> Any:
        """What it says: whether a flag is there, a number, what a word stands for; else the option's default."""
        option, word, value = self._options[field], self.word_of(field), self.text(field)
        if word not in self:
            return option.default
        if option.kind == "flag":
            return True
        if option.kind == "choice":
            if value not in option.values:
                raise without_price(f"--{word}", value, option.values)
            return option.values[value]
        return value if option.kind == "text" else self._number(word, value, option.least)

    def _number(self, word: str, value: str, least: int) -> int:
        if value.startswith("$"):
            raise BadRequest(f"--{word}: {value:.40} is not set anywhere in the script; write its value there")
        if value.isascii() and len(value) <= self._DIGITS:
            with suppress(ValueError):  # as Python reads one: 300_000 too
                if (found := int(value)) >= least:
                    return found
        raise BadRequest(f"--{word}: expected a whole number from {least} on, got {value!r:.40}")

    def real(self, field: str) -> float | None:
        """Its number, None where it is absent."""
        value = self.text(field)
        try:
            return float(value) if self.given(field) else None
        except ValueError:
            raise BadRequest(f"--{self.word_of(field)}: expected a number, got {value!r:.40}") from None

    def each(self, *fields: str) -> dict[str, Any]:
        """The values of some fields."""
        return {field: self(field) for field in fields}

    def needed(self, field: str) -> int:
        """Its whole number, which must be there."""
        found: int | None = self(field)
        if found is None:
            raise BadRequest(f"--{self.word_of(field)} is missing, and the model needs it; give it, or --model")
        return found

    def check_choices(self) -> None:
        """Refuse words that no option of a few words has; the options need not be read for that."""
        asked = set(self.names)
        for option in self._options:
            if option.kind == "choice":
                self(option.field)
        self.names = asked
