"""What a measured run's words on its attention mean, and what its release decides of it where they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

UNEQUAL: Final = frozenset({"b200", "b300", "gb200", "gb300"})
"""Devices on which cuDNN before 9.11 has no backward pass for queries of 192 and values of 128 [TE]."""
ORDERED_BY_FLASH: Final = ("a100", "a800", "b200", "b300", "gb200", "gb300")
"""Devices whose runs repeat themselves to the bit with FlashAttention-2: Transformer Engine takes cuDNN's kernel for
that from compute capability 9.0 on, and on Blackwell only without dropout [TE]."""
CONTAINERS: Final = (("dgxc", (25, 8)), ("nemo", (25, 7)))
"""First release with a container that has it, by words of the run: NVIDIA's benchmarks run NeMo 25.04 up to their
release 25.07, and recompute the attention core on these devices up to then."""
MLPERF: Final[Mapping[str, tuple[str, ...]]] = {"3.0": ("flash-1",), "3.1": ("flash-2",)}
"""What NVIDIA's language models of MLPerf Training ran before cuDNN's kernel. Round 3.0 (containers of April 2023) came
out before FlashAttention-2 did; round 3.1 installs flash-attn 2.0.8 [MLPerf]."""

SWITCHED: Final = (
    r"dgxc-benchmarking v(24\.11|25\.01)[.\d]*, (gpt3|nemotron4-340b|grok1)",
    r"dgxc-benchmarking v25\.02[.\d]*, (nemotron4-340b|grok1)",
    r"dgxc-benchmarking v25\.04[.\d]*, grok1",
)
"""Recipes whose scripts set ``NVTE_FUSED_ATTN=0``, so that Transformer Engine takes FlashAttention-2 [dgxc-bench]."""
LAUNCHED: Final = r"nemo 24\.0[1-7]\b"
"""Releases whose launcher does so for every model (``launcher_scripts/conf/config.yaml``: "Disable cudnn FA until
we've tested it more", up to pull request 422 of 29 August 2024): those of NVIDIA's own tables [NeMo-launcher]."""
OWN: Final = r"kwai/megatron-kwai|flagperf training/nvidia/llama3_\d+b-megatron"
"""Sources that say so of their own code: Kwai's fork calls flash-attn itself, and Transformer Engine 1.1 beside it
takes it wherever it can (``dispatch_flash_attn.py``); FlagPerf's README lists it [Megatron-Kwai]."""

LANES: Final = 128
"""Heads of splash attention are multiples of so many wide: ``head_dim_v=64 should be a multiple of 128`` (August 2025,
GitHub jax-ml/jax, issue 30861) [Splash]."""
IN_BLOCKS: Final[Mapping[str, Any]] = {"attention": ("unfused",), "attention_block": 1024}
"""What Levanter does instead ("Falling back to the reference", layers/attention.py): loops over blocks of 1,024 queries
and as many keys, written in JAX (models/flash_attention.py) [Levanter]."""

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
"""What says that there is none, where no kernel is named beside it."""


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
    """Kernels that a release had.

    Those of MLPerf's rounds and of launch scripts that switch cuDNN's off; Levanter's own for heads that the kernel of
    TPUs does not take; of latent attention batched products and a softmax where there was no fused backward pass; and
    FlashAttention-2 where a run on Ampere or Blackwell has to repeat itself to the bit: Transformer Engine knows no
    other backward pass there that does, and drops values out.
    """
    if _repeats_itself(row):
        other = str(row["cluster"].get("accelerator")).startswith(ORDERED_BY_FLASH)
        return {"deterministic": True} | ({"attention": ("flash-2",)} if other else {})
    if _too_narrow(row):
        return dict(IN_BLOCKS)
    if kernels := _chosen(row):
        return {"attention": kernels}
    mla = row["model"].get("mla") or {}
    if row["cluster"].get("accelerator") not in UNEQUAL or mla.get("qk_nope", 0) + mla.get("qk_rope", 0) <= 128:
        return {}
    words = f"{row.get('source')} {row['stack'].get('framework')}".lower()
    released = re.search(r"\bv?(2[4-9])\.(0[1-9]|1[0-2])\b", words)
    first = next((since for word, since in CONTAINERS if word in words), None)
    if released is None or first is None or (int(released[1]), int(released[2])) >= first:
        return {}
    return {"attention": ("unfused",)}


def _chosen(row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Kernels of a round of MLPerf, of a script that switches cuDNN's off."""
    rounds = re.match(r"MLPerf Training v(\d\.\d)", str(row.get("source")))
    if rounds and rounds[1] in MLPERF and "NVIDIA" in str(row.get("source")):
        return MLPERF[rounds[1]]
    return ("flash-2",) if _switched_off(row) else None


def _too_narrow(row: Mapping[str, Any]) -> bool:
    """Whether heads are no multiple of ``LANES`` wide under a framework that attends by itself then, on TPUs."""
    model, device = row["model"], str(row["cluster"].get("accelerator"))
    if not device.startswith("tpu") or "levanter" not in str(row["stack"].get("framework")).lower():
        return False
    width = model.get("head_dim") or int(model["hidden_size"]) // int(model["num_heads"])
    return int(width) % LANES != 0


def _switched_off(row: Mapping[str, Any]) -> bool:
    source, framework = str(row.get("source")).lower(), str(row["stack"].get("framework")).lower()
    launched = source.startswith("nvidia/nemo ") and re.search(LAUNCHED, framework)
    return bool(launched) or any(re.search(recipe, source) for recipe in (*SWITCHED, OWN))


def _repeats_itself(row: Mapping[str, Any]) -> bool:
    words = f"{row['stack'].get('notes')} {row.get('notes')}".lower()
    return re.search(r"\bdeterministic\b", words) is not None
