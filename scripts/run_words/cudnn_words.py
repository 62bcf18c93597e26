"""Which release of cuDNN, and of its kernels in Python, a measured run has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re
from run_words.dated import container, of_its_time

IN_8_BITS: Final = re.compile(
    r"fp8_(dpa|dot_product_attention|mha|multi_head_attention)|\bfp8[ _-]attention", re.IGNORECASE
)
"""How sources say that attention multiplies in 8 bits too: Megatron-Core's settings, Transformer Engine's words."""

RECIPES: Final = (26, 6)
"""First container whose MXFP8 recipes with experts set ``fp8_dot_product_attention`` on Blackwell, and whose
Transformer Engine has it for MXFP8 (scripts/performance/configs of 0.5.0 and 0.5.1 [Megatron-Bridge]; pull request 2719
[TE])."""
WITHOUT: Final = ((r"gpt-oss", r"b200|b300"), (r"deepseek-v3", r"gb200"))
"""Models and accelerators whose recipes there do not."""

SPILLING: Final = re.compile(r"\bnemo[ -]26\.06\.01\b|\bcudnn[ -_]?frontend\W{0,3}v?1\.2[45]\b", re.IGNORECASE)
"""Where biases' gradients spill: cudnn-frontend 1.24 and 1.25 under CUTLASS DSL 4.5, in NeMo 26.06.01 alone, as the
notes of Megatron-Bridge 0.5.1 tell [cudnn-dbias]."""
SPILLED: Final = 1362.768 / 155.632
"""``grouped_gemm_dglu`` with gradients of biases before and after that was mended, microseconds; without them it took
139 either way (pull request 322 [cudnn-dbias])."""


def cudnn_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Attention of cuDNN: not of 2026 where nothing dates the run, in 8 bits where it says so, and what spills."""
    told = f"{row['stack']} {row['strategy'].get('precision_note')} {row.get('notes')}"
    fp8 = {"fp8_attention": True} if IN_8_BITS.search(told) or _by_recipe(row) else {}
    spilled = {"bias_gradient_slowdown": SPILLED} if SPILLING.search(_software(row)) else {}
    undated = {} if of_its_time(row) else {"recent_cudnn": False}
    return undated | fp8 | spilled


def _software(row: Mapping[str, Any]) -> str:
    return f"{row['stack'].get('framework')} {row.get('source')}"


def _by_recipe(row: Mapping[str, Any]) -> bool:
    """Whether the run is of a performance recipe of Megatron-Bridge that attends in 8 bits."""
    framework, model = str(row["stack"].get("framework")).lower(), row.get("model") or {}
    if "megatron-bridge" not in framework or (container(row) or (0, 0)) < RECIPES:
        return False
    if row["strategy"].get("precision") != "mxfp8" or not model.get("experts"):
        return False
    name, device = str(model.get("name")).lower(), str(row["cluster"].get("accelerator"))
    return not any(re.match(m, name) and re.fullmatch(d, device) for m, d in WITHOUT)
