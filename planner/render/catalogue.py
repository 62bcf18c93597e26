"""The catalogues as tables: every kind of entry, and every figure of an entry with its source."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic.fields import FieldInfo

import costmodels
from costmodels.model import catalogue
from costmodels.pipeline.schedules import ALIASES, SCHEDULES
from costmodels.stack.combined import COMBINED
from costmodels.stack.stack import releases, stack_names
from costmodels.stack.stack import stack as stack_of
from costmodels.stack.switches import Switches
from hardware import files
from hardware.catalogue import source_texts
from hardware.errors import MeshwrightError, UnknownName, nearest
from hardware.spelling import bare_name, parse_name
from hardware.units import format_quantity
from planner.answer.text import format_count, format_whole_count
from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.registry import SHORT, TARGETS
from planner.rules.core import GROUP_RULES, RULES

EVERY_RULE: Final = (
    *RULES,
    *GROUP_RULES,
    *{rule.name: rule for one in FRAMEWORKS.values() for rule in one.rules}.values(),
)
_HERE: Final = Path(costmodels.__file__).parent
_LABELS: Final = {"name", "title", "source", "sources"}
_EXAMPLE: Final = (8, 32)
"""Stages and micro-batches for which bubble and memory of a schedule are shown."""
_VISIBLE: Final = 5e-4
_LARGE: Final = 1_000_000
"""From which on counts are said in letters."""
_KEY: Final = re.compile(r"\[([a-z0-9_]+)\]")


@dataclass(frozen=True)
class Figure:
    """One fact of an entry: where it stands in the record, what it is and who says so."""

    field: str
    value: Any
    """A number, a switch, text, which quantities are with their unit, or a list of these; as the file states it."""
    source: str

    @property
    def text(self) -> str:
        """The value as people read it, a large count in letters too."""
        large = isinstance(self.value, int) and self.value >= _LARGE
        return format_whole_count(self.value) if large else _text(self.value)


@dataclass(frozen=True)
class Kind:
    """One kind of catalogue entries, by its plural name on the command line."""

    name: str
    names: Callable[[], tuple[str, ...]]
    aliases: Callable[[], Mapping[str, str]]
    entry: Callable[[str], Mapping[str, Any]]
    columns: tuple[str, ...]
    """Fields that a list shows."""
    brief: int
    """How many of them, from the first, say what an entry is where there is no room for all."""
    family: Callable[[Mapping[str, Any]], str]
    """What a long list puts in one line, of an entry."""


def _toml(folder: str) -> Callable[[str], Mapping[str, Any]]:
    def entry(name: str) -> Mapping[str, Any]:
        return {"name": name} | tomllib.loads((_HERE / folder / f"{name}.toml").read_text(encoding="utf-8"))

    return entry


def _attributes(find: Callable[[str], object], *fields: str) -> Callable[[str], Mapping[str, Any]]:
    return lambda name: {field: getattr(find(name), field) for field in fields}


def _schedule(name: str) -> Mapping[str, Any]:
    """What is published of a schedule, and what the closed forms say of the example in ``_EXAMPLE``."""
    found = SCHEDULES[name]
    p, m = (1, _EXAMPLE[1]) if name == "none" else _EXAMPLE
    v = next(chunks for chunks in (1, 2) if found.allowed(p, m, chunks))
    third, stages = 1.0 / 3.0, np.arange(p)
    idle, with_barrier = (float(found.drain(p, m, v, third, third, third, barrier=end)) / m for end in (False, True))
    held = found.in_flight(p, m, v, stages)
    return {
        "name": name,
        "bubble": f"{idle:.1%}"
        + (f" ({with_barrier:.1%} with a barrier)" if abs(with_barrier - idle) > _VISIBLE else ""),
        "in_flight": f"{held[0]:g}" + (f" to {held[-1]:g}" if held[-1] != held[0] else ""),
        "parameters": f"{found.parameters_held:g}x",
        "requires": found.requires,
        "example": f"{p} stages, {m} micro-batches, {v} chunk{'s' if v > 1 else ''}, forward and both gradients alike",
        "weight_gradients": "apart" if found.splits_backward else "with the backward pass",
        "aliases": ", ".join(alias for alias, full in ALIASES.items() if full == name) or "none",
        "stacks": ", ".join(one for one in stack_names() if name in stack_of(one).supports.schedules) or "none",
        "source": found.source,
    }


def _nobody() -> Mapping[str, str]:
    return {}


def _first_word(entry: Mapping[str, Any]) -> str:
    return str(entry["name"]).partition("-")[0]


def _accelerators(entry: Mapping[str, Any]) -> str:
    """The first words of what a cluster's nodes have: "a100 + h100"."""
    return " + ".join(dict.fromkeys(str(one).partition("-")[0] for one in _stated(entry, "accelerator")))


def _maker(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('vendor', '')} {entry.get('architecture', '')}".strip()


def _hardware(kind: files.Kind, family: Callable[[Mapping[str, Any]], str], *columns: str) -> Kind:
    return Kind(
        f"{kind}s",
        lambda: files.names(kind),
        lambda: files.aliases(kind),
        lambda name: {"name": name} | files.entry(kind, name),
        columns,
        brief=2,
        family=family,
    )


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(
            "models",
            lambda: tuple(catalogue.names()),
            catalogue.aliases,
            _toml("model/models"),
            ("name", "title", "num_layers", "hidden_size", "num_heads", "seq_length"),
            brief=2,
            family=lambda entry: str(entry.get("family") or _first_word(entry)),
        ),
        _hardware("cluster", _accelerators, "name", "title", "accelerator", "gpus_per_node"),
        _hardware("accelerator", _maker, "name", "title", "memory", "memory_bandwidth", "year"),
        _hardware("link", _first_word, "name", "bandwidth", "efficiency", "step_latency"),
        _hardware("server", _first_word, "name", "title", "nodes", "memory", "accelerator", "price"),
        Kind("stacks", stack_names, _nobody, _toml("stack/stacks"), ("name", "title"), 2, _first_word),
        Kind(
            "rules",
            lambda: tuple(r.name for r in EVERY_RULE),
            _nobody,
            _attributes(
                lambda name: next(rule for rule in EVERY_RULE if rule.name == name),
                *("name", "kind", "reads", "sentence", "source"),
            ),
            ("name", "kind", "sentence", "source"),
            brief=3,
            family=lambda entry: _first_word(entry) if entry["kind"] == "framework" else str(entry["kind"]),
        ),
        Kind(
            "schedules",
            lambda: tuple(SCHEDULES),
            lambda: ALIASES,
            _schedule,
            ("name", "bubble", "in_flight", "parameters", "requires", "source"),
            brief=5,
            family=_first_word,
        ),
        Kind(
            "exporters",
            lambda: tuple(TARGETS),
            lambda: SHORT,
            _attributes(TARGETS.__getitem__, "name", "kind", "title", "versions", "checked"),
            ("name", "kind", "title", "versions", "checked"),
            brief=3,
            family=lambda entry: str(entry["kind"]),
        ),
    )
}


def rows(kind: str, word: str = "") -> list[dict[str, Any]]:
    """Every entry of a kind that says a word, with the fields that its list shows, as the files state them.

    Where the node groups of a cluster say different things there is a list, and None where nobody says anything.
    """
    shown = ({column: _stated(entry, column) for column in KINDS[kind].columns} for entry in entries(kind, word))
    return [{c: said[0] if len(said) == 1 else said or None for c, said in row.items()} for row in shown]


def lines(kind: str, word: str = "") -> list[dict[str, str]]:
    """The same as people read it."""
    return [
        {column: " + ".join(map(_text, _stated(entry, column))) for column in KINDS[kind].columns}
        for entry in entries(kind, word)
    ]


def families(kind: str, word: str = "") -> dict[str, list[str]]:
    """The names of a kind's entries that say a word, by family, in the order of the alphabet."""
    found: dict[str, list[str]] = {}
    for entry in sorted(entries(kind, word), key=KINDS[kind].family):
        found.setdefault(KINDS[kind].family(entry), []).append(str(entry["name"]))
    return found


def entries(kind: str, word: str = "") -> list[Mapping[str, Any]]:
    """The entries of a kind; those that a word stands in, in a field of the list, the family or a short name.

    Raises:
        UnknownName: it stands in none; the message lists the nearest names.
    """
    listed = KINDS[kind]
    others: dict[str, list[str]] = {}
    for alias, full in listed.aliases().items():
        others.setdefault(full, []).append(alias)

    def says(entry: Mapping[str, Any]) -> str:
        fields = [_text(one) for column in listed.columns for one in _stated(entry, column)]
        return " ".join([*fields, listed.family(entry), *others.get(str(entry["name"]), ())]).lower()

    wanted = word.lower().split()
    found = [entry for entry in map(listed.entry, listed.names()) if all(one in says(entry) for one in wanted)]
    if not found:
        raise UnknownName(kind.removesuffix("s"), word, [*listed.names(), *listed.aliases()], bare_name(word))
    return found


def _stated(entry: Mapping[str, Any], column: str) -> list[Any]:
    """What an entry says, or else the node groups of a mixed cluster do."""
    if column in entry:
        return [entry[column]]
    return list(dict.fromkeys(group[column] for group in entry.get("groups", ()) if column in group))


def find(name: str, kinds: tuple[str, ...] = tuple(KINDS)) -> tuple[Kind, str]:
    """The kind and the full name behind a name or alias.

    Raises:
        UnknownName: there is none; the message lists the nearest.
        BadRequest: several kinds have one.
    """
    lowered = name.strip().lower()
    exact = [(KINDS[kind], lowered) for kind in kinds if lowered in KINDS[kind].names()]
    known = [(kind, kind.aliases()) for kind in (KINDS[name] for name in kinds)]
    short = [(kind, aliases[lowered]) for kind, aliases in known if lowered in aliases]
    found = exact or short or _otherwise(name, kinds)
    if not found:
        everything = [entry for kind in kinds for entry in (*KINDS[kind].names(), *KINDS[kind].aliases())]
        raise _unknown(name, kinds, everything)
    if len(found) > 1:  # whoever names a framework means its stack, of which there is more to show than of its exporter
        found = [one for one in found if one[0].name != "exporters"] or found
    if len(found) > 1:
        ways = " or ".join(f"`plan show {full} --kind {kind.name}`" for kind, full in found)
        raise BadRequest(f"{name!r} names several things: {ways}")
    return found[0]


def _otherwise(name: str, kinds: tuple[str, ...]) -> list[tuple[Kind, str]]:
    """Models by a name of a hub, else machines whose names are spelled otherwise, full names before short ones."""
    if "models" in kinds and (model := catalogue.entry_on_hub(name)):
        return [(KINDS["models"], model)]
    machines: dict[str, files.Kind] = {f"{kind}s": kind for kind in files.KINDS}
    tried = [(KINDS[kind], files.respelled(machines[kind], name)) for kind in kinds if kind in machines]
    found = [(kind, full) for kind, full in tried if full is not None]
    return [(kind, full) for kind, full in found if parse_name(full).stem == parse_name(name).stem] or found


def _unknown(name: str, kinds: tuple[str, ...], known: list[str]) -> MeshwrightError:
    if len(kinds) == 1:
        return UnknownName(kinds[0].removesuffix("s"), name, known, bare_name(name))
    if name.lower().endswith((".toml", ".json")):
        return BadRequest(f"{name!r} is a file: `plan show` takes names of the catalogue (`plan list`)")
    near = nearest(bare_name(name) or name.lower(), known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"`plan list` shows {', '.join(kinds)}"
    return BadRequest(f"the catalogue has no {name!r}: {hint}")


def figures(kind: Kind, name: str) -> list[Figure]:
    """Every fact of an entry, as its file states it, with its source."""
    entry = kind.entry(name)
    sources = entry.get("sources", {})
    texts = source_texts()
    general = str(entry.get("source", ""))
    return [
        Figure(path, value, _cited(inner or _longest(path, sources) or general, texts))
        for path, value, inner in _leaves(entry, "", "")
        if path not in _LABELS and not path.startswith("sources.")
    ]


@dataclass(frozen=True)
class Switch:
    """One switch of a stack: its value there, what it does, and what frameworks call it."""

    name: str
    value: Any
    sentence: str
    words: tuple[str, ...]
    bytes: bool = False
    """Whether the value is of bytes."""

    @property
    def text(self) -> str:
        """The value as people read it."""
        if self.value in (None, ()):
            return "none"
        if self.bytes and self.value:
            return format_quantity(self.value, "bytes")
        if isinstance(self.value, float):
            return f"{self.value:g}" if self.value < _LARGE else format_count(self.value)
        return _text(self.value)

    @property
    def short(self) -> tuple[str, str]:
        """The value and what the switch does, for one line; a list of values begins."""
        first, comma, _ = self.text.partition(", ")
        return f"{first}, …" if comma else first, self.sentence.partition("; ")[0]


def switches(name: str) -> list[Switch]:
    """What a user sets of a stack, with the values that it has."""
    stack = stack_of(name)
    plain = [
        Switch(
            field,
            getattr(stack.switches, field),
            str(info.description),
            tuple(_words(info)),
            bytes="byte" in info.metadata,
        )
        for field, info in Switches.model_fields.items()
    ]
    return plain + [Switch(field, one.read(stack), one.sentence, one.words) for field, one in COMBINED.items()]


def release_lines(name: str) -> list[str]:
    """The releases of a stack as people read them: name, month, what changed."""
    return [f"{name}@{one.name}  since {one.since}: {one.reason}" for one in releases(name)]


def _words(info: FieldInfo) -> list[str]:
    extra = info.json_schema_extra
    return [str(word) for word in extra["words"]] if isinstance(extra, dict) else []  # type: ignore[union-attr]


def title(kind: Kind, name: str) -> str:
    """What people call an entry."""
    return _text(kind.entry(name).get("title", name))


def shorts(kind: Kind, name: str) -> list[str]:
    """Other names of an entry."""
    return sorted(alias for alias, full in kind.aliases().items() if full == name)


def _leaves(value: Any, path: str, source: str) -> Iterator[tuple[str, Any, str]]:
    """(path, value, source of the table it stands in); a table's own source covers what is below it."""
    if isinstance(value, Mapping):
        inner = str(value.get("source", source)) if path else source
        for name, below in value.items():
            if not (path and name == "source"):
                yield from _leaves(below, f"{path}.{name}".strip("."), inner)
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for place, below in enumerate(value):
            yield from _leaves(below, f"{path}[{place}]", source)
    else:
        yield path, value, source


def _longest(path: str, sources: Mapping[str, str]) -> str:
    fitting = [prefix for prefix in sources if path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))]
    return sources[max(fitting, key=len)] if fitting else ""


def _cited(source: str, texts: Mapping[str, str]) -> str:
    """A key of the list of sources, or keys in brackets within a sentence, as what they stand for."""
    if source in texts:
        return texts[source]
    return _KEY.sub(lambda match: f"[{texts.get(match[1], match[1])}]", source)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
