"""Types of the values that options take: text, numbers, quantities, words; and what a shell completes."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from hardware.errors import meant
from planner.request.fields import LENGTH_UNITS, Kind

_FACTOR: Final = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_DIGITS: Final = re.compile(r"\+?[0-9]+")
_LOOSE: Final = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)([kmbgt]?)", re.IGNORECASE)
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?[a-z]?", re.IGNORECASE)
_LENGTH: Final = re.compile(r"([0-9]{1,6})([km])", re.IGNORECASE | re.ASCII)
_SUFFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_MOST_DIGITS: Final = 15
_LONGEST_TEXT: Final = 4096

_PLACES: Final = ("FILE", "DIR", "PATH")
"""What the placeholder of a parameter that is a file says."""
_NAMES: Final[Mapping[str, str]] = {
    "model": "models",
    "cluster": "clusters",
    "stack": "stacks",
    "target": "exporters",
    "schedule": "schedules",
    "framework": "",
    "name": "",
}
"""The kind of the catalogue that the values of a parameter come from; "" is another place, or all kinds."""


def _complete(param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that begin so, and files where the parameter takes them."""
    found = [CompletionItem(name) for name in _known(param.name or "") if name.startswith(incomplete)]
    placed = str(param.metavar or "")
    files = isinstance(param, click.Argument) or param.name == "output" or any(word in placed for word in _PLACES)
    return found or ([CompletionItem(incomplete, type="file")] if files else [])


def _known(parameter: str) -> Iterable[str]:
    if parameter not in _NAMES:
        return ()
    from planner.frameworks.registry import ANY, FRAMEWORKS
    from planner.render.catalogue import KINDS

    if parameter == "framework":
        return (*FRAMEWORKS, ANY)
    kinds = [_NAMES[parameter]] if _NAMES[parameter] else KINDS
    return sorted({name for kind in kinds for name in KINDS[kind].names()})


class Text(click.ParamType[str]):
    """Text that is neither empty nor another option: a forgotten value must not swallow the next option."""

    name = "text"

    def __init__(self, most: int = _LONGEST_TEXT) -> None:
        self.most = most

    def shell_complete(self, _ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of the catalogue or files, by the parameter."""
        return _complete(param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, stripped."""
        text = str(value).strip()
        if len(text) > self.most:
            self.fail(f"{len(text)} characters, at most {self.most} make sense here", param, ctx)
        if not text:
            self.fail("empty, where a value is expected", param, ctx)
        if codes := [char for char in text if unicodedata.category(char) == "Cc" and char not in "\t\n\r"]:
            self.fail(f"the control character {codes[0]!r} stands in {short(text)}", param, ctx)
        if text.startswith("--"):
            self.fail(f"expected a value, got the option {text!r}", param, ctx)
        return text


class Read(Text):
    """Text that a function reads; what it says against it ends the command."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        super().__init__()
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What it stands for."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(super().convert(value, param, ctx))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def read_as(kind: Kind) -> Read:
    """Text that is read as the fields of a kind are."""

    def read(text: str) -> Any:
        from planner.request.values import READERS

        return READERS[kind](text)

    return Read(read)


def quantity(dimension: str, most: float = math.inf, *, zero: bool = False) -> Read:
    """Text that is a quantity above nothing, or nothing too, in the units of the code."""

    def read(text: str) -> float:
        from hardware.units import parse_quantity

        if not text.isascii():
            raise ValueError(f"expected plain digits and a unit, got {text!r}")
        found = parse_quantity(text, dimension)  # type: ignore[arg-type]  # one of the units'
        if not (0.0 < found <= most or (zero and not found)):
            raise ValueError(f"expected more than 0 and at most {most:g}, got {text!r:.40}")
        return found

    return Read(read)


def factor(text: str) -> float:
    """A plain number."""
    if not _FACTOR.fullmatch(text):
        raise ValueError(f"expected a plain number such as 1.25, got {text!r:.40}")
    return float(text)


class Count(click.ParamType[int]):
    """A whole number in plain digits: "12k" or "1e3" may be meant well, but nobody should have to guess."""

    name = "n"

    def __init__(self, least: int = 1, most: int = 10**_MOST_DIGITS) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if not _DIGITS.fullmatch(text):
            self.fail(self._refusal(text, param), param, ctx)
        if len(text) > _MOST_DIGITS:
            self.fail(f"a number of {len(text)} digits is out of range", param, ctx)
        if int(text) < self.least:
            self.fail(f"expected at least {self.least}, got {text}", param, ctx)
        if int(text) > self.most:
            self.fail(f"expected at most {self.most}, got {text}", param, ctx)
        return int(text)

    def _refusal(self, text: str, param: click.Parameter | None) -> str:
        if not text:
            return "empty, where a whole number such as 64 is expected"
        meant = _meant(text)
        if meant is not None and meant < self.least:
            return f"expected at least {self.least}, got {short(text)}"
        binary = f" or {meant * 128 // 125}" if meant and text.lower().endswith("k") and meant % 125 == 0 else ""
        hint = "such as 64" if meant is None else f"in plain digits: write {meant}{binary}"
        said = param.help if isinstance(param, click.Option) and param.help and meant is not None else ""
        of = f" ({said[:1].lower()}{said[1:].partition('.')[0]})" if said else ""  # sequences, say, and not tokens
        return f"expected a whole number {hint}, got {short(text)}{of}"


class Length(Count):
    """Tokens of a sequence: the same, but that everybody means 8,192 by "8k" and 1,048,576 by "1M"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if found := _LENGTH.fullmatch(str(value).strip()):
            value = int(found[1]) * LENGTH_UNITS[found[2].lower()]
        return super().convert(value, param, ctx)


def _meant(text: str) -> int | None:
    """The whole number that "12k", "1e3", "12,288" or "１２" stand for, if there is one."""
    plain = unicodedata.normalize("NFKC", text)
    if "," in plain and not _THOUSANDS.fullmatch(plain.strip()):
        return None  # a list, not a number in groups of three digits
    match = _LOOSE.fullmatch(re.sub(r"gpus?$", "", re.sub(r"[,_'\s]", "", plain), flags=re.IGNORECASE))
    if match is None or len(text) > 2 * _MOST_DIGITS:
        return None
    number = float(match[1]) * _SUFFIXES[match[2].lower()]
    return int(number) if number.is_integer() and abs(number) < 10**_MOST_DIGITS else None


def short(text: str) -> str:
    """A value as an error quotes it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


class Word(click.Choice[str]):
    """One of a few words; a singular is understood where plurals are listed."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click's
        """The words."""
        return "|".join(map(str, self.choices))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word."""
        text = str(value).strip().lower()
        words = list(map(str, self.choices))
        for spelling in (text, f"{text}s"):
            if spelling in words:
                return spelling
        raise click.BadParameter(f"there is no {short(str(value))}: {meant(text, words)}", ctx, param)
