"""When a measured run was made, by what its source says of itself, and what frameworks changed in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

Row = Mapping[str, Any]

MIDDLE = "-06"
"""Where only a year is said."""
CURRENT: Final = "2026-08"
"""Month that the catalogue's stacks are of: what is later than every change that a month decides."""

CONTAINER: Final = re.compile(r"\b(?:nemo|ngc|nvidia)\b[^\d()]{0,20}\bv?(2[3-9])\.(0[1-9]|1[0-2])\b", re.IGNORECASE)
"""A monthly container by name: "NeMo 26.02.01 container", "NGC PyTorch 26.05", "NVIDIA 26.01 family"."""

MEASURED: Final = r"\b(?:measured|measurements?|re-?run|re-?ran|dated|benchmarked|timed)\b[^\d,;]{0,20}(20[12]\d)"
"""How a source says when it measured, apart from the years of what it cites."""


def years(words: str) -> list[int]:
    """The years in some words: of a range such as 2021-2023 the first, of a conference SC21 its own."""
    said = re.sub(r"\bSC([12]\d)\b", r"20\1", words)
    return [int(year) for year in re.findall(r"(?<!\d)(20[12]\d)(?:-20[12]\d)?", said)]


def dated(row: Row) -> int | None:
    """The year that the framework's own words give it, or else the run its measurement; None where neither does."""
    own, said = years(str(row["stack"].get("framework"))), _said(row)
    if own or said is None:
        return max(own) if own else _measured(row)
    return int(said[:4])


def container(row: Row) -> tuple[int, int] | None:
    """Year and month of the run's container, if its framework or its source names one."""
    said = CONTAINER.search(f"{row['stack'].get('framework')} {row.get('source')}")
    return (int(said[1]), int(said[2])) if said else None


def of_its_time(row: Row) -> str | None:
    """The month of the run's container, or else its own; None where neither is said."""
    said = container(row)
    return f"20{said[0]}-{said[1]:02d}" if said else month(row)


def _said(row: Row) -> str | None:
    """The month that the run itself says it is of."""
    said = re.match(r"20\d\d-(0[1-9]|1[0-2])", str(row.get("date")))
    return said[0] if said else None


def _measured(row: Row) -> int | None:
    found = re.findall(MEASURED, str(row.get("source")).lower())
    return max(map(int, found), default=None)


def month(row: Row) -> str | None:
    """The month of a run as ``2025-03``; None where neither it nor its source says."""
    if own := _said(row):
        return own
    source = str(row.get("source") or "").lower()
    said = f"{source} {row['stack'].get('framework')}"
    whole = re.findall(r"\b(20[12]\d)[-./]?(0[1-9]|1[0-2])\b", said.replace("_", " "))
    named = re.findall(r"20[12]\d", said)
    if (when := _measured(row)) is not None:  # what else the source cites is older, or no date of the run
        whole, named = [found for found in whole if found[0] == str(when)], [str(when)]
    if whole:
        return min("-".join(found) for found in whole)
    return min(named) + MIDDLE if named else None
