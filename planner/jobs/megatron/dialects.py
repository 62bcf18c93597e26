"""Programs on Megatron-LM's arguments with options of their own: a table each, in ``dialects``."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from planner.jobs.megatron.dialect import MEGATRON, Dialect, dialect
from planner.jobs.reader import Launch


def _starts_swift(launch: Launch) -> bool:
    """Whether a launch is ``megatron sft`` or its kin, or the script that this runs."""
    words = [word.rpartition("/")[2] for word in launch.words]
    command = any(one == "megatron" and then in {"sft", "pt", "rlhf"} for one, then in pairwise(words))
    scripts = ("_megatron/sft.py", "_megatron/pt.py", "_megatron/rlhf.py")
    return command or any(word.endswith(scripts) for word in launch.words)


SWIFT: Final = dialect("swift", _starts_swift)
DEEPSPEED: Final = dialect("deepspeed")
DIALECTS: Final = (SWIFT, *map(dialect, ("slime", "mindspeed", "pai", "zero_bubble")), DEEPSPEED, dialect("older"))
"""In the order in which they are asked whether a launch is theirs."""


def dialect_of(launch: Launch) -> Dialect:
    """The dialect of a launch."""
    return next((one for one in DIALECTS if one.knows(launch)), MEGATRON)
