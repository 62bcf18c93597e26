"""What a fine-tune takes where nobody says it, and how the answer says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodels.model.model import Model
from costmodels.scenario import Scenario
from costmodels.stack.adapters import says_kernels

if TYPE_CHECKING:
    from planner.request.request import PlanRequest

FINE_TUNE_TOKENS = 100_000_000
"""A hundred thousand examples of a thousand tokens; what a pretraining took says nothing of it."""
FINE_TUNE_BATCH = 64
"""Samples, as the fine-tuning recipes of TRL, LLaMA-Factory and axolotl take 16 to 128."""
FINE_TUNE_LENGTH = 2048
"""Tokens of a sequence, as most recipes of axolotl, LLaMA-Factory, ms-swift and oumi take."""
FINE_TUNE_STACK = "fsdp"
"""What Transformers' trainers shard with unless DeepSpeed is asked for."""


def fine_tunes(request: PlanRequest) -> bool:
    """Whether a request asks for a fine-tune: by its task, or because it freezes weights."""
    if request.task is not None:
        return request.task != "pretrain"
    return bool(request.adapters or request.base_precision or request.frozen_layers or request.frozen_embeddings)


def fine_tune_stack(request: PlanRequest) -> str | None:
    """The stack of a fine-tune where none is named; None where it is none, or has a pipeline, which that has not."""
    pipelined = {str(request.pins.get(axis) or 1) for axis in ("pp", "vpp")} != {"1"}
    return FINE_TUNE_STACK if fine_tunes(request) and not pipelined else None


def fine_tune_batch(gpus: int) -> int:
    """Samples per iteration of a fine-tune where none are asked for: 64 or more, gpus times a power of two."""
    batch = gpus
    while batch < FINE_TUNE_BATCH:
        batch *= 2
    return batch


def usual_length(request: PlanRequest, model: Model) -> int:
    """Tokens of a sequence where none are asked for: the model's; of a fine-tune as many as its examples have.

    What images or documents of a said length take is not guessed: they have the model's.
    """
    if not fine_tunes(request) or request.images_per_sample or request.document_length:
        return model.seq_length
    return min(model.seq_length, FINE_TUNE_LENGTH)


def describe_fine_tune(request: PlanRequest, scenario: Scenario) -> list[str]:
    """What is taken of a fine-tune's samples, reference, frozen weights and documents."""
    switches, task, lines = scenario.stack.switches, scenario.task, []
    if task.sequences > 1:
        lines.append(f"a sample of {switches.task} is {task.sequences} sequences of {scenario.seq_length} tokens each")
    if task.referenced and request.reference_model is None:
        lines.append(f"reference model: {switches.reference_model}")
    if scenario.tuned and not switches.document_length:
        lines.append(
            "every sequence is full; if yours are shorter, give their mean length after padding with --seq-len"
        )
    if switches.document_length:
        lines.append(
            f"packed documents of {scenario.attended_length} tokens each; if lengths differ, give the sum of their "
            "squares over their sum"
        )
    if switches.frozen_layers:
        lines.append(
            "the layers that train are spread evenly over the model; the first pipeline stages have fewer of them"
        )
    if switches.task == "reward":
        lines.append("the head of a reward model is priced like the model's own head, which is larger")
    if switches.adapters and request.adapters and not says_kernels(request.adapters):
        lines.append(f"adapters run with {switches.adapters.kernels} kernels")
    if switches.adapters and switches.base_precision and request.base_precision is None:
        lines.append(f"frozen weights in {switches.base_precision} (--base-precision)")
    return lines
