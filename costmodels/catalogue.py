"""What identifies the shipped models, stacks and runtimes, and the calibrated constants in them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hardware.files import files_hash

_HOME = Path(__file__).parent
_FOLDERS = ("model/models", "stack/stacks", "sparse/runtimes")


@cache
def catalogue_hash() -> str:
    """Twelve hexadecimal digits over every file of models, stacks and runtimes."""
    return files_hash((path.name, path) for path in sorted(p for f in _FOLDERS for p in _HOME.glob(f"{f}/*.toml")))
