"""What frameworks do, and keep in memory, that the stack they are mapped to does not: from their public code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodels.layer.blocks import UNFUSED_ROTARY
from costmodels.stack.fields import Kept
from costmodels.stack.stack import Stack
from run_words import heard as re
from run_words.dated import month
from run_words.flat_fields import NOTHING_HIDDEN
from run_words.peft_words import flags_said
from run_words.pytorch import compiled
from run_words.stack_words import FINE_TUNERS
from run_words.xla_words import kept, xla_changes

Row = Mapping[str, Any]

INTERLACED = 0.5
"""Further micro-batches per stage where a vocabulary is spread over the stages by tensor parallelism, which all of them
wait for: half as many again as without [Yeung24, section 6]."""

NOTHING_FUSED = {"fused_elementwise": False, "fused_softmax": False}
"""Bias, GELU, dropout and softmax in kernels of their own, as Megatron-LM 1.1.5 runs unless asked (decision 016)."""

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
    # Its layers (opt_model.py) leave dropout out. Logits in fp32 become their softmax in place.
    (r"sailor", {"dropout": False, "cross_entropy_bytes": 6}),
    # An older Transformer Engine, which frees the gradients that it does not write; Megatron-LM's default dropout.
    (r"sail-sg", {"idle_gradients": False, "dropout": True}),
    # Release 4 reads arguments of its own instead of Megatron-LM's, which turned fp32 gradients on under bf16: off but
    # where asked for, so that they are added up and travel in 16 bits [SWIFT].
    (
        r"(?=.*megatron-?swift).*swift v?([4-9]|\d\d)\.",
        {"gradient_bytes": 2, "reduce_bytes": 2, "passed_gradient_bytes": 0},
    ),
    # Under Accelerate FSDP reduces gradients in the format of mixed precision, which parameters are gathered in too;
    # shards and their gradients stay in fp32 [Accelerate].
    (rf"(?=.*accelerate)(?=.*fsdp){OF_TRANSFORMERS}", {"keeps": ("gate", "norm"), "reduce_bytes": 2}),
    # Its models write RMSNorm out in fp32, and the gate's activation before the product (modeling_llama.py), unless
    # Liger's kernels replace them.
    (OF_TRANSFORMERS, {"keeps": ("gate", "norm")}),
    # One product makes queries, keys and values, of which the first two are turned into copies, and the latter repeated
    # for every head (litgpt/model.py, CausalSelfAttention) [LitGPT].
    (r"\blitgpt\b", {"keeps": ("gate", "norm", "key-values", "rotated")}),
    # Its recipes say ``dtype: bf16``: weights, gradients and moments alike. Their loss takes logits in eight parts, in
    # 16 bits with their gradients, and one part at a time in fp32 with what becomes of it [torchtune].
    (
        r"torchtune",
        {"weight_bytes": 2, "optimizer": "adam-bf16", "optimizer_bytes": 8, "gradient_bytes": 2, "reduce_bytes": 2}
        | {"cross_entropy_bytes": 5, "idle_logits": False},
    ),
    # Its loss is FlashAttention's, eight bytes a logit; two metrics of every micro-batch cast the logits to fp32, read
    # them and write their log-softmax, fourteen bytes each [llm-foundry].
    (r"llm[- ]?foundry|composer", {"cross_entropy_traffic": 36, "cross_entropy_bytes": 4}),
    # Its classifier reads the logits twice and writes their gradients over them (llmc/fused_classifier.cuh) [llm.c].
    (r"\bllm\.c\b", {"cross_entropy_traffic": 6, "cross_entropy_bytes": 2}),
    # XLA on GPUs ran no collective beside computation then (alpa issue 31, jax issue 4666; alpa's pull request 773 of
    # November 2022 is the first to hide messages between stages).
    # Its compiler joins all gathers of new parameters into one (auto_sharding.py, ``all_gather_threshold`` [Alpa]).
    (r"\balpa\b", {**NOTHING_HIDDEN, "joint_gather": True}),
    # Pods of PaLM hand each other their gradients once, behind the backward pass [Chowdhery22, section 4].
    (r"\bpathways\b", {"replicas_once": True}),
    # Its script for ZeRO-3 partitions checkpoints, and moves them to the host unless the run says otherwise.
    # The fused kernels of its Megatron-LM are off unless asked for (megatron/arguments.py), which no script of its own,
    # of BigScience or of AMP does.
    (r"deepspeedexamples.*v1\.1\.5", {"partitioned_checkpoints": True} | NOTHING_FUSED),
    (r"deepspeedexamples", {"partitioned_checkpoints": True}),
    (r"megatron v1\.1\.5", NOTHING_FUSED),
    # Parameters, gradients and moments are in bf16; gradients are added up whole, in the format that reduces them,
    # until the last micro-batch, on one rank too, which it wraps like any other; logits are whole on every tensor rank,
    # the loss is in bf16; its profile of April 2026 shows cuDNN's attention on H200 (benchmarks/profiling). Its
    # script leaves ``reshard_after_forward`` on in pipelines (docs/distributed/pipeline-parallelism.md) [KempnerForge].
    (
        r"kempnerforge",
        {
            "weight_bytes": 2,
            "optimizer": "adam-bf16",
            "optimizer_bytes": 8,
            "gradients_sharded": False,
            "pipeline_gathers_again": True,
            "gathered_logits": True,
            "apart": ("qkv", "gate"),
            "whole_vocabulary": ("embedding",),
            "cross_entropy_bytes": 8,
            "keeps": (),
            "attention": ("cudnn", "flash-2"),
        },
    ),
)
"""First match of the framework's words (lower case), and the fields that its code settles."""

LOOPS: tuple[tuple[str, dict[str, Any]], ...] = (
    # ds_config.json of FlagPerf's models at stage 3: reduce_bucket_size 1e7.
    (r"flagperf.*(llama2_7b|chatglm3_6b)-deepspeed", {"reduce_bucket": 2e7}),
)
"""Words of a run, or its source, on the loop around Transformers' models, and the fields that these settle."""

PLAIN_LINEAR = r"mem_efficient_linear=false|flagperf.*(llama2_7b|chatglm3_6b)-deepspeed"
"""The same for products that keep what ZeRO stage 3 gathered: FlagPerf builds these models under
``zero.Init(mem_efficient_linear=False)`` (training/benchmarks/*/deepspeed/run_pretraining.py, commit 1193d60)."""

CACHED = r"\buse_cache ?[=:]? ?(true|on)\b|\b(checkpoint_wrapper|apply_activation_checkpointing)\b"
"""Words for models of Transformers that return keys and values of every layer: ``use_cache``, on by default, or
PyTorch's wrapper of layers, with which Transformers does not know that it recomputes and leaves that on [use_cache]."""
CACHING = r"\batorch\b.*\bfsdp"
"""Frameworks that recompute by that wrapper, and whose loops hand what the model returned to a loss [ATorch]."""
UNCACHED = r"\buse_cache ?[=:]? ?(false|off)\b"
LETS_GO = r"trainer|\btrl\b|llama[- ]?factory|axolotl|swift"
"""Programs whose trainer lets go what a model returned as soon as it has the loss."""

NATIVE_GROUPS = ("v2", "v3", "v4")
"""Attention kernels that Transformers gives keys and values as they are; it repeats them for all others (repeat_kv)."""

UNFUSED_NORM = r"use_fused_rms_norm[ =:]*(off|false)"
"""PaddleNLP's switch of its one fused element-wise kernel of 2023, off unless asked for."""

EAGER_LOSS: dict[str, Any] = {
    "cross_entropy_bytes": 12,
    "idle_logits": True,
    "keeps": ("gate", "norm", "key-values"),
}
"""torchtitan before it compiled the loss: in fp32 the logits' log-softmax and two gradients, behind the 16-bit logits,
which the trainer lets go; norms and gates are PyTorch's own."""
COMPILED_SINCE = "2025-04"
"""torchtitan compiles its loss from 2 April 2025 on (commit bbb1b616e); from 18 December 2024 it did not, since that
failed (e8977b007)."""
EAGER_SPLIT_LOSS = 16
"""Bytes per logit of the same where ``loss_parallel`` splits it over tensor ranks: beside the log-softmax its backward
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
    if "kempnerforge" in framework and int(row["strategy"].get("pp") or 1) > 1:
        found["whole_vocabulary"] = ("embedding", "head")  # its pipelines split no sequences
    if chosen.name == "maxtext":
        found |= xla_changes(row) | ({"selective": policy} if (policy := kept(row)) else {})
    found |= _loop(row, framework, _not_made_again(row, chosen, found.get("keeps", chosen.kernels.saved_tensors)))
    if re.search(UNFUSED_NORM, notes):
        found["fused_elementwise"] = False
    if "kernel set" in notes:
        fused = "rms kernel" in notes
        found |= {"fused_elementwise": fused, "fused_softmax": not notes.endswith("torch")}
        found["keeps"] = ("gate", *(() if fused else ("norm",)), *_attention_copies(row))
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
    """What a model of Transformers, and the loop around it, keeps beside ``keeps``."""
    said = f"{row.get('source')} {row['stack'].get('notes')}".lower()
    found: dict[str, Any] = {}
    for words, fields in LOOPS:
        found |= fields if re.search(words, said) else {}
    if re.search(PLAIN_LINEAR, said):
        keeps = (*keeps, "gathered")
    if re.search(r"transformers|hugging ?face", framework) and row["stack"].get("attention") not in NATIVE_GROUPS:
        keeps = (*keeps, "key-values")
    return found | {"keeps": (*keeps, *_caches(row, framework))}


def _caches(row: Row, framework: str) -> tuple[Kept, ...]:
    """Keys and values that a model of Transformers returns, once for every pass whose the loop around it holds."""
    words = f"{framework}; {row['stack'].get('notes')}; {flags_said(row)}; {row['strategy'].get('recompute_detail')}"
    said = words.lower()
    returned = re.search(CACHED, said) or re.search(CACHING, framework)
    if not returned or re.search(UNCACHED, said) or not re.search(OF_TRANSFORMERS, framework):
        return ()
    return ("cache",) if re.search(LETS_GO, framework) else ("cache", "cache")


def _attention_copies(row: Row) -> tuple[Kept, ...]:
    """Copies around the attention of Aleph Alpha's framework, whose tensors go by token, then by sequence [scaling].

    Fused kernels take views of the projection and rotated copies; several sequences turn views into copies.
    """
    several = int(row["strategy"].get("micro_batch_size") or 1) > 1
    notes = str(row["stack"].get("notes"))
    if "flash" in notes:
        return ("rotated", *(("transposed",) if several else ()))
    softmax: tuple[Kept, ...] = ("softmax",) if notes.endswith("torch") else ()
    return softmax if several else (*softmax, "rotated")


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
