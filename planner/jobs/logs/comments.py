"""Comments of scripts that tell what a run of them took."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_COMMENT: Final = re.compile(r"^[ \t]*#(?!!)[ \t]*(?P<said>.*)$", re.MULTILINE)
_FIGURE: Final = re.compile(
    r"\d\s*(?:s/it|it/s|iter/s)\b|(?:s/it|it/s|iter/s)\)?\s*[:=]\s*\d"
    r"|\b\d+\s*\*\s*[\d.]+\s*Gi?B\b|\d\s*Gi?B GPU memory",
    re.IGNORECASE,
)
"""A time of an iteration, or so many devices with so much memory each: "8 * 80GiB, 3.2s/it"."""
_LONGEST: Final = 80


def figures_in(text: str) -> Iterator[str]:
    """A remark for every comment of a script that has such figures."""
    for found in _COMMENT.finditer(text):
        if _FIGURE.search(found["said"]):
            line = text.count("\n", 0, found.start("said")) + 1
            said = found["said"].strip()
            yield f'line {line} says of a run: "{said:.{_LONGEST}}"; it is not compared with the prediction'
