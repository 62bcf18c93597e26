"""What a measured run of a PyTorch-native stack says of its kernels: compiled or eager, one pass or many a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodels.scenario import REDUCED
from costmodels.stack.optimizers import ONE_PASS
from costmodels.stack.stack import Stack
from run_words import heard as re
from run_words.dated import month
from run_words.peft_words import flags_said
from run_words.saving import NARROW

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
NARROW_PASSES = 46 + 8
"""The same where all states have 16 bits; narrower moments take 8 off again (``optimizers.step_traffic_bytes``)."""
_NOT_OFF = r"(?!\W{0,3}(false|off|no\b|0\b))"
FUSED_STEP = (
    rf"(?<!no )(?<!not )(?<!without )\bfused[ _-]adamw?\b{_NOT_OFF}|\badamw?(,? \(?|_)fused\b(?! ?=){_NOT_OFF}"
    rf"|\badamw_torch_fused\b{_NOT_OFF}|\badamw?\([^)]*fused ?= ?true"
)
"""Words for the kernel that does all of that at once, PyTorch's ``AdamW(fused=True)``, to Transformers' trainer
``adamw_torch_fused``; it moves what a step of one kernel does anywhere."""
SCRIPT = r"\bplain (pytorch )?script\b|\bpytorch\b.*\b(eager|no framework)\b"
"""Words for a script of PyTorch's own parts alone, whose AdamW is the multi-tensor one unless it says otherwise."""
STEPPED_AT_ONCE_SINCE = "2025-03"
"""torchtitan steps with the fused kernel from 24 February 2025 on (commit 6e4988550)."""
TUNED_AT_ONCE_SINCE = "2024-10"
"""torchtune's configurations from 14 September 2024 on (commit cca50f02e)."""
UNITS_SINCE = "2025-08"
"""It shards embedding and head in units of their own from 28 July 2025 on (commit 83e694105)."""
CUDNN_SINCE = "2025-12"
"""Its list of operators that recomputation keeps has cuDNN's attention from 1 December 2025 on (commit b39377f9f)."""
EXCHANGES_SINCE = "2025-09"
"""That list has all-to-alls from 6 September 2025 on (commit c4e229115)."""
ENDS_EARLY_SINCE = "2023-10"
"""Checkpoints that are not re-entrant end once all is there that was kept from PyTorch 2.1 on (GitHub pytorch/pytorch,
pull request 96866)."""
ENDS_LATE_SINCE = "2025-09"
"""torchtitan turns that off from 29 August 2025 on (commit 25413d224); what it compiles is lean all the same."""
CUDNN_FIRST_SINCE = "2025-10"
"""scaled_dot_product_attention prefers cuDNN's kernel on Hopper and Blackwell from PyTorch 2.9 on (GitHub
pytorch/pytorch, pull request 162073); before it was FlashAttention-2, since 2.2."""
EAGER_KERNELS = 36
"""Kernels of a layer's forward pass in torchtitan without a compiler (models/llama/model.py, January 2025): 8 for each
norm, 6 to rotate queries and keys, 2 to repeat keys and values, 7 products, attention, activation, product of branches
and 2 residuals. Half as many are left once compiled."""
EXPANDABLE_SINCE = "2024-10"
"""torchtitan's script for one node sets ``expandable_segments`` from 22 October 2024 on (commit a5e57e4a9); that for
several (multinode_trainer.slurm) does not, nor has PyTorch them for AMD's devices (c10/hip, as of 2.9)
[Segments]."""
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


def segments(row: Row) -> dict[str, bool]:
    """Whether the allocator's segments are fixed: torchtitan's on several nodes, on AMD's devices, and before it asked.

    A run that starts ``torchrun`` itself on several nodes, as its reports say, sets no such variable either.
    """
    if "torchtitan" not in str(row["stack"].get("framework")).lower():
        return {}
    cluster, when = row["cluster"], month(row)
    several = int(row["strategy"].get("gpus") or 1) > int(cluster.get("gpus_per_node") or 8)
    amd = str(cluster.get("accelerator")).startswith("mi")
    return {"fixed_segments": several or amd or (when is not None and when < EXPANDABLE_SINCE)}


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
    noted = row.get("strategy", {}).get("precision_note")
    narrow = re.search(NARROW, f"{noted} {said}".lower())
    return {"optimizer_traffic": NARROW_PASSES} if narrow else {"optimizer_traffic": MANY_PASSES} if plain else {}


def stepped(row: Row, chosen: Stack) -> dict[str, Any]:
    """The optimizer's step, as named or as of before its program changed it; its units, what it keeps."""
    when, step = month(row), _step(row, chosen)
    if chosen.name != "torchtitan" or when is None:
        return step
    since = TUNED_AT_ONCE_SINCE if "torchtune" in str(row["stack"].get("framework")).lower() else STEPPED_AT_ONCE_SINCE
    older = step or ({"optimizer_traffic": MANY_PASSES} if when < since else {})
    lists = {"saves_cudnn": when >= CUDNN_SINCE, "saves_exchanges": when >= EXCHANGES_SINCE}
    return older | {"root_unit": when < UNITS_SINCE} | lists


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


def of_its_date(row: Row, chosen: Stack) -> Stack:
    """DeepSpeed's stack with attention as models wrote it out, unless the run's date says that PyTorch fuses it."""
    if chosen.name != "deepspeed" or (month(row) or "") >= CUDNN_FIRST_SINCE:
        return chosen
    return chosen.changed({"switches.attention_backend": ("unfused",), "kernels.blackwell_attention": ()})


def attended(row: Row, chosen: Stack) -> dict[str, tuple[str, ...]]:
    """FlashAttention-2 for a run of plain PyTorch on Hopper that names no kernel, unless its date says otherwise."""
    said, when = row["stack"].get("attention"), month(row)
    if chosen.name != "fsdp" or not (said is True or said is None) or (when or "") >= CUDNN_FIRST_SINCE:
        return {}
    return {"attention": ("flash-2", "flash-1"), "blackwell_attention": ("cudnn", "flash-2")}


def repeated(row: Row, chosen: Stack) -> dict[str, bool]:
    """Whether checkpoints end early: not before PyTorch did that, nor where eager torchtitan has turned it off."""
    when = month(row)
    if not chosen.recompute.skips_unread or not chosen.sharding.fsdp_stage2 or when is None:
        return {}
    late = chosen.name == "torchtitan" and not chosen.switches.fused_elementwise and when >= ENDS_LATE_SINCE
    return {"lean_recompute": when >= ENDS_EARLY_SINCE and not late}
