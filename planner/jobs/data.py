"""Tables of words that stand beside the code, as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def data(name: str) -> Mapping[str, Any]:
    """The tables of a file of this package, by its path without the ending."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
