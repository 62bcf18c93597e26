"""Megatron-LM's arguments as a question: words of a command line, also inside a shell script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, Literal

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length
from planner.jobs.megatron.options import MOMENTS, OPTIONS, PRECISIONS, command_line
from planner.jobs.megatron.read_model import assumed_fields, model_fields
from planner.jobs.megatron.read_pipeline import Pipeline, hybrid_pattern, pipeline_of, recomputation
from planner.jobs.options import Arguments, present
from planner.jobs.reader import CommandReader, Context, Launch

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
_DROPOUTS: Final = ("attention_dropout", "hidden_dropout")
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
_LENGTHS: Final[Mapping[str, Literal["iterations", "sequences", "tokens"]]] = {
    "train_iters": "iterations",
    "train_samples": "sequences",
    "train_tokens": "tokens",
}


def megatron_job(script: str, *, model_known: bool = False) -> ImportedJob:
    """The job that arguments of ``pretrain_gpt.py`` describe, as of Megatron-Core 0.17.

    Args:
        script: a command line, or a script with one.
        model_known: the model is given elsewhere, and the arguments need not describe one.

    Raises:
        BadRequest: no argument of Megatron-LM is there, or a value is not what it should be.
    """
    at = Arguments(command_line(script), OPTIONS)
    if not (at.given("tp") or at.given("num_layers") or at.given("micro_batch_size")):
        raise BadRequest("no arguments of Megatron-LM in it, such as --tensor-model-parallel-size 8")
    at.check_choices()
    pipeline = pipeline_of(at)
    described = not model_known and (at.given("num_layers") or bool(hybrid_pattern(at)))
    fields = present(
        model=model_fields(at) if described else None,
        gpus=_gpus(at),
        global_batch_size=at("global_batch_size"),
        seq_length=at("seq_length"),
        precision=_precision(at),
        **_states(at),
        changes=_changes(at) or None,
    )
    again = recomputation(at, pipeline)
    pins = _pins(at, pipeline) | again.pins
    length = _length(at)
    remarks = (
        *_priced_otherwise(at),
        *(assumed_fields(at) if described else ()),
        *_assumed(at),
        *again.remarks,
        *_unset(at),
        *at.unread(_HARMLESS, prefix="--"),
    )
    return ImportedJob(fields, pins, pipeline.layers, again.layers, remarks, length=length)


def _priced_otherwise(at: Arguments) -> list[str]:
    """What is given and not priced, or not given and priced."""
    found = [f"--{name} is not priced from the arguments" for name in _PRICED_OTHERWISE if name in at]
    found += [f"--{name} is not given; the stack's overlap is priced" for name in _OVERLAPS if name not in at]
    one, other = at("moments"), at("second_moments")
    if one != other:
        found.append(f"--exp-avg-sq-dtype {other} is priced as --exp-avg-dtype {one}: both moments have one format")
    if at.text("attention") == "flash":
        found.append(
            "--attention-backend flash is priced as the stack attends; --set stack.attention_backend=flash-2 says which"
        )
    if at.given("num_experts") and (not at.given("moe_grouped_gemm") or _local(at)):
        found.append(LOOPED)
    return found


def _assumed(at: Arguments) -> list[str]:
    """What Megatron-LM fills in, or demands, and is taken so."""
    batch = "--global-batch-size is not given; one micro-batch for every data-parallel rank, as Megatron-LM takes it"
    micro = "--micro-batch-size is not given, which Megatron-LM needs; 1 is priced"
    return [
        remark for field, remark in (("global_batch_size", batch), ("micro_batch_size", micro)) if not at.given(field)
    ]


def _gpus(at: Arguments) -> int | None:
    nodes, each = at("nnodes"), at("nproc_per_node")
    return nodes * each if nodes and each else None


def _precision(at: Arguments) -> str:
    """The recipe whose options these are; whether 8 bits have one format or two makes no other."""
    if at.given("bf16") and at.given("fp16"):
        raise BadRequest("--bf16 and --fp16 exclude each other; leave one of them out")
    narrow = at.given("fp8") or at.given("fp8_flag")
    if at.given("fp4"):
        if narrow:
            raise BadRequest("--fp4-format and --fp8-format exclude each other; leave one of them out")
        return next(name for name, recipe in PRECISIONS.items() if "fp4" in recipe)
    if narrow:
        recipes = {recipe.get("fp8_recipe", "delayed"): name for name, recipe in PRECISIONS.items() if "fp8" in recipe}
        return recipes[at("fp8_recipe")]
    return next((name for name in ("bf16", "fp16") if at.given(name)), "fp32")


def _states(at: Arguments) -> dict[str, Any]:
    """The optimizer, the formats and the places of its states, and what else saves memory."""
    adam = MOMENTS.get(at("moments"))
    named = at("optimizer")
    narrow = at.given("grad_reduce_in_bf16") or at("main_grads") == "bf16"
    return present(
        optimizer=adam if named == "adam" else named,
        main_grads="bf16" if narrow else None,
        main_params=at("main_params"),
        fp8_param_gather=True if at.given("fp8_param_gather") else None,
        loss="fused" if at("loss") == "fused" else None,
        offload_fraction=at.text("offload_fraction"),
        expert_capacity=at.real("expert_capacity"),
    )


def _pins(at: Arguments, pipeline: Pipeline) -> dict[str, Any]:
    tp, cp = at("tp"), at("cp")
    pp, vpp = pipeline.pp, pipeline.vpp
    grouped = at.given("chunk_group")
    schedule = "none" if pp == 1 else "1f1b" if vpp == 1 else "interleaved-groups" if grouped else "interleaved-1f1b"
    copies = at("copies")
    return present(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        dp=at("dp"),
        ep=at("ep"),
        etp=at("etp") or tp if at.given("num_experts") else 1,
        micro_batch_size=at("micro_batch_size"),
        steps=None if at.given("global_batch_size") else 1,
        copies=copies if copies > 1 else None,
        cp_kind=_context_kind(at),
        schedule=schedule,
        sequence_parallel=str(at.given("sequence_parallel") and tp > 1).lower(),
        rank_order="tp-cp-ep-pp-dp" if at.given("use_tp_pp_dp_mapping") and pp > 1 else "tp-cp-ep-dp-pp",
        offload=_offload(at),
        zero_stage=_zero_stage(at),
    )


def _context_kind(at: Arguments) -> str:
    kinds = at.words("cp_kind") or ["p2p"]
    if len(set(kinds)) > 1:
        raise BadRequest(f"--cp-comm-type: {' '.join(kinds)!r:.40} is not priced; one kind for all layers is")
    return str(at("cp_kind") or "p2p")


def _offload(at: Arguments) -> str:
    states, activations = at.given("optimizer_cpu_offload"), at.given("fine_grained_activation_offloading")
    if states and activations:
        raise BadRequest("--optimizer-cpu-offload and --fine-grained-activation-offloading are not priced together")
    return "optimizer" if states else "activations" if activations else "none"


def _zero_stage(at: Arguments) -> int:
    """Megatron-FSDP's stage, else that of the distributed optimizer, which Muon is its own."""
    alone = int(at.given("use_distributed_optimizer") or at.text("optimizer") == "dist_muon")
    return int(at("zero_stage")) if at.given("use_megatron_fsdp") else alone


def _local(at: Arguments) -> bool:
    """Whether Megatron-Core's own modules run, none of Transformer Engine's (models/backends.py: LocalSpecProvider)."""
    return at.text("transformer_impl") == "local"


def _changes(at: Arguments) -> dict[str, Any]:
    """Fields of the stack that the arguments decide: attention, dropout, and what Megatron-FSDP does otherwise."""
    unfused = at.text("attention") in {"unfused", "local"} or _local(at)
    found: dict[str, Any] = (
        {"stack.attention_backend": "unfused", "stack.kernels.blackwell_attention": "unfused"} if unfused else {}
    )
    if shares := [_share(at, field) for field in _DROPOUTS if at.given(field) and not at.text(field).startswith("$")]:
        found["stack.dropout"] = any(shares)
    whole = at.given("use_megatron_fsdp")
    return found | (
        {"stack.supports.zero_stages": [0, 1, 2, 3], "stack.sharding.state_copies": "none"} if whole else {}
    )


def _share(at: Arguments, field: str) -> float:
    """A share such as 0.1.

    Raises:
        BadRequest: it is none.
    """
    try:
        return float(at.text(field))
    except ValueError:
        raise BadRequest(f"--{at.word_of(field)}: expected a share such as 0.1, got {at.text(field)!r:.40}") from None


def _length(at: Arguments) -> Length | None:
    """Iterations, samples or tokens, where a number says them; a variable of the environment does not.

    Raises:
        BadRequest: both iterations and samples, which Megatron-LM refuses (arguments.py: validate_args).
    """
    known = {field: at(field) for field in _LENGTHS if not at.text(field).startswith("$")}
    found = {field: count for field, count in known.items() if count}
    if {"train_iters", "train_samples"} <= set(found):
        raise BadRequest("--train-iters and --train-samples exclude each other; leave one of them out")
    if not found:
        return None
    field, count = list(found.items())[-1]
    return Length(count, _LENGTHS[field], f"--{at.word_of(field)}")


def _unset(at: Arguments) -> list[str]:
    """That a length or a dropout is given by a variable that nothing in the script sets."""
    length = dict.fromkeys(_LENGTHS, "--tokens says how long the training is")
    dropout = dict.fromkeys(_DROPOUTS, "the stack's dropout is priced")
    return [
        f"--{at.word_of(field)} {at.text(field):.40} is set nowhere in the script; {advice}"
        for field, advice in (length | dropout).items()
        if at.text(field).startswith("$")
    ]


_OWN: Final = frozenset(
    {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--micro-batch-size", "--num-layers"}
)
"""Options by which a command line is known, whatever its program is called."""


def _recognises(launch: Launch) -> bool:
    return any(word.partition("=")[0].replace("_", "-") in _OWN for word in launch.words)


def _read(launch: Launch, context: Context) -> ImportedJob:
    return megatron_job(shlex.join(launch.words), model_known="model" in context.known)


READERS: Final = (CommandReader("megatron-args", "arguments of Megatron-LM", "megatron-lm", _recognises, _read),)
