"""Bars, plain text and flowing lines for the screen."""

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


def flow(pieces: Iterable[str], *, width: int, indent: int = 2, gap: str = "   ") -> str:
    """Pieces side by side, over as many lines as the width asks for; no piece is broken."""
    lines: list[str] = []
    for piece in filter(None, pieces):
        if lines and len(lines[-1]) + len(gap) + len(piece) <= width - indent:
            lines[-1] += gap + piece
        else:
            lines.append(piece)
    return "\n".join(" " * indent + line for line in lines)
