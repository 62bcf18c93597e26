"""What a measured run's words on its attention mean, and what they ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re
from run_words.dated import of_its_time

ORDERED_BY_FLASH: Final = ("a100", "a800", "b200", "b300", "gb200", "gb300")
"""Devices whose runs repeat themselves to the bit with FlashAttention-2: Transformer Engine takes cuDNN's kernel for
that from compute capability 9.0 on, and on Blackwell only without dropout [TE]."""
UNSAID: Final = (
    r"\??|n/?a|null|unknown|default|auto|unspecified|not-(stated|said|known|given)|(causal-)?(m[hq]a|gqa|mla)"
)
"""Words that say nothing of kernels, among them those on the heads."""
WRITTEN_OUT: Final = (
    r"\b(unfused|non-?fused|eager|naive|math|baddbmm)\b|\b(no|not|non|without)-(flash|fused|sdpa)"
    r"|\bfused-(\w+-)*softmax|\b(off|disabled|false)\b"
)
"""How sources call attention that is a product, a softmax, even one in one kernel, and a product."""
RELEASE: Final = r"(?:^v?|\b(?:fa|flash-?(?:attn|attention)?)-?\(?v?)([1-4])(?!\d)"
"""A release of FlashAttention: FA2, flash_attn 2.5, FlashAttention-3, or no more than its number."""
KERNEL: Final = (
    r"flash|\bfa\b|fused|fusion|sdpa|scaled-dot-product|xformers|mem(ory)?-eff|triton|transformer-?engine|\bte\b|splash|cutlass"
    r"|^(true|yes|on|enabled)$"
)
"""How they call a kernel of its own without saying which."""
PLAIN: Final = r"\b(no|off|none|false|disabled|vanilla|standard|plain|0|softmax)\b"
"""What says that there is none, where no kernel is named."""
IN_8_BITS: Final = re.compile(
    r"fp8_(dpa|dot_product_attention|mha|multi_head_attention)|\bfp8[ _-]attention", re.IGNORECASE
)
"""How sources say that attention multiplies in 8 bits too: Megatron-Core's settings, Transformer Engine's words."""


def kernel_named(said: object) -> bool | str | None:
    """What a run's own words on its attention mean: a release, a kernel, one of its own or none; None: not said.

    Every other word is taken for the name of some kernel: nobody names what PyTorch does by itself.
    """
    name = _spelled(said)
    if re.fullmatch(UNSAID, name):
        return None
    if re.search(WRITTEN_OUT, name):
        return False
    if "cudnn" in name:
        return "cudnn"
    if release := re.search(RELEASE, name):
        return f"v{release[1]}"
    return bool(re.search(KERNEL, name)) or not re.search(PLAIN, name)


def assumed(said: object) -> bool:
    """Whether words on attention are taken for a kernel only because they deny none."""
    return kernel_named(said) is True and not re.search(KERNEL, _spelled(said))


def _spelled(said: object) -> str:
    return re.sub(r"[_ ]+", "-", str(said).strip().lower())


def attention_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """FlashAttention-2 where a run on Ampere or Blackwell has to repeat itself to the bit.

    Transformer Engine knows no other backward pass there that does, and drops values out.
    """
    if not _repeats_itself(row):
        return {}
    other = str(row["cluster"].get("accelerator")).startswith(ORDERED_BY_FLASH)
    return {"deterministic": True} | ({"attention": ("flash-2",)} if other else {})


def _repeats_itself(row: Mapping[str, Any]) -> bool:
    words = f"{row['stack'].get('notes')} {row.get('notes')}".lower()
    return re.search(r"\bdeterministic\b", words) is not None


def cudnn_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Attention of cuDNN: not of 2026 where nothing dates the run, in 8 bits where it says so."""
    told = f"{row['stack']} {row['strategy'].get('precision_note')} {row.get('notes')}"
    fp8 = {"fp8_attention": True} if IN_8_BITS.search(told) else {}
    return fp8 if of_its_time(row) else fp8 | {"recent_cudnn": False}
