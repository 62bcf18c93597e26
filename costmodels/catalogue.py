"""What identifies the shipped models and stacks, and the calibrated constants in them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_HOME = Path(__file__).parent


@cache
def catalogue_hash() -> str:
    """Twelve hexadecimal digits over every model and stack file."""
    digest = hashlib.sha256()
    for path in sorted((*_HOME.glob("models/*.toml"), *_HOME.glob("stacks/*.toml"))):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
