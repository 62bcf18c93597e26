"""How many processors this process may really use: affinity and control groups, not what the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def usable(*, root: Path = ROOT, memberships: Path = Path("/proc/self/cgroup")) -> int:
    """Processors, at least one: those that the process may run on, or the quota of its control groups if less."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(float(allowed), _quota(root, memberships))))


def _quota(root: Path, memberships: Path) -> float:
    """Processors' worth of time that the narrowest of the process's control groups grants."""
    try:
        lines = memberships.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return math.inf
    quotas = [math.inf]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        home = root if not controllers else root / "cpu"
        place = home / path.lstrip("/")
        while place.is_relative_to(home):
            quotas.append(_granted(place, second=not controllers))
            place = place.parent
    return min(quotas)


def _granted(place: Path, *, second: bool) -> float:
    """The quota of one group over its period; cgroup version 2 has both in one file."""
    try:
        if second:
            quota, period = (place / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = ((place / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError):
        return math.inf
