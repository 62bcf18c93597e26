"""What frameworks do, and keep in memory, that the stack they are mapped to does not: from their public code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.layer.elementwise import UNFUSED_ROTARY
from costmodels.stack.fields import Kept
from costmodels.stack.stack import Stack
from run_words import heard as re
from run_words.dated import month
from run_words.peft_words import flags_said
from run_words.pytorch import compiled
from run_words.stack_words import FINE_TUNERS

Row = Mapping[str, Any]

INTERLACED = 0.5
"""Further micro-batches per stage where a vocabulary is spread over the stages by tensor parallelism, which all of them
wait for: half as many again as without [Yeung24, section 6]."""

OF_TRANSFORMERS = (
    rf"^(?!.*(liger|transformer engine|unsloth|megatron-?swift)).*(hugging ?face|\bhf (trainer|peft)|{FINE_TUNERS})"
)
"""Frameworks that train Transformers' models as they are."""
RETURNED_WIDE, RETURNED_NARROW = 16, 14
"""Bytes held per logit by the loss of such a model as the softmax's gradient is made: the logits that its forward pass
returns, in fp32, or in 16 bits from release 4.46 on, and in fp32 the log-softmax, its gradient and theirs
[Transformers]."""
NARROW_SINCE = "2024-11"

SEMANTICS: tuple[tuple[str, dict[str, Any]], ...] = (
    # Under Accelerate FSDP reduces gradients in the format of mixed precision, which parameters are gathered in too;
    # shards and their gradients stay in fp32 [Accelerate].
    (rf"(?=.*accelerate)(?=.*fsdp){OF_TRANSFORMERS}", {"keeps": ("gate", "norm"), "reduce_bytes": 2}),
    # Its models write RMSNorm out in fp32, and the gate's activation before the product (modeling_llama.py), unless
    # Liger's kernels replace them.
    (OF_TRANSFORMERS, {"keeps": ("gate", "norm")}),
)
"""First match of the framework's words (lower case), and the fields that the code of Transformers settles."""

PLAIN_LINEAR = r"mem_efficient_linear=false"
"""Words for products that keep what ZeRO stage 3 gathered."""

CACHED = r"\buse_cache ?[=:]? ?(true|on)\b|\b(checkpoint_wrapper|apply_activation_checkpointing)\b"
"""Words for models of Transformers that return keys and values of every layer: ``use_cache``, on by default, or
PyTorch's wrapper of layers, with which Transformers does not know that it recomputes and leaves that on [use_cache]."""
UNCACHED = r"\buse_cache ?[=:]? ?(false|off)\b"
LETS_GO = r"trainer|\btrl\b|llama[- ]?factory|axolotl|swift"
"""Programs whose trainer lets go what a model returned as soon as it has the loss."""

NATIVE_GROUPS = ("v2", "v3", "v4")
"""Attention kernels that Transformers gives keys and values as they are; it repeats them for all others (repeat_kv)."""

UNFUSED_NORM = r"use_fused_rms_norm[ =:]*(off|false)"
"""PaddleNLP's switch of its one fused element-wise kernel of 2023, off unless asked for."""

EAGER_LOSS: dict[str, Any] = {
    "cross_entropy_bytes": 12,
    "cross_entropy_traffic": 66,
    "idle_logits": True,
    "keeps": ("gate", "norm", "key-values"),
}
"""torchtitan before it compiled the loss: in fp32 the logits' log-softmax and two gradients, behind the 16-bit logits,
which the trainer lets go, and the traffic of kernels an operation; norms and gates are PyTorch's own."""
COMPILED_SINCE = "2025-04"
"""torchtitan compiles its loss from 2 April 2025 on (commit bbb1b616e); from 18 December 2024 it did not, since that
failed (e8977b007)."""
EAGER_SPLIT_LOSS = 16
"""Bytes per logit of the same where ``loss_parallel`` splits it over tensor ranks: besides the log-softmax its backward
pass writes zeros, the exponential, their sum and the product one after the other, of which three stand at a time
(torch.distributed.tensor.parallel.loss, ``_nll_loss_and_log_softmax_backward``)."""


FUSED_SINCE = "2023-11"
"""Megatron-LM has kernels of its own for rotary positions and for gated activations from 15 November 2023 on (commit
8503f75401) [Megatron-rotary]."""
GATE_WRITTEN_OUT = (4.0, 16.0)
"""Before: SiLU, whose output is kept, a product, and the gradients of both halves joined (``swiglu`` of
``ParallelMLP``), where positions took negate, concatenate, two products, a sum and the part that is not turned put
behind, 24 bytes a value for 4."""

LINGERING = ("2021-03", "2021-07")
"""Megatron-LM's optimizer kept the fp32 copies of gradients until it made the next, and its wrapper, without contiguous
buffers, a name for the 16-bit ones (``main_grad``), from 8 March (commit b4bc51b1e) to 12 July 2021 (4e64903dc)
[Megatron21]."""


def changes(row: Row, chosen: Stack) -> dict[str, Any]:
    """Fields of the stack that the run's framework, its notes and its source settle."""
    framework, notes = str(row["stack"].get("framework")).lower(), str(row["stack"].get("notes") or "").lower()
    found: dict[str, Any] = {}
    if chosen.name == "torchtitan" and not _compiled_loss(row):
        found |= EAGER_LOSS
        if int(row["strategy"].get("tp") or 1) > 1:
            found["cross_entropy_bytes"] = EAGER_SPLIT_LOSS
    found |= next((fields for words, fields in SEMANTICS if re.search(words, framework)), {})
    found |= _returned(row, framework)
    if chosen.name == "maxtext":
        found |= _xla(row) | ({"selective": policy} if (policy := _kept(row)) else {})
    found |= _loop(row, framework, _not_made_again(row, chosen, found.get("keeps", chosen.kernels.saved_tensors)))
    if re.search(UNFUSED_NORM, notes):
        found["fused_elementwise"] = False
    if "over all stages" in notes or "over stages" in notes:
        found |= _spread(notes, int(row["strategy"].get("pp") or 1))
    return found | _megatron(row, chosen)


def _returned(row: Row, framework: str) -> dict[str, Any]:
    """What the loss of Transformers' own models holds of logits, where no compiler or pipeline makes it anew.

    Llama and its kin take logits in fp32; GPT-2 and its do not.
    """
    own = re.search(OF_TRANSFORMERS, framework) and "torch.compile" not in framework
    if not own or not row["model"].get("gated_ffn") or int(row["strategy"].get("pp") or 1) > 1:
        return {}
    return {"cross_entropy_bytes": RETURNED_NARROW if (month(row) or "") >= NARROW_SINCE else RETURNED_WIDE}


def _not_made_again(row: Row, chosen: Stack, keeps: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """What of ``keeps`` a compiler keeps: no norm and no gate, but what kernels that it does not make read [MinCut]."""
    made_again = {"gate", "norm"} if compiled(row, chosen).get("fused_elementwise") else set()
    return tuple(one for one in keeps if one not in made_again)


def _loop(row: Row, framework: str, keeps: tuple[Kept, ...]) -> dict[str, Any]:
    """What a model of Transformers, and the loop around it, keeps besides ``keeps``."""
    if re.search(PLAIN_LINEAR, str(row["stack"].get("notes")).lower()):
        keeps = (*keeps, "gathered")
    if re.search(r"transformers|hugging ?face", framework) and row["stack"].get("attention") not in NATIVE_GROUPS:
        keeps = (*keeps, "key-values")
    return {"keeps": (*keeps, *_caches(row, framework))}


def _caches(row: Row, framework: str) -> tuple[Kept, ...]:
    """Keys and values that a model of Transformers returns, once for every pass whose the loop around it holds."""
    words = f"{framework}; {row['stack'].get('notes')}; {flags_said(row)}; {row['strategy'].get('recompute_detail')}"
    said = words.lower()
    if not re.search(CACHED, said) or re.search(UNCACHED, said) or not re.search(OF_TRANSFORMERS, framework):
        return ()
    return ("cache",) if re.search(LETS_GO, framework) else ("cache", "cache")


def _spread(notes: str, stages: int) -> dict[str, Any]:
    """A vocabulary over all stages: how often they wait for each other, by the number of the algorithm [Yeung24]."""
    algorithm = re.search(r"algorithm (\d)", notes)
    waits = 3.0 - float(algorithm[1]) if algorithm else INTERLACED * stages
    return {"vocabulary": ("spread",), "vocabulary_in_flight": waits}


def _megatron(row: Row, chosen: Stack) -> dict[str, Any]:
    """What Megatron-LM had before its own kernels of 2023, and held of gradients in the spring of 2021.

    Llama and its kin drop nothing, whatever a stack's models of 2020 did.
    """
    gated = bool(row["model"].get("gated_ffn"))
    found: dict[str, Any] = {"dropout": False} if gated else {}
    when, framework = month(row), str(row["stack"].get("framework")).lower()
    if when and when < FUSED_SINCE and chosen.name == "megatron-core" and "megatron-lm" in framework:
        gate = {"around_activation": GATE_WRITTEN_OUT, "keeps": (*chosen.kernels.saved_tensors, "gate")}
        found |= {"rotary_passes": UNFUSED_ROTARY} | (gate if gated else {})
    if when and framework == "megatron-lm" and LINGERING[0] <= when < LINGERING[1]:
        found["lingering_gradients"] = row["strategy"].get("precision") == "fp16"
    return found


def _compiled_loss(row: Row) -> bool:
    """Whether a run of torchtitan has a compiled loss, by its source's or its accelerator's date, and is not eager."""
    if (when := month(row)) is not None and when < COMPILED_SINCE:
        return False
    if re.search(r"\beager\b|\bno(t)? (torch\.)?compile", f"{row['stack']}".lower()):
        return False
    years = [int(year) for year in re.findall(r"20[12]\d", str(row.get("source")))]
    newer = (when or "") >= COMPILED_SINCE or row["cluster"]["accelerator"].startswith(("b200", "gb200", "mi300"))
    return newer or bool(years and max(years) >= 2025)


COMPILERS: Final = r"tpu|trainium|trn\d"
"""Accelerators whose compilers are other ones."""

KERNELS_OF_ITS_OWN: Final = r"\bTE\b|transformer engine"


def _xla(row: Row) -> dict[str, Any]:
    """Whether a softmax is one kernel: not XLA's own, or on devices whose compilers are other ones."""
    other = re.match(COMPILERS, str(row["cluster"].get("accelerator")))
    said = f"{row['stack']} {row['strategy'].get('precision_note')}"
    return {"fused_softmax": True} if other or re.search(KERNELS_OF_ITS_OWN, said, re.IGNORECASE) else {}


POLICIES: Final = (
    (r"minimal_flash|minimal_with_context", "up-projections"),
    (r"minimal", "products"),
    (r"save_dot_with_context_except_mlp", "feed-forward"),
    (r"save_dot_except_mlp|qkv and attention output offloaded", "attention-products"),
)
"""Names of MaxText's policies, or what one keeps, and the kind of selective recomputation that does so
(``layers/decoders.py``, ``get_remat_policy``)."""


def _kept(row: Row) -> str | None:
    """The kind of selective recomputation that a run's policy is, where it is not the usual one."""
    said = f"{row['strategy'].get('recompute_detail')} {row.get('filled')} {row.get('notes')}".lower()
    return next((kind for words, kind in POLICIES if re.search(words, said)), None)
