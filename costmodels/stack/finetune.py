"""What a fine-tune adds to a training step: samples of several sequences, a reference model, narrow frozen weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from costmodels.names import WORD

TaskName = Literal["pretrain", "finetune", "dpo", "kto", "orpo", "simpo", "reward"]
ReferenceModel = Literal["none", "copy", "adapters-off"]
BasePrecision = Literal["fp32", "bf16", "int8", "nf4", "fp4", "nf4-double", "fp4-double"]


@dataclass(frozen=True, slots=True)
class Task:
    """What is learnt from a sample.

    Attributes:
        title: for people.
        sequences: of a sample; the batch counts samples.
        referenced: whether log-probabilities of a reference model are computed in addition to the trained one's.
        policy_forwards: passes of the trained model without gradients, of every sample.
        reference_forwards: passes of the reference model, of every sample.
    """

    title: str
    sequences: int = 1
    referenced: bool = False
    policy_forwards: int = 0
    reference_forwards: int = 0


TASKS: Final[dict[str, Task]] = {
    "pretrain": Task("pretraining"),
    "finetune": Task("supervised fine-tuning"),
    "dpo": Task("direct preference optimisation", sequences=2, referenced=True, reference_forwards=1),
    # Completions and, for the divergence, mismatched ones: of these the trained model's pass has no gradients either.
    "kto": Task("Kahneman-Tversky optimisation", referenced=True, policy_forwards=1, reference_forwards=2),
    "orpo": Task("odds-ratio preference optimisation", sequences=2),
    "simpo": Task("simple preference optimisation", sequences=2),
    "reward": Task("training of a reward model", sequences=2),
}
"""By name; a pair is what is chosen and what is rejected, in one batch (TRL's ``concatenated_forward``) [TRL]."""
TASK_ALIASES: Final = {"sft": "finetune", "pt": "pretrain", "cpo": "simpo", "ipo": "dpo", "rm": "reward"}
"""Other words for tasks."""
GENERATING: Final = frozenset({"grpo", "ppo", "rloo", "reinforce", "online-dpo", "dapo", "gspo", "gkd"})
"""Tasks that generate what they learn from, which is not priced."""

BASE_BYTES: Final[dict[str, float]] = {
    "fp32": 4.0,
    "bf16": WORD,
    "int8": 1.0,  # one fp32 scale a row is too small to count
    **dict.fromkeys(("nf4", "fp4"), 0.5 + 4.0 / 64.0),
    **dict.fromkeys(("nf4-double", "fp4-double"), 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0)),
}
"""Bytes per frozen weight by format: of 4 bits with a constant in fp32 for every block of 64, or with one in 8 bits,
256 of which share a constant in fp32 (double quantisation) [Dettmers23]."""


def task_named(word: str) -> str:
    """The task behind a word.

    Raises:
        ValueError: there is none, or it generates what it learns from.
    """
    plain = word.strip().lower().replace("_", "-")
    name = TASK_ALIASES.get(plain, plain)
    if name in GENERATING:
        raise ValueError(f"task {word} generates its own samples, which has no price; {', '.join(TASKS)} have one")
    if name not in TASKS:
        raise ValueError(f"unknown task {word!r:.40}; there are {', '.join(TASKS)}")
    return name
