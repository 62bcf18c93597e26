"""Numbers and bars for the screen."""

from collections.abc import Iterable
from typing import Final

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_SIGNS: Final = str.maketrans(
    {
        "×": "x",
        "·": "*",
        "→": "->",
        "≤": "<=",
        "≥": ">=",
        "≈": "~",
        "…": "...",
        "–": "-",
        "—": "-",
        "−": "-",
        "µ": "u",
        "“": "'",
        "”": "'",
        "‘": "'",
        "’": "'",
        "\u00a0": " ",
    }
)
_UNITS: Final = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
_SCALES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def bar(share: float, width: int, *, blocks: bool) -> str:
    """A bar of ``share`` of ``width`` characters: block characters to an eighth, or ``#`` to a whole one.

    Args:
        share: 0 to 1; clipped.
        width: characters of a full bar.
        blocks: whether the output can show block characters.
    """
    filled = min(max(share, 0.0), 1.0) * width
    if not blocks:
        return "#" * round(filled)
    whole, eighth = divmod(round(filled * 8), 8)
    return "█" * whole + (_EIGHTHS[eighth] if eighth else "")


def plain(text: str) -> str:
    """Text in ASCII: typographic signs become their usual spelling, anything else a question mark."""
    return text.translate(_SIGNS).encode("ascii", "replace").decode()


def seconds(value: float) -> str:
    """A time as people compare it: "6.71 s", "812 ms", "54.1 us", "2.35 h"."""
    if value <= 0.0:
        return "0 s"
    if value >= 7200.0:
        return f"{significant(value / 3600.0)} h"
    for unit, scale in _UNITS:
        if value * scale >= 0.9995:
            return f"{significant(value * scale)} {unit}"
    return f"{significant(value * 1e9)} ns"


MOST_DIGITS = 9
"""After the point, of a figure beside a limit."""


def alike(value: float, largest: float) -> str:
    """A time in the unit and the decimals that suit the largest of its column."""
    unit, scale = next((pair for pair in _UNITS if largest * pair[1] >= 0.9995), _UNITS[-1])
    decimals = 2 if largest * scale < 99.95 else 1
    return f"{value * scale:,.{decimals}f} {unit}"


def significant(value: float) -> str:
    """Three significant digits without an exponent, thousands separated: "6.71", "52.7", "1,235"."""
    if value == 0.0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.3g}" if abs(value) < 0.995 else f"{value:.2f}"


def scaled(value: float) -> str:
    """A rate or count with a decimal prefix: "1.88 M", "164 k", "950"."""
    for scale, prefix in _SCALES:
        if value >= 0.9995 * scale:
            return f"{significant(value / scale)} {prefix}"
    return significant(value)


def counted(value: float) -> str:
    """A number of tokens or parameters in the field's letters: "300 B", "174.6 B", "1.4 T"."""
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.4g} {letter}"
    return f"{value:,.0f}"


def percent(share: float) -> str:
    """A share: "52.7 %"."""
    return f"{100.0 * share:.1f} %"


def gib(value: float) -> str:
    """Bytes in GiB to one decimal, without the unit."""
    return f"{value / 2**30:,.1f}"


def dollars(value: float) -> str:
    """Money: "$1.61 M", "$950"."""
    return f"${scaled(value)}"


def days(value: float, limit: float | None = None) -> str:
    """A duration in days, or in hours below one day; not rounded to the other side of a limit in days."""
    scale, unit = (24.0, "hours") if value < 1.0 else (1.0, "days")
    return f"{_beside(value * scale, None if limit is None else limit * scale)} {unit}"


def _beside(value: float, limit: float | None) -> str:
    """Three significant digits, or as many as tell a value from a limit that it exceeds or is below."""
    text, digits = significant(value), 0
    while limit is not None and digits < MOST_DIGITS and (float(text.replace(",", "")) > limit) != (value > limit):
        digits += 1
        text = f"{value:,.{digits}f}"
    return text


def flow(pieces: Iterable[str], *, width: int, indent: int = 2, gap: str = "   ") -> str:
    """Pieces side by side, over as many lines as the width asks for; no piece is broken."""
    lines: list[str] = []
    for piece in filter(None, pieces):
        if lines and len(lines[-1]) + len(gap) + len(piece) <= width - indent:
            lines[-1] += gap + piece
        else:
            lines.append(piece)
    return "\n".join(" " * indent + line for line in lines)
