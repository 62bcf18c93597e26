"""Megatron-LM's arguments as a question: words of a command line, also inside a shell script."""

from __future__ import annotations

from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.given import Asked, Given, said
from planner.jobs.megatron.options import (
    CP_KINDS,
    FP8_RECIPES,
    OPTIMIZERS,
    SHARDED,
    Options,
    check_words,
    count,
    number,
    options,
    word,
)
from planner.jobs.megatron.read_hybrid import hybrid_pattern
from planner.jobs.megatron.read_layout import Pipeline, pipeline_of
from planner.jobs.megatron.read_length import training_length, unknown_length
from planner.jobs.megatron.read_model import assumed_fields, model_fields
from planner.jobs.megatron.read_recompute import recomputation

_PRICED_OTHERWISE: Final = (
    "tp-comm-overlap", "overlap-moe-expert-parallel-comm", "cuda-graph-impl", "enable-cuda-graph",
    "external-cuda-graph", "cpu-offloading", "delay-wgrad-compute", "use-torch-fsdp2", "moe-token-dispatcher-type",
    "moe-enable-deepep", "moe-shared-expert-overlap", "distribute-saved-activations", "fp32-residual-connection",
    "deterministic-mode", "no-gradient-accumulation-fusion", "no-masked-softmax-fusion", "no-bias-gelu-fusion",
    "no-bias-swiglu-fusion", "no-bias-dropout-fusion", "no-rope-fusion", "no-persist-layer-norm",
    "no-overlap-p2p-communication", "overlap-param-gather-with-optimizer-step", "rampup-batch-size",
    "step-batch-size-schedule", "outer-dp-sharding-strategy", "heterogeneous-layers-config-path",
    "encoder-num-layers", "experimental-attention-variant", "num-layers-at-start-in-bf16",
    "num-layers-at-end-in-bf16",
)  # fmt: skip
"""Arguments that change the speed or the memory and that no pin says; the stack's own habits are priced."""
_OVERLAPS: Final = ("overlap-grad-reduce", "overlap-param-gather")
_HARMLESS: Final = (
    r"(lr|min-lr|log|save|load|eval|train|test|valid|adam|init-method|tokenizer|data|tensorboard|wandb|master|rdzv|node|local"
    r"|ckpt|exit|no-load|no-save|distributed-t|distributed-b|weight-decay|clip-grad|seed|split|num-workers|merge|vocab-f"
    r"|make-vocab|mock|timing|profile|finetune|override|use-checkpoint|auto-detect|norm-epsilon|rotary-base|loss-scale"
    r"|initial-loss|hysteresis|manual-gc|standalone|max-restarts|no-create|per-split|moe-aux|moe-z|result|tee)\b.*"
    r"|use-mcore-models|max-position-embeddings|moe-grouped-gemm|export-.*|.*-port|.*-timeout.*"
    r"|moe-router-(load|score|dtype|pre|topk-s|bias).*|accumulate-allreduce-grads-in-fp32|use-precision-aware-optimizer"
)
"""Options of the run around the model: rates, files, logs. They change no price."""
LOOPED: Final = (
    "no --moe-grouped-gemm (or none under --transformer-impl local): the experts of a rank run one after another "
    "(SequentialMLP), which is not priced; grouped products are, and the run takes longer, the more so the more "
    "experts a rank has"
)
"""What Megatron-Core builds then (extensions/transformer_engine_spec_provider.py: grouped_mlp_modules)."""
_MOMENTS: Final = {"fp16": "adam-bf16", "bf16": "adam-bf16", "fp8": "adam-8bit"}


def megatron_job(text: str, *, model_known: bool = False) -> Given:
    """The job that arguments of ``pretrain_gpt.py`` describe, as of Megatron-Core 0.17.

    Args:
        text: a command line, or a script with one.
        model_known: the model is said elsewhere, and the arguments need not describe one.

    Raises:
        BadRequest: no argument of Megatron-LM is there, or a value is not what it should be.
    """
    at = Asked(options(text))
    if not {"tensor-model-parallel-size", "num-layers", "micro-batch-size"} & set(at):
        raise BadRequest("no arguments of Megatron-LM in it, such as --tensor-model-parallel-size 8")
    check_words(at)
    pipeline = pipeline_of(at)
    described = not model_known and ("num-layers" in at or bool(hybrid_pattern(at)))
    fields = said(
        model=model_fields(at) if described else None,
        gpus=_gpus(at),
        global_batch_size=number(at, "global-batch-size"),
        seq_length=number(at, "seq-length"),
        precision=_precision(at),
        **_savers(at),
        changes=_changes(at) or None,
    )
    again = recomputation(at, pipeline)
    pins = _pins(at, pipeline) | again.pins
    length = training_length(at)
    remarks = (
        *_otherwise(at),
        *(assumed_fields(at) if described else ()),
        *_assumed(at),
        *again.remarks,
        *unknown_length(at),
    )
    unread = at.unread(_HARMLESS, prefix="--")
    return Given(fields, pins, pipeline.layers, again.layers, (*remarks, *unread), length=length)


def _otherwise(at: Options) -> list[str]:
    """What is said and not priced, or not said and priced."""
    told = [f"--{name} is not priced from the arguments" for name in _PRICED_OTHERWISE if name in at]
    told += [f"--{name} is not given; the stack's overlap is priced" for name in _OVERLAPS if name not in at]
    one, other = (word(at, name, "fp32") for name in ("exp-avg-dtype", "exp-avg-sq-dtype"))
    if one != other:
        told.append(f"--exp-avg-sq-dtype {other} is priced as --exp-avg-dtype {one}: both moments have one format")
    if word(at, "attention-backend") == "flash":
        told.append(
            "--attention-backend flash is priced as the stack attends; --set stack.attention_backend=flash-2 says which"
        )
    if "num-experts" in at and ("moe-grouped-gemm" not in at or _plain(at)):
        told.append(LOOPED)
    return told


def _assumed(at: Options) -> list[str]:
    """What Megatron-LM fills in, or demands, and is taken so."""
    batch = "--global-batch-size is not given; one micro-batch for every data-parallel rank, as Megatron-LM takes it"
    micro = "--micro-batch-size is not given, which Megatron-LM needs; 1 is priced"
    return [text for name, text in (("global-batch-size", batch), ("micro-batch-size", micro)) if name not in at]


def _gpus(at: Options) -> int | None:
    nodes = number(at, "nnodes")
    each = number(at, "nproc-per-node")
    return nodes * each if nodes and each else None


def _precision(at: Options) -> str:
    if "bf16" in at and "fp16" in at:
        raise BadRequest("--bf16 and --fp16 exclude each other; leave one of them out")
    narrow = "fp8-format" in at or "fp8" in at
    if "fp4-format" in at:
        if narrow:
            raise BadRequest("--fp4-format and --fp8-format exclude each other; leave one of them out")
        return "nvfp4"
    if narrow:
        return FP8_RECIPES[word(at, "fp8-recipe", "delayed")]
    return next((name for name in ("bf16", "fp16") if name in at), "fp32")


def _savers(at: Options) -> dict[str, Any]:
    moments = _MOMENTS.get(word(at, "exp-avg-dtype"))
    share = word(at, "optimizer-offload-fraction")
    narrow = "grad-reduce-in-bf16" in at or word(at, "main-grads-dtype") == "bf16"
    return said(
        optimizer=OPTIMIZERS[word(at, "optimizer", "adam")] or moments,
        main_grads="bf16" if narrow else None,
        main_params=word(at, "main-params-dtype") or None,
        fp8_param_gather=True if "fp8-param-gather" in at else None,
        loss="fused" if word(at, "cross-entropy-fusion-impl") == "linear" else None,
        offload_fraction=share or None,
        expert_capacity=word(at, "moe-expert-capacity-factor") or None,
    )


def _pins(at: Options, pipeline: Pipeline) -> dict[str, Any]:
    tp, cp = count(at, "tensor-model-parallel-size"), count(at, "context-parallel-size")
    pp, vpp = pipeline.pp, pipeline.vpp
    grouped = "microbatch-group-size-per-virtual-pipeline-stage" in at
    schedule = "none" if pp == 1 else "1f1b" if vpp == 1 else "interleaved-groups" if grouped else "interleaved-1f1b"
    copies = count(at, "num-distributed-optimizer-instances")
    return said(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        dp=number(at, "data-parallel-size"),
        ep=count(at, "expert-model-parallel-size"),
        etp=count(at, "expert-tensor-parallel-size", tp) if "num-experts" in at else 1,
        micro_batch_size=count(at, "micro-batch-size"),
        steps=None if "global-batch-size" in at else 1,
        copies=copies if copies > 1 else None,
        cp_kind=_kind(at),
        schedule=schedule,
        sequence_parallel=str("sequence-parallel" in at and tp > 1).lower(),
        rank_order="tp-cp-ep-pp-dp" if "use-tp-pp-dp-mapping" in at and pp > 1 else "tp-cp-ep-dp-pp",
        offload=_offload(at),
        zero_stage=_zero(at),
    )


def _kind(at: Options) -> str:
    kinds = at.get("cp-comm-type") or ["p2p"]
    if len(set(kinds)) > 1:
        raise BadRequest(f"--cp-comm-type: {' '.join(kinds)!r:.40} is not priced; one kind for all layers is")
    return CP_KINDS[kinds[0]]


def _offload(at: Options) -> str:
    states, activations = "optimizer-cpu-offload" in at, "fine-grained-activation-offloading" in at
    if states and activations:
        raise BadRequest("--optimizer-cpu-offload and --fine-grained-activation-offloading are not priced together")
    return "optimizer" if states else "activations" if activations else "none"


def _zero(at: Options) -> int:
    alone = int("use-distributed-optimizer" in at or word(at, "optimizer", "adam") == "dist_muon")
    return SHARDED[word(at, "data-parallel-sharding-strategy", "no_shard")] if _whole(at) else alone


def _whole(at: Options) -> bool:
    """Whether Megatron-FSDP shards."""
    return "use-megatron-fsdp" in at or "use-custom-fsdp" in at


def _plain(at: Options) -> bool:
    """Whether Megatron-Core's own modules run, none of Transformer Engine's (models/backends.py: LocalSpecProvider)."""
    return word(at, "transformer-impl") == "local"


def _changes(at: Options) -> dict[str, Any]:
    """Fields of the stack that the arguments decide: attention, and what Megatron-FSDP does otherwise."""
    unfused = word(at, "attention-backend") in {"unfused", "local"} or _plain(at)
    found = {"stack.attention_backend": "unfused", "stack.kernels.blackwell_attention": "unfused"} if unfused else {}
    return found | (
        {"stack.supports.zero_stages": [0, 1, 2, 3], "stack.sharding.state_copies": "none"} if _whole(at) else {}
    )
