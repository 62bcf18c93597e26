"""The fields of torchtitan's configuration: TOML up to 0.2, Python or words of a command line since.

Older spellings are those of every version since 2024: degrees stood under ``training`` and ``experimental`` once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.options import options_of
from planner.jobs.values import data

_SAID: Final = data("torchtitan/words")
SCHEDULES: Final[Mapping[str, str]] = _SAID["schedules"]
"""PyTorch's classes of schedules."""
FOLDED: Final = frozenset({"zb-v", "dualpipe-v"})
"""Schedules whose second chunks come back over the stages."""
MODELS: Final[Mapping[str, tuple[str, str]]] = {name: (at[0], at[1]) for name, at in _SAID["models"].items()}
"""Name and flavor in 0.2 of models of the catalogue."""
READ_MODELS: Final[Mapping[str, tuple[str, str]]] = {
    **MODELS, **{name: (at[0], at[1]) for name, at in _SAID["read"].items()}
}  # fmt: skip
"""Those that are read, of any version: 16B of DeepSeek-V3 has the sizes of V2-Lite."""
EAGER: Final[Mapping[str, Any]] = _SAID["eager"]
"""What a layer does that nothing compiled: a kernel for every operation, whose inputs are kept."""
EAGER_LOSS: Final[Mapping[str, Any]] = _SAID["eager_loss"]
"""What a loss holds that nothing compiled: logits in 16 bits, and in fp32 with their gradients."""
NARROW_STATES: Final[Mapping[str, Any]] = _SAID["narrow_states"]
"""Training in bfloat16: weights, gradients and moments have 16 bits, and there is no copy in fp32; sums of gradients go
over the network in fp32 all the same."""
CONVERTERS: Final[Mapping[str, str]] = {"fp8-current": "float8", "fp8-rowwise": "float8", "mxfp8": "mx"}
"""What makes the products of a precision in 0.2; those in 16 and 32 bits need nothing."""

OPTIONS: Final = options_of("torchtitan")
"""Fields by what they stand for, in the order in which they are written.

Keys and values that reach other context ranks by an all-to-all in which each sends to the next go around a ring. From
0.3 on they are gathered, and experts are not split over tensor ranks.
"""
