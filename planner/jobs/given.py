"""What a file of another program asks for, before it is a request, and the readers of its single values.

Beside the axes of a strategy, readers put among the pins what can only be resolved once the devices are known:

- ``steps``: micro-batches, or local batches, of every data-parallel rank in an iteration.
- ``local``: sequences that every data-parallel rank takes at a time, of which the batch is a multiple.
- ``copies``: groups of data-parallel ranks that share one copy of the states each.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal

from planner.errors import BadRequest
from planner.request.written import many

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


AUTO: Final = "auto"
"""What Hugging Face fills in from its own arguments."""


def table(document: Mapping[str, Any], name: str, *, such_as: str) -> Asked:
    """A table of a document, empty where absent.

    Raises:
        BadRequest: something else is there.
    """
    found = document.get(name)
    if found is None:
        return Asked({})
    if not isinstance(found, Mapping):
        raise BadRequest(f"{name}: expected a table such as {such_as}, got {found!r:.40}")
    return Asked(found)


def whole(at: Mapping[str, Any], name: str, default: int | None = None, *, least: int = 1, within: str = "") -> Any:
    """A whole number, or the default where it is absent or null.

    Raises:
        BadRequest: something else, or less than ``least``.
    """
    value = at.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadRequest(f"{within}{name}: expected a whole number from {least} on, got {value!r:.40}")
    return value


def flag(at: Mapping[str, Any], name: str, *, within: str = "", default: bool = False) -> bool:
    """True or false.

    Raises:
        BadRequest: something else.
    """
    value = at.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{within}{name}: expected true or false, got {value!r:.40}")
    return value


def word(at: Mapping[str, Any], name: str, known: Iterable[str], default: str, *, within: str = "") -> str:
    """One of the words that are known, in any case, as they are written there.

    Raises:
        BadRequest: another.
    """
    value, names = at.get(name), list(known)
    if value is None:
        return default
    spelled = {one.lower(): one for one in names}
    if not isinstance(value, str) or value.lower() not in spelled:
        raise BadRequest(f"{within}{name}: {value!r:.40} is not priced; {', '.join(names)} are")
    return spelled[value.lower()]


_OPTION: Final = re.compile(r"(?m)(?:^|\s)--[a-z][\w-]+")
_KEY: Final = re.compile(r"(?m)^\s*[\w.-]+:(\s|$)")
_TABLES: Final[tuple[tuple[str, str, Callable[[str], Any]], ...]] = (
    ("JSON", "deepspeed", json.loads),
    ("TOML", "torchtitan", tomllib.loads),
)
"""Kinds with a parser, and the format that reads them."""


def refusal(text: str, wanted: str, error: str) -> str:
    """Why a text is not of the kind that is wanted, in a line: what it looks like, or what its parser says.

    Args:
        text: of the file.
        wanted: "JSON" or "TOML".
        error: what the parser of that says.
    """
    seen = _kind(text)
    if seen is None:
        return f"no {wanted}: {error}"
    kind, reads = seen
    return f"no {wanted}: it looks like {kind}" + (f", which --from {reads} reads" if reads else "")


def _kind(text: str) -> tuple[str, str] | None:
    """What a text looks like, and the format that reads it, if any does."""
    if not text.strip():
        return "an empty file", ""
    for kind, reads, parse in _TABLES:
        if _parses(parse, text):
            return kind, reads
    if text.startswith("#!") or _OPTION.search(text):
        return "a script or a command line", "megatron-args"
    if text.lstrip().startswith(("{", "[")):
        return None  # what was meant is plain, and the parser knows where it goes wrong
    return ("YAML", "") if _KEY.search(text) else ("plain text", "")


def _parses(parse: Callable[[str], Any], text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except (ValueError, RecursionError):
        return False


_BATCH: Final = ("global_batch_size", "pins.micro_batch_size")


def settled(
    fields: Mapping[str, Any], pins: Mapping[str, Any], *, asked: Collection[str] = (), length: Length | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and pins with what follows from the number of devices: copies of states, and batches said in steps.

    And the tokens that all of the training has, where they are not given.

    Args:
        fields: of the request.
        pins: of the request, and the words above.
        asked: names that somebody gave beside the file, such as ``pins.tp``; a batch among them is not the file's.
        length: of the training, as the file has it.

    Raises:
        BadRequest: the sizes of batches contradict each other.
    """
    fields, pins = dict(fields), dict(pins)
    copies, steps, local = (pins.pop(name, None) for name in ("copies", "steps", "local"))
    tp, pp, cp = (_one(pins.get(name, 1)) for name in ("tp", "pp", "cp"))
    gpus = _one(fields.get("gpus"))
    if not (gpus and tp and pp and cp) or gpus % (tp * pp * cp):
        return fields, pins  # refused, with the reason, where the degrees are multiplied
    ranks = gpus // (tp * pp)
    if copies:
        pins |= _shared_over(ranks // copies, pins) if ranks % copies == 0 else {"sharding_degree": ranks // copies}
    if not set(_BATCH) & set(asked):
        _settle_batch(fields, pins, ranks // cp, steps=steps, local=local)
    elif steps and "global_batch_size" not in fields and (micro := _one(pins.get("micro_batch_size", 1))):
        fields["global_batch_size"] = micro * steps * (ranks // cp)
    if length and (tokens := length.tokens(*(_one(fields.get(name)) for name in ("global_batch_size", "seq_length")))):
        fields.setdefault("tokens", tokens)
    return fields, pins


def _one(value: Any) -> int:
    """A single number, 0 where it is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _shared_over(degree: int, pins: Mapping[str, Any]) -> dict[str, Any]:
    """States that a group of one rank has for itself are not shared."""
    return {"sharding_degree": degree} if degree > 1 or not pins.get("zero_stage") else {"zero_stage": 0}


def _settle_batch(fields: dict[str, Any], pins: dict[str, Any], replicas: int, *, steps: Any, local: Any) -> None:
    """Fill in the batch or the micro-batch; refuse what does not multiply."""
    batch, micro = fields.get("global_batch_size"), pins.get("micro_batch_size")
    if local and batch and batch % (local * replicas):
        near = max(round(batch / (local * replicas)), 1) * local * replicas
        said = f"{many(local, 'sequence')} x {many(replicas, 'data-parallel rank')}"
        raise BadRequest(f"a global batch of {batch} is no multiple of {said}; {near} is")
    if not steps:
        return
    if batch and micro and batch != micro * steps * replicas:
        each, taken = micro * replicas, micro * steps * replicas
        said = f"{many(micro, 'sequence')} x {many(steps, 'step')} x {many(replicas, 'data-parallel rank')} = {taken}"
        near = [f"a batch of {taken}"]
        near += [many(batch // each, "step")] if batch % each == 0 else []
        near += [f"{taken // batch} pipeline stages (--pp)"] if taken % batch == 0 else []
        raise BadRequest(f"a batch of {batch} contradicts {said}; {' or '.join(near)} would do")
    if batch and not micro:
        each, left = divmod(batch, steps * replicas)
        if left or not each:
            said = f"{many(steps, 'step')} x {many(replicas, 'data-parallel rank')}"
            raise BadRequest(f"a batch of {batch} does not divide into {said}; a multiple of {steps * replicas} does")
        pins["micro_batch_size"] = each
    elif not batch:
        fields["global_batch_size"] = (micro or 1) * steps * replicas
