"""Words of Megatron-LM's command line: every option with its values, and which values there are [Megatron]."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from planner.errors import BadRequest

Options = Mapping[str, Sequence[str]]
"""Values by option, without dashes in front."""

_PARTS: Final = re.compile(r"\\\n")
_SET: Final = re.compile(r"""(?:^|(?<=[ \t;]))(\w+)=(?!\()("[^"]*"|'[^']*'|[^\s;#"']*)""", re.MULTILINE)
"""A shell variable that a script sets, lists apart: their options stand where they are set."""
_USED: Final = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
"""A variable that it uses: ``$TP``, ``${TP}``, or ``${TP:-8}``, which is 8 unless set."""
_DIGITS: Final = 12
FP8_RECIPES: Final = {"delayed": "fp8", "tensorwise": "fp8-current", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
SHARDED: Final = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
OPTIMIZERS: Final = {"adam": None, "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
POSITIONS: Final = {
    "learned_absolute": "learned",
    "rope": "rotary",
    "mrope": "rotary",
    "yarn": "rotary",
    "none": "none",
}
CP_KINDS: Final = {
    "p2p": "p2p",
    "a2a": "a2a",
    "allgather": "all-gather",
    "all_gather": "all-gather",
    "a2a+p2p": "a2a+p2p",
}
_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "optimizer": tuple(OPTIMIZERS),
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "position-embedding-type": tuple(POSITIONS),
    "normalization": ("LayerNorm", "RMSNorm"),
    "softmax-type": ("vanilla", "off-by-one", "learnable"),
    "fp8-format": ("e4m3", "hybrid"),
    "fp8-recipe": tuple(FP8_RECIPES),
    "fp4-format": ("e2m1",),
    "fp4-recipe": ("nvfp4",),
    "data-parallel-sharding-strategy": tuple(SHARDED),
    "main-grads-dtype": ("fp32", "bf16"),
    "main-params-dtype": ("fp32", "fp16"),
    "exp-avg-dtype": ("fp32", "fp16", "bf16", "fp8"),
    "exp-avg-sq-dtype": ("fp32", "fp16", "bf16", "fp8"),
    "cross-entropy-fusion-impl": ("native", "te", "linear"),
    "cp-comm-type": tuple(CP_KINDS),
    "moe-token-dispatcher-type": ("allgather", "alltoall", "flex"),
    "cuda-graph-impl": ("none", "local", "transformer_engine", "full_iteration"),
    "transformer-impl": ("local", "transformer_engine"),
    "attention-backend": ("flash", "fused", "unfused", "local", "auto"),
}
"""Options of a few words, with those that a training can be priced with."""
_GONE: Final = {
    "batch-size": "micro-batch-size",
    "model-parallel-size": "tensor-model-parallel-size",
    "checkpoint-activations": "recompute-activations",
    "no-position-embedding": "position-embedding-type",
}
"""What its parser no longer takes, and what it takes instead."""


def options(text: str) -> dict[str, list[str]]:
    """Every option of a command line or script with its values; the last one said counts."""
    try:
        words = shlex.split(_filled(_PARTS.sub(" ", text)), comments=True)
    except ValueError as error:
        raise BadRequest(f"not a command line: {error}") from None
    found: dict[str, list[str]] = {}
    for place, said in enumerate(words):
        if said.startswith("--"):
            name, _, value = said[2:].partition("=")
            after = takewhile(lambda one: not one.startswith("--") and one != ")", words[place + 1 :])
            found[name.replace("_", "-")] = [value] if value else list(after)
    return found


def _filled(text: str) -> str:
    """A script with the values of the variables that it sets in the places of those that it uses."""
    known: dict[str, str] = {}

    def value(used: re.Match[str]) -> str:
        return known.get(used[1] or used[3], used[2] or used[0])

    for name, said in _SET.findall(text):
        known[name] = _USED.sub(value, said.strip("\"'"))
    return _USED.sub(value, text)


def check_words(at: Options) -> None:
    """Refuse options that are no more, and words of others that are not known or not priced.

    Raises:
        BadRequest: there is one.
    """
    values = dict(at)  # to be looked at, not read
    for name, instead in _GONE.items():
        if name in values:
            raise BadRequest(f"--{name} is no longer an argument of Megatron-LM; --{instead} is")
    for name, known in _WORDS.items():
        if name in values and (said := word(values, name)) not in known:
            raise BadRequest(f"--{name}: {said!r:.40} is not priced; {', '.join(known)} are")


def number(at: Options, name: str, default: int | None = None, *, least: int = 1) -> int | None:
    """An option's whole number.

    Raises:
        BadRequest: it is something else, or less than ``least``.
    """
    if name not in at:
        return default
    text = word(at, name)
    if text.startswith("$"):
        raise BadRequest(f"--{name}: {text:.40} is set nowhere in the script; write its value in its place")
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) >= least):
        raise BadRequest(f"--{name}: expected a whole number from {least} on, got {text!r:.40}")
    return int(text)


def count(at: Options, name: str, default: int = 1, *, least: int = 1) -> int:
    """The same, where there is a default."""
    found = number(at, name, default, least=least)
    return default if found is None else found


def needed(at: Options, name: str) -> int:
    """The same of an option without which there is no model.

    Raises:
        BadRequest: it is missing.
    """
    found = number(at, name)
    if found is None:
        raise BadRequest(f"--{name} is missing, without which Megatron-LM has no model; or give --model")
    return found


def word(at: Options, name: str, default: str = "") -> str:
    """An option's first value."""
    return at[name][0] if at.get(name) else default
