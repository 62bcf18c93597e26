"""What identifies the shipped models, stacks and runtimes, and the calibrated constants in them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_HOME = Path(__file__).parent
_FOLDERS = ("model/models", "stack/stacks", "sparse/runtimes")


@cache
def catalogue_hash() -> str:
    """Twelve hexadecimal digits over every file of models, stacks and runtimes."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in _FOLDERS for path in _HOME.glob(f"{folder}/*.toml")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
