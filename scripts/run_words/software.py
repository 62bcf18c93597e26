"""The software of a measured run: the stack that its words stand for, with what it says of its own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodels.stack.stack import Stack, stack
from run_words import frameworks, saving
from run_words import heard as re
from run_words.attention_words import assumed, attention_changes, cudnn_changes, kernel_named
from run_words.dated import of_its_time
from run_words.dropout_words import dropout_changes
from run_words.expert_words import expert_changes
from run_words.flat_fields import changed
from run_words.loss_words import loss_changes
from run_words.overlap_words import accumulation_changes, overlap_changes
from run_words.pytorch import cast, compiled, repeated, segments, stepped, undated
from run_words.stack_words import newer_machine, stack_of

Row = Mapping[str, Any]

KERNELS: dict[Any, tuple[str, ...]] = {
    False: ("unfused",),
    "v1": ("flash-1", "flash-2"),
    "v1 (Triton or CUDA)": ("triton", "flash-1", "flash-2"),
    "v2": ("flash-2", "flash-1"),
    "v3": ("flash-3", "cudnn", "flash-2"),
    "v4": ("cudnn", "flash-3", "flash-2"),
    "cudnn": ("cudnn", "flash-2"),
}
"""The run's attention field to kernels in order of preference; True leaves the stack's own choice.

FlashAttention-4 takes cuDNN's time on Blackwell, within 4 % either way of 9.27 (``cudnn_frontend_sdpa``).
"""

WRITTEN_OUT = (
    r"\b(unfused|eager|math) attention\b|\battention (is |was )?(not fused|unfused)\b|\b(no|without) flash[ -]?att"
)
"""How notes say that no kernel of its own attends, where the field only knows that there is attention."""

FUSED: dict[str, Any] = {"attention": KERNELS["v2"], "blackwell_attention": ("cudnn", "flash-2")}
"""What True means, and no word on a newer machine, where the stack is of before there was any fused attention: PyTorch
attends with cuDNN on Blackwell, which FlashAttention-2 was not written for."""


ASYNC_TP = 0.5
"""Share of tensor-parallel traffic that stays exposed where products and their collectives are cut into pieces that run
side by side [AsyncTP]: pieces are smaller and slower than the whole, and the first has nothing to hide behind."""
ROWWISE_TP = (1.0 + ASYNC_TP) / 2.0
"""The same under scales by rows, where scatters are cut into pieces and gathers are not (GitHub pytorch/pytorch, issue
149990)."""


def stack_for(row: Row, notes: list[str]) -> Stack:
    """The stack that the run's words stand for, with what the run says of its own kernels."""
    name = stack_of(row)
    said = row["stack"].get("framework")
    notes.append(f"stack {name} for framework {said!r}" if said else f"stack {name}, no framework being stated")
    return _adjusted(_released(name, of_its_time(row)).at(str(row["strategy"].get("precision") or "bf16")), row)


def _released(name: str, when: str | None) -> Stack:
    """The stack as it was then; today's where no month is known, or another stack is its release of then."""
    found = stack(f"{name}@{when}") if when else stack(name)
    return found if found.name == name else stack(name)


def as_attending(row: Row, notes: list[str]) -> Row:
    """The run with its attention in words of ``KERNELS`` or a switch, however its source writes them."""
    said = row["stack"].get("attention")
    told = f"{row['stack'].get('notes')} {row.get('notes')}".lower()
    if said in (True, None) and re.search(WRITTEN_OUT, told):
        return {**row, "stack": {**row["stack"], "attention": False}}
    if isinstance(said, bool) or said is None or (isinstance(said, str) and said in KERNELS):
        return row
    known = kernel_named(said)
    if known is None:
        notes.append(f"attention {said!r:.40} names no kernel; what is usual assumed")
    elif assumed(said):
        notes.append(f"attention {said!r:.40} names no kernel that is known; one that is fused assumed")
    return {**row, "stack": {**row["stack"], "attention": known}}


def _adjusted(chosen: Stack, row: Row) -> Stack:
    """The stack with what this run says of its own kernels and overlap."""
    if chosen.name == "deepspeed" and not of_its_time(row):
        chosen = stack("deepspeed@2022").at(str(row["strategy"].get("precision") or "bf16"))
    changes: dict[str, Any] = undated(row, chosen) | cudnn_changes(row)
    said = row["stack"].get("attention")
    if (kernels := KERNELS.get(said)) is not None:
        changes |= {"attention": kernels, "blackwell_attention": kernels}
    elif chosen.switches.attention_backend == KERNELS[False] and (said is True or newer_machine(row)):
        changes |= FUSED
    elif said is True:
        changes |= attention_changes(row)
    changes |= loss_changes(row, chosen.name) | _launched(row) | overlap_changes(row)
    changes |= accumulation_changes(row)
    changes |= frameworks.changes(row, chosen) | dropout_changes(row)
    changes |= saving.states(row, chosen)
    stage = row["strategy"].get("zero_stage")
    if stage and int(stage) not in chosen.supports.zero_stages:  # a newer version, or a fork, that has it
        changes["zero_stages"] = (*chosen.supports.zero_stages, int(stage))
    changes |= compiled(row, chosen) | stepped(row, chosen) | segments(row, chosen)
    words = str(row["stack"].get("overlap") or "").lower()
    if "async tp" in words or "fine_grain_interleave" in words:
        left = ROWWISE_TP if saving.precision(row["strategy"], chosen) == "fp8-rowwise" else ASYNC_TP
        changes |= {"overlap.tp_forward": left, "overlap.tp_backward": left * chosen.overlap.tp_backward}
    chosen = changed(chosen, changes)
    chosen = changed(chosen, repeated(row, chosen) | cast(row, chosen))
    return changed(chosen, expert_changes(row))


def _launched(row: Row) -> dict[str, bool]:
    """How the host launches kernels, as the notes say: whether it waits for each, if it is next to its device."""
    said = str(row["stack"].get("notes"))
    found = {"blocking_launches": True} if "launches blocking" in said else {}
    return found | ({"bound_processes": False} if "processes unbound" in said else {})
