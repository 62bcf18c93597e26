"""What a measured run of a PyTorch-native stack says of its kernels: compiled or eager, one pass or many a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodels.scenario import REDUCED
from costmodels.stack.optimizers import ONE_PASS
from costmodels.stack.stack import Stack
from run_words import heard as re
from run_words.dated import month, of_its_time
from run_words.peft_words import flags_said

Row = Mapping[str, Any]

FUSING = (
    r"(?<!no )(?<!without )torch[._ ]compiled?\b(?![ (]*(=|:|is)? ?(false|off|no\b|disabled))"
    r"|\bcompile ?[=:] ?(true|on|1\b)|\bte\b|transformer engine|\bliger\b"
)
"""Words for kernels that are generated or written fused."""
FUSING_NOTES = (
    r"(?<!no )(?<!not )(?<!without )\btorch[._ ]compiled?\b(?![ (]*(=|:|is)? ?(false|off|no\b|disabled))"
    r"|(?<!no )(?<!without )\b(fused (ops|operators) and kernels|liger)\b"
)
"""The same in notes on a program of plain PyTorch's, which also speak of what a compiler does not touch."""
PLAIN = ("fsdp", "torchtitan", "deepspeed", "generic")
"""Stacks whose kernels are PyTorch's unless a run says otherwise."""
MANY_PASSES = 92
"""Bytes per parameter that PyTorch's multi-tensor AdamW moves, a kernel an operation: decay 8, first moment 12, second
moment 8 and 12, root 8, its correction 8, epsilon 8, step 16, and 12 for the clipped norm; fused it is one pass."""
_NOT_OFF = r"(?!\W{0,3}(false|off|no\b|0\b))"
FUSED_STEP = (
    rf"(?<!no )(?<!not )(?<!without )\bfused[ _-]adamw?\b{_NOT_OFF}|\badamw?(,? \(?|_)fused\b(?! ?=){_NOT_OFF}"
    rf"|\badamw_torch_fused\b{_NOT_OFF}|\badamw?\([^)]*fused ?= ?true"
)
"""Words for the kernel that does all of that at once, PyTorch's ``AdamW(fused=True)``, to Transformers' trainer
``adamw_torch_fused``; it moves what a step of one kernel does anywhere."""
SCRIPT = r"\bplain (pytorch )?script\b|\bpytorch\b.*\b(eager|no framework)\b"
"""Words for a script of PyTorch's own parts alone, whose AdamW is the multi-tensor one unless it says otherwise."""
TUNED_AT_ONCE_SINCE = "2024-10"
"""torchtune's configurations from 14 September 2024 on (commit cca50f02e)."""
ENDS_LATE_SINCE = "2025-09"
"""torchtitan turns that off from 29 August 2025 on (commit 25413d224); what it compiles is lean all the same."""
EAGER_KERNELS = 36
"""Kernels of a layer's forward pass in torchtitan without a compiler (models/llama/model.py, January 2025): 8 for each
norm, 6 to rotate queries and keys, 2 to repeat keys and values, 7 products, attention, activation, product of branches
and 2 residuals. Half as many are left once compiled."""
EAGER = r"\beager\b|no-?compile|compile off|(no|without) torch[._ ]compile|compile ?[=:] ?(false|off|0\b)"
EAGER_NOTES = r"(^|[;,(] ?)eager\b(?! attention)"
"""The same in notes, which speak of more than the framework."""


def compiled(row: Row, chosen: Stack) -> dict[str, Any]:
    """Whether memory-bound kernels are fused: where a compiler or a library of kernels is named, not where none ran.

    torchtitan alone is eager; it asks for the compiler where products are in 8 bits, and so reduced precision is taken
    as compiled unless the run says otherwise.
    """
    said = f"{row['stack'].get('framework')} {row['stack'].get('overlap')}".lower()
    notes = str(row["stack"].get("notes")).lower()
    if re.search(FUSING, said):
        return {"fused_elementwise": True} | rotated(row)
    if re.search(EAGER, said) or re.search(EAGER_NOTES, notes):
        return unfused(chosen)
    if chosen.name in PLAIN and re.search(FUSING_NOTES, notes):
        return {"fused_elementwise": True} | rotated(row)
    if chosen.name == "torchtitan":
        generated = row["strategy"].get("precision") in REDUCED
        return ({"fused_elementwise": True} if generated else unfused(chosen)) | rotated(row)
    return {}


def unfused(chosen: Stack) -> dict[str, Any]:
    """Kernels as the model's code writes them; how many is known of torchtitan's."""
    return {"fused_elementwise": False} | ({"kernels_per_layer": EAGER_KERNELS} if chosen.name == "torchtitan" else {})


def segments(row: Row, chosen: Stack) -> dict[str, bool]:
    """Whether the allocator's segments are fixed: torchtitan's on several nodes, and on AMD's devices.

    Its script for several nodes does not ask for others (multinode_trainer.slurm), nor has PyTorch them for AMD's
    devices (c10/hip, as of 2.9) [Segments]. The release that asks for them on one node is torchtitan's own.
    """
    if "torchtitan" not in str(row["stack"].get("framework")).lower():
        return {"fixed_segments": False} if chosen.name == "torchtitan" else {}
    cluster = row["cluster"]
    several = int(row["strategy"].get("gpus") or 1) > int(cluster.get("gpus_per_node") or 8)
    return {"fixed_segments": True} if several or str(cluster.get("accelerator")).startswith("mi") else {}


def rotated(row: Row) -> dict[str, float]:
    """Traffic of rotary positions: torchtitan rotates complex numbers, its kin are taken to rotate real ones."""
    return {} if "torchtitan" in str(row["stack"].get("framework")).lower() else {"rotary_passes": 1.0}


def _step(row: Row, chosen: Stack) -> dict[str, Any]:
    """Bytes that the step moves where the run names it, or its states or its framework say how it steps."""
    words = (row["stack"].get(name) for name in ("framework", "overlap", "notes"))
    said = "; ".join([*map(str, words), flags_said(row)]).lower()
    if chosen.name in {"torchtitan", "fsdp"} and re.search(FUSED_STEP, said):
        return {"optimizer_traffic": ONE_PASS}
    plain = chosen.name == "generic" and re.search(SCRIPT, said) and not re.search(f"{FUSED_STEP}|{FUSING}", said)
    if not plain and chosen.name != "fsdp":
        return {}
    return {"optimizer_traffic": MANY_PASSES} if plain else {}


def stepped(row: Row, chosen: Stack) -> dict[str, Any]:
    """The optimizer's step, as named, or torchtune's as of its own date."""
    when, step = month(row), _step(row, chosen)
    if step or chosen.name != "torchtitan" or "torchtune" not in str(row["stack"].get("framework")).lower():
        return step
    return {"optimizer_traffic": ONE_PASS if when and when >= TUNED_AT_ONCE_SINCE else MANY_PASSES} if when else {}


def cast(row: Row, chosen: Stack) -> dict[str, Any]:
    """Whether 8-bit copies of weights stay from a compiled forward to the backward pass: torchao's, unless denied."""
    said = f"{row['strategy'].get('precision_note')} {row['stack']}".lower()
    again = chosen.switches.fp8_param_gather or re.search(
        r"force_recompute_fp8_weight(_in_bwd)?(?! ?[=:]? ?false)", said
    )
    generated = (
        chosen.kernels.transposed_fp8_copies
        and chosen.switches.fused_elementwise
        and row["strategy"].get("precision") in REDUCED
    )
    return {"keeps": (*chosen.kernels.saved_tensors, "casts")} if generated and not again else {}


def undated(row: Row, chosen: Stack) -> dict[str, tuple[str, ...]]:
    """Attention of plain PyTorch's programs that name no kernel and no date, as it was until PyTorch 2.9."""
    said = row["stack"].get("attention")
    if of_its_time(row) or not (said is True or said is None):
        return {}
    if chosen.name == "fsdp":
        return {"attention": ("flash-2", "flash-1"), "blackwell_attention": ("cudnn", "flash-2")}
    return {}


def repeated(row: Row, chosen: Stack) -> dict[str, bool]:
    """Whether eager torchtitan has turned off that checkpoints end early."""
    eager = chosen.name == "torchtitan" and not chosen.switches.fused_elementwise
    return {"lean_recompute": False} if eager and (month(row) or "") >= ENDS_LATE_SINCE else {}
