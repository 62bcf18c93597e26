"""Megatron-LM's arguments as a question: words of a command line, also inside a shell script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from planner.errors import BadRequest
from planner.intake.given import Asked, Given, said
from planner.intake.megatron_hybrid import hybrid_layers, hybrid_pattern
from planner.intake.megatron_layout import layout_depth, layout_layers
from planner.intake.megatron_model import model_fields

Options = Mapping[str, Sequence[str]]
"""Values by option, without dashes in front."""

_PARTS: Final = re.compile(r"\\\n")
_PRICED_OTHERWISE: Final = ("tp-comm-overlap", "overlap-moe-expert-parallel-comm", "cuda-graph-impl", "cpu-offloading",
                            "delay-wgrad-compute", "use-torch-fsdp2", "moe-token-dispatcher-type")  # fmt: skip
"""Arguments that change the speed and that no pin says; the stack's own habits are priced."""
_OVERLAPS: Final = ("overlap-grad-reduce", "overlap-param-gather")
_HARMLESS: Final = (
    r"(lr|min-lr|log|save|load|eval|train|test|valid|adam|init-method|tokenizer|data|tensorboard|wandb|master|rdzv|node|local"
    r"|ckpt|exit|no-load|no-save|distributed-t|distributed-b|weight-decay|clip-grad|seed|split|num-workers|merge|vocab-f"
    r"|make-vocab|mock|timing|profile|finetune|override|use-checkpoint|auto-detect|norm-epsilon|rotary-base|loss-scale"
    r"|initial-loss|hysteresis|manual-gc|standalone|max-restarts|no-create|per-split|moe-aux|moe-z|rampup|result|tee)\b.*"
    r"|use-mcore-models|max-position-embeddings|moe-grouped-gemm|export-.*|.*-port|.*-timeout.*"
    r"|moe-router-(load|score|dtype|pre|topk-s|bias).*"
)
"""Options of the run around the model: rates, files, logs. They change no price."""
_MOMENTS: Final = {"bf16": "adam-bf16", "fp8": "adam-8bit"}
_NARROW: Final = {"delayed": "fp8", "tensorwise": "fp8-current", "blockwise": "fp8-block", "mxfp8": "mxfp8"}


def megatron_job(text: str) -> Given:
    """The job that arguments of ``pretrain_gpt.py`` describe, as of Megatron-Core 0.17.

    Raises:
        BadRequest: no argument of Megatron-LM is there, or a value is not what it should be.
    """
    at = Asked(options(text))
    if not {"tensor-model-parallel-size", "num-layers", "micro-batch-size"} & set(at):
        raise BadRequest("no arguments of Megatron-LM in it, such as --tensor-model-parallel-size 8")
    layers = _stage_layers(at)
    vpp = _chunks(at)
    fields = said(
        model=model_fields(at) if "num-layers" in at or hybrid_pattern(at) else None,
        gpus=_gpus(at),
        global_batch_size=number(at, "global-batch-size"),
        seq_length=number(at, "seq-length"),
        precision=_precision(at),
        **_savers(at),
    )
    otherwise = [f"--{name} is not priced from the arguments" for name in _PRICED_OTHERWISE if name in at]
    otherwise += [f"--{name} is not given; the stack's overlap is priced" for name in _OVERLAPS if name not in at]
    pins, more = _pins(at, vpp)
    return Given(fields, pins, layers, (*otherwise, *more, *at.unread(_HARMLESS, prefix="--")))


def options(text: str) -> dict[str, list[str]]:
    """Every option of a command line or script with its values; the last one said counts."""
    try:
        words = shlex.split(_PARTS.sub(" ", text), comments=True)
    except ValueError as error:
        raise BadRequest(f"not a command line: {error}") from None
    found: dict[str, list[str]] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            after = takewhile(lambda one: not one.startswith("--") and one != ")", words[place + 1 :])
            found[name.replace("_", "-")] = [value] if value else list(after)
    return found


def number(at: Options, name: str, default: int | None = None) -> int | None:
    """An option's whole number.

    Raises:
        BadRequest: it is something else.
    """
    if name not in at:
        return default
    text = at[name][0] if at[name] else ""
    if not text.isdecimal():
        raise BadRequest(f"--{name}: expected a whole number, got {text!r:.40}")
    return int(text)


def _word(at: Options, name: str, default: str = "") -> str:
    return at[name][0] if at.get(name) else default


def _gpus(at: Options) -> int | None:
    nodes = number(at, "nnodes")
    each = number(at, "nproc-per-node")
    return nodes * each if nodes and each else None


def _precision(at: Options) -> str:
    if "bf16" in at and "fp16" in at:
        raise BadRequest("--bf16 and --fp16 exclude each other; leave one of them out")
    if "fp4-format" in at:
        return "nvfp4"
    if "fp8-format" in at or "fp8" in at:
        return _NARROW.get(_word(at, "fp8-recipe", "delayed"), "fp8")
    return next((name for name in ("bf16", "fp16") if name in at), "fp32")


def _savers(at: Options) -> dict[str, Any]:
    optimizer = {"sgd": "sgd", "dist_muon": "muon", "muon": "muon"}.get(_word(at, "optimizer"))
    moments = _MOMENTS.get(_word(at, "exp-avg-dtype"))
    share = _word(at, "optimizer-offload-fraction")
    return said(
        optimizer=optimizer or moments,
        main_grads="bf16" if "grad-reduce-in-bf16" in at else None,
        main_params=_word(at, "main-params-dtype") or None,
        fp8_param_gather=True if "fp8-param-gather" in at else None,
        loss="fused" if _word(at, "cross-entropy-fusion-impl") == "linear" else None,
        offload_fraction=share or None,
        expert_capacity=_word(at, "moe-expert-capacity-factor") or None,
    )


def _stage_layers(at: Options) -> tuple[int, ...] | None:
    """Layers of every stage; None where the arguments do not say how many there are."""
    pp = number(at, "pipeline-model-parallel-size", 1) or 1
    if layout := _word(at, "pipeline-model-parallel-layout"):
        return layout_layers(layout, pp)
    if stages := hybrid_layers(at, pp):
        return stages[0]
    first = number(at, "decoder-first-pipeline-num-layers")
    last = number(at, "decoder-last-pipeline-num-layers")
    total = number(at, "num-layers", len(hybrid_pattern(at)) or None)
    if total is None:
        return None
    if first is None and last is None:
        return _even_layers(at, total, pp)
    inner = pp - (first is not None) - (last is not None)
    left = total - (first or 0) - (last or 0)
    if (inner and left % inner) or (not inner and left):
        raise BadRequest(f"{left} layers do not split over the {inner} other stages")
    middle = (left // inner,) * inner if inner else ()
    return (*(() if first is None else (first,)), *middle, *(() if last is None else (last,)))


def _even_layers(at: Options, total: int, pp: int) -> tuple[int, ...]:
    """As many layers on every stage; the embedding and the head stand for one each where the arguments say so.

    Raises:
        BadRequest: the stages do not divide them.
    """
    before, behind = (int(f"account-for-{end}-in-pipeline-split" in at) for end in ("embedding", "loss"))
    each, left = divmod(total + before + behind, pp)
    if left:
        near = [n for n in (total - left, total + pp - left) if n > 0]
        raise BadRequest(
            f"--num-layers {total} do not divide over {pp} stages; {' or '.join(map(str, near))} would, or "
            "--decoder-last-pipeline-num-layers"
        )
    held = [each] * pp
    held[0] -= before
    held[-1] -= behind
    return tuple(held)


def _chunks(at: Options) -> int:
    """Chunks of every stage, by whichever of the three ways they are said."""
    pp = number(at, "pipeline-model-parallel-size", 1) or 1
    if layout := _word(at, "pipeline-model-parallel-layout"):
        return layout_depth(layout, pp)
    if stages := hybrid_layers(at, pp):
        return stages[1]
    if each := number(at, "num-virtual-stages-per-pipeline-rank"):
        return each
    per_chunk, total = number(at, "num-layers-per-virtual-pipeline-stage"), number(at, "num-layers")
    return total // (pp * per_chunk) if per_chunk and total else 1


def _pins(at: Options, vpp: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    tp, pp = (number(at, f"{name}-model-parallel-size", 1) or 1 for name in ("tensor", "pipeline"))
    cp = number(at, "context-parallel-size", 1) or 1
    again, remarks = _recompute(at, vpp, pp)
    grouped = "microbatch-group-size-per-virtual-pipeline-stage" in at
    schedule = "none" if pp == 1 else "1f1b" if vpp == 1 else "interleaved-groups" if grouped else "interleaved-1f1b"
    experts = "num-experts" in at
    pins = said(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        ep=number(at, "expert-model-parallel-size", 1),
        etp=number(at, "expert-tensor-parallel-size", tp) if experts else 1,
        micro_batch_size=number(at, "micro-batch-size", 1),
        cp_kind=_word(at, "cp-comm-type", "p2p").replace("_", "-"),
        schedule=schedule,
        sequence_parallel=str("sequence-parallel" in at and tp > 1).lower(),
        rank_order="tp-cp-ep-pp-dp" if "use-tp-pp-dp-mapping" in at and pp > 1 else "tp-cp-ep-dp-pp",
        offload=_offload(at),
        zero_stage=_zero(at),
    )
    copies = number(at, "num-distributed-optimizer-instances", 1) or 1
    return {**pins, **again, **({"copies": copies} if copies > 1 else {})}, remarks


def _offload(at: Options) -> str:
    if "optimizer-cpu-offload" in at:
        return "optimizer"
    return "activations" if "fine-grained-activation-offloading" in at else "none"


def _zero(at: Options) -> int:
    sharded = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    if "use-megatron-fsdp" in at:
        return sharded.get(_word(at, "data-parallel-sharding-strategy", "no_shard"), 0)
    return int("use-distributed-optimizer" in at or _word(at, "optimizer") == "dist_muon")


def _recompute(at: Options, vpp: int, pp: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    kind = _word(at, "recompute-granularity")
    if kind == "selective":
        modules = ",".join(at.get("recompute-modules", ()))
        return {"recompute": "selective", **said(recompute_modules=modules)}, ()
    if kind != "full":
        return {"recompute": "none"}, ()
    first, total = number(at, "recompute-num-layers", 1) or 1, number(at, "num-layers", 0) or 0
    block = _word(at, "recompute-method") == "block"
    if not block or first * vpp * pp >= total:
        return {"recompute": "full"} | ({} if block or first == 1 else {"recompute_num_layers": first}), ()
    words = f"{first} layers of every chunk are recomputed; priced is the least number that fits"
    return {"recompute": "partial"}, (words,)
