"""How long Megatron-LM's arguments have the training."""

from __future__ import annotations

from typing import Final, Literal

from planner.errors import BadRequest
from planner.jobs.given import Length
from planner.jobs.megatron.options import Options, number, word

_WORDS: Final[tuple[tuple[str, Literal["iterations", "sequences", "tokens"]], ...]] = (
    ("train-iters", "iterations"),
    ("train-samples", "sequences"),
    ("train-tokens", "tokens"),  # Megatron-DeepSpeed's
)


def training_length(at: Options) -> Length | None:
    """Iterations, samples or tokens, where a number says them; a variable of the environment does not.

    Raises:
        BadRequest: both iterations and samples, which Megatron-LM refuses (arguments.py: validate_args).
    """
    found = [Length(count, of, f"--{name}") for name, of in _WORDS if (count := _said(at, name))]
    if {"iterations", "sequences"} <= {one.of for one in found}:
        raise BadRequest("--train-iters and --train-samples exclude each other; leave one of them out")
    return found[-1] if found else None


def unknown_length(at: Options) -> list[str]:
    """That a length is said by a variable that nothing in the script sets."""
    unset = [name for name, _ in _WORDS if word(at, name).startswith("$")]
    return [f"--{name} {word(at, name):.40} is set nowhere in the script; --tokens says how long the training is"
            for name in unset]  # fmt: skip


def _said(at: Options, name: str) -> int | None:
    """The number of an option, None where it is absent, 0 or a variable."""
    return None if word(at, name).startswith("$") else number(at, name, least=0)
