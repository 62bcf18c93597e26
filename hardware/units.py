"""Quantities: how people write them, and the one unit in which the code computes.

Inside the code there are only bytes, seconds, FLOP, watts and dollars, as plain floats. Files and the
command line write quantities with their unit ("3.35 TB/s", "400 Gb/s", "1 per 50000 h"); a bare number
where a quantity belongs is an error, because nobody can tell GB from GiB, or bits from bytes, by looking.

The annotations (``Bytes``, ``Seconds``...) carry the unit of a float in the notation of pint, so that a
test can prove that every formula is dimensionally sound.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)

from hardware.errors import BadQuantity

Bytes = Annotated[float, "byte"]
Seconds = Annotated[float, "second"]
PerSecond = Annotated[float, "1/second"]
Count = Annotated[float, ""]
Watts = Annotated[float, "watt"]
DollarsPerSecond = Annotated[float, "dollar/second"]
Dollars = Annotated[float, "dollar"]

Dimension = Literal["bytes", "bandwidth", "rate", "time", "power", "price", "count", "frequency", "money"]

_DECIMAL: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SHOWN: Final = tuple(_DECIMAL)[:-1]
_BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_TIME: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONG_TIME: Final = {"hour": 3600.0, "hours": 3600.0, "day": 86400.0, "days": 86400.0, "second": 1.0}
_BYTES: Final = {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()}
_BANDWIDTH: Final = {f"{unit}/s": factor for unit, factor in _BYTES.items()} | {
    f"{p}{bit}": f / 8 for p, f in _DECIMAL.items() for bit in ("b/s", "bit/s", "bps")
}
_RATE: Final = {f"{p}{unit}": f for p, f in _DECIMAL.items() for unit in ("FLOP/s", "FLOPS", "FLOPs/s")}
_COUNT: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "P": 1e15}
_MONEY: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}
_PRICE: Final = {"$/h": 1 / 3600, "$/hour": 1 / 3600, "$/d": 1 / 86400, "$/s": 1.0}
_FREQUENCY: Final = {"/h": 1 / 3600, "/d": 1 / 86400, "/s": 1.0}


@dataclass(frozen=True)
class Matching:
    """Marks text that has a form, of which ``example`` is one; messages show that, and schemas the pattern."""

    pattern: str
    example: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """The schema of text, checked."""
        return AfterValidator(self._checked).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> Any:
        """The schema of text with the pattern."""
        return handler(core) | {"pattern": f"^{self.pattern}$"}

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"expected {self.example}, got {text!r:.60}")
        return text


class _Units(NamedTuple):
    phrase: str
    """How a message calls the dimension, with its article."""
    example: str
    factors: Mapping[str, float]
    """Unit to its size in the base unit."""
    shown: tuple[str, ...]
    """Units that are printed, small to large."""
    base: str
    """Unit of the float inside the code."""


_UNITS: Final[Mapping[Dimension, _Units]] = {
    "bytes": _Units("a size", "80 GiB", _BYTES, tuple(f"{p}B" for p in _SHOWN), "B"),
    "bandwidth": _Units("a bandwidth", "3.35 TB/s", _BANDWIDTH, tuple(f"{p}B/s" for p in _SHOWN), "B/s"),
    "rate": _Units("a compute rate", "989 TFLOP/s", _RATE, tuple(f"{p}FLOP/s" for p in _DECIMAL), "FLOP/s"),
    "time": _Units("a time", "5 us", _TIME, ("ns", "us", "ms", "s", "min", "h", "d"), "s"),
    "power": _Units("a power", "700 W", {"W": 1.0, "kW": 1e3, "MW": 1e6}, ("W", "kW", "MW"), "W"),
    "price": _Units("a price", "2.95 $/h", _PRICE, ("$/h",), "$/s"),
    "count": _Units("a count", "175B", _COUNT, ("", "k", "M", "B", "T"), ""),
    "frequency": _Units("a failure rate", "1 per 50000 h", _FREQUENCY, (), "/s"),
    "money": _Units("an amount of money", "$1.5M", _MONEY, ("", "k", "M", "B"), ""),
}

ROUNDING: Final = 1e-15
"""What is lost when a decimal fraction of a million is multiplied out, as a share."""
_NUMBER: Final = r"[+-]?(?:\d+(?:_\d+)*\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|inf|infinity)"
_QUANTITY: Final = re.compile(rf"\s*(\$?)\s*({_NUMBER})\s*(\D*?)\s*", re.IGNORECASE)
_PER: Final = re.compile(rf"\s*({_NUMBER})\s+per\s+({_NUMBER})?\s*([A-Za-z]+)\s*", re.IGNORECASE)


def parse_quantity(text: object, dimension: Dimension) -> float:
    """A quantity as people write it, in the base unit of its dimension.

    Args:
        text: "3.35 TB/s", "1 per 50000 h", "$2.95/h"; a plain number only where the dimension is "count".
        dimension: which units are allowed.

    Returns:
        bytes, bytes/s, FLOP/s, seconds, watts, dollars/s, a pure number, 1/s or dollars.

    Raises:
        BadQuantity: no unit, a unit of another dimension, negative, or not finite.
    """
    if dimension == "count" and isinstance(text, int | float) and not isinstance(text, bool):
        # a whole number too large for a float is refused as infinite
        return _checked(math.inf if abs(text) > sys.float_info.max else float(text), text, dimension)
    if not isinstance(text, str):
        raise _refusal(dimension, text, "no unit" if isinstance(text, int | float) else "not text")
    if dimension == "frequency" and (match := _PER.fullmatch(text)):
        return _checked(_per(match, text), text, dimension)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise _refusal(dimension, text, "not a number with a unit")
    dollar, number, unit = match.groups()
    return _checked(float(number) * _factor(dollar, unit, text, dimension), text, dimension)


def counted(value: Any) -> Any:
    """A whole number out of text such as "300B", or of a float; all else as it is.

    Raises:
        ValueError: text that is no count, or a number that is not whole.
    """
    if not isinstance(value, str | float):
        return value
    number = parse_quantity(value, "count")
    if abs(number - round(number)) > ROUNDING * number:
        raise ValueError(f"expected a whole number such as 300B, got {value!r:.40}")
    return round(number)


def _factor(dollar: str, unit: str, text: str, dimension: Dimension) -> float:
    """Size of the unit, in the base unit of the dimension."""
    written = f"{dollar}{unit}"
    if dimension == "money" and written.count("$") == 1:
        written = written.replace("$", "").strip()
    elif dimension == "money":
        raise _refusal(dimension, text, "no unit" if "$" not in written else "two units")
    factors = _UNITS[dimension].factors
    if written not in factors:
        near = [unit for unit in factors if unit and unit.lower() == written.lower()]
        why = f"unknown unit {written!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")
        raise _refusal(dimension, text, why if written else "no unit")
    return factors[written]


def _per(match: re.Match[str], text: str) -> float:
    events, amount, unit = match.groups()
    seconds = (_TIME | _LONG_TIME).get(unit)
    duration = float(amount or 1) * (seconds or 0.0)
    if not duration > 0.0 or not math.isfinite(duration):
        raise _refusal("frequency", text, f"'per {amount or ''} {unit}' is not a positive time")
    return float(events) / duration


def _checked(value: float, text: object, dimension: Dimension) -> float:
    if not math.isfinite(value):
        raise _refusal(dimension, text, "not finite")
    if value < 0.0:
        raise _refusal(dimension, text, "negative")
    return value


def _refusal(dimension: Dimension, given: object, why: str) -> BadQuantity:
    units = _UNITS[dimension]
    shown = repr(given) if len(repr(given)) <= 60 else repr(given)[:57] + "..."
    if why == "negative":
        return BadQuantity(f"expected {units.phrase} that is not negative, got {shown}")
    return BadQuantity(f"expected {units.phrase} such as '{units.example}', got {shown} ({why})")


def format_quantity(value: float, dimension: Dimension, digits: int = 3) -> str:
    """A quantity for people: the largest unit that leaves a number of at least one.

    Args:
        value: in the base unit of the dimension.
        dimension: which units to use.
        digits: significant digits.

    Returns:
        "3.35 TB/s", "12.5 ms", "1 per 50700 h", "175B", "$1.5M"; ``parse_quantity`` reads it back.
    """
    if dimension == "frequency":
        return f"1 per {_plain(1 / value / 3600, digits)} h" if value else "0 /s"
    units = _UNITS[dimension]
    rounded = float(f"{value:.{digits}g}")
    fitting = [unit for unit in units.shown if rounded >= units.factors[unit]]
    unit = fitting[-1] if fitting else units.shown[0]
    number = _plain(value / units.factors[unit], digits)
    if dimension == "money":
        return f"${number}{unit}"
    return f"{number}{unit}" if dimension == "count" else f"{number} {unit}"


def _plain(number: float, digits: int) -> str:
    """Significant digits without an exponent where that stays readable."""
    text = f"{number:.{digits}g}"
    if "e" not in text:
        return text
    rounded = float(text)
    return f"{rounded:.0f}" if 1.0 <= abs(rounded) < 1e15 else text


def exact_quantity(value: float, dimension: Dimension) -> str:
    """A quantity without loss: ``parse_quantity(exact_quantity(v, d), d) == v`` for every finite float."""
    base = _UNITS[dimension].base
    if dimension == "money":
        return f"${value!r}"
    return f"{value!r} {base}".rstrip()


def within(low: str, high: str, dimension: Dimension) -> AfterValidator:
    """Marks a field of a record as plausible only from ``low`` to ``high``, which a refusal names.

    What lies outside is a slip of the unit, or makes figures that nothing can be reckoned with.
    """
    least, most = parse_quantity(low, dimension), parse_quantity(high, dimension)

    def check(value: float) -> float:
        if least <= value <= most:
            return value
        phrase, given = _UNITS[dimension].phrase, format_quantity(value, dimension)
        raise ValueError(f"expected {phrase} between {low} and {high}, got {given}")

    return AfterValidator(check)


def _schema(dimension: Dimension) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "format": dimension, "examples": [_UNITS[dimension].example]})


def _reader(dimension: Dimension) -> BeforeValidator:
    return BeforeValidator(partial(parse_quantity, dimension=dimension))


def _writer(dimension: Dimension) -> PlainSerializer:
    write: Callable[[float], str] = partial(exact_quantity, dimension=dimension)
    return PlainSerializer(write, return_type=str)


ByteQuantity = Annotated[float, "byte", _reader("bytes"), _writer("bytes"), _schema("bytes")]
BandwidthQuantity = Annotated[float, "byte/second", _reader("bandwidth"), _writer("bandwidth"), _schema("bandwidth")]
RateQuantity = Annotated[float, "1/second", _reader("rate"), _writer("rate"), _schema("rate")]
TimeQuantity = Annotated[float, "second", _reader("time"), _writer("time"), _schema("time")]
PowerQuantity = Annotated[float, "watt", _reader("power"), _writer("power"), _schema("power")]
PriceQuantity = Annotated[float, "dollar/second", _reader("price"), _writer("price"), _schema("price")]
FailureQuantity = Annotated[float, "1/second", _reader("frequency"), _writer("frequency"), _schema("frequency")]
CountQuantity = Annotated[float, "", _reader("count"), _writer("count"), _schema("count")]
