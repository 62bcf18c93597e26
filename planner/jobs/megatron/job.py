"""Megatron-LM's arguments as a job: fields and pins of what its options say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from costmodels.stack.adapters import ADAPTED
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length
from planner.jobs.megatron.dialect import MEGATRON, Dialect, of_hybrid, translated
from planner.jobs.megatron.options import MOMENTS, OPTIONS, PRECISIONS
from planner.jobs.megatron.read_model import assumed_fields, model_fields
from planner.jobs.megatron.read_pipeline import Pipeline, hybrid_pattern, left_even, pipeline_of, recomputation
from planner.jobs.megatron.read_software import assumed, check_priced, not_priced, stack_changes
from planner.jobs.models import known_model, taken_to_be
from planner.jobs.options import Arguments, applicable, present

_LENGTHS: Final[Mapping[str, Literal["iterations", "sequences", "tokens"]]] = {
    "train_iters": "iterations", "train_samples": "sequences", "train_tokens": "tokens"
}  # fmt: skip
_RAMP: Final = 3
"""Numbers of a ramp: the first batch, what is added at a time, sequences until the batch is whole."""


def job_of(
    given: Mapping[str, Sequence[str]],
    dialect: Dialect = MEGATRON,
    *,
    model_known: bool = False,
    environment: Mapping[str, str] | None = None,
) -> ImportedJob:
    """The job that options of ``pretrain_gpt.py`` describe, as of Megatron-Core 0.17 to 0.19, in a program's dialect.

    The arguments need not describe a model that is known otherwise; ``environment`` is what is set for the program.
    """
    environment = environment or {}
    at = Arguments(of_hybrid(translated(given, dialect, environment)), OPTIONS)
    if not (at.given("tp") or at.given("num_layers") or at.given("micro_batch_size") or dialect.usual):
        raise BadRequest("it has no options of Megatron-LM, such as --tensor-model-parallel-size 8")
    at.check_choices()
    at.names.update(name for row in OPTIONS for name in (row.word, *row.older))
    check_priced(at)
    described = not model_known and (at.given("num_layers") or bool(hybrid_pattern(at)))
    name = "" if described or model_known else at.text("model_name").rstrip("/")
    known, shape = (name and known_model(name)) or (name, None)
    pipeline = pipeline_of(at, balanced=dialect.balanced, layers=shape.num_layers if shape else 0)
    again = recomputation(at, pipeline)
    each, nodes = at.text("nproc_per_node"), at.text("nnodes") or "1"  # torchrun has one node by default
    fields = present(
        model=model_fields(at) if described else known,
        gpus=int(each) * int(nodes) if each.isdecimal() and nodes.isdecimal() else None,
        cluster=dialect.cluster,
        stack=dialect.stack if dialect is not MEGATRON else None,
        global_batch_size=_batch(at),
        seq_length=at("seq_length"),
        precision=_precision(at),
        **_states(at),
        changes=_changes(at, dialect, environment, pipeline) or None,
    )
    of_model = assumed_fields(at) if described else taken_to_be(name, known)
    return ImportedJob(
        fields,
        _pins(at, pipeline) | again.pins,
        pipeline.layers,
        again.layers,
        remarks=again.remarks,
        assumed=(*_of_dialect(dialect), *of_model, *assumed(at), *_assumed(at)),
        unpriced=(
            *not_priced(at, dialect),
            *left_even(at, pipeline),
            *_unset(at),
            *at.unread(dialect.harmless, prefix="--"),
        ),
        length=_length(at),
        filled=_filled(at, dialect),
    )


def _of_dialect(dialect: Dialect) -> Iterator[str]:
    """What a program's table says of every job of its."""
    if dialect is not MEGATRON:
        yield f"arguments of {dialect.name}, priced as stack {dialect.stack}"
    if dialect.cluster:
        yield f"{dialect.name} names no machine; {dialect.cluster} is priced, --cluster changes it"
    yield from dialect.says


def _filled(at: Arguments, dialect: Dialect) -> frozenset[str]:
    """Fields that the arguments leave to a default."""
    return frozenset(applicable({
        "pins.micro_batch_size": not at.given("micro_batch_size"),
        "pins.zero_stage": not at.given("use_distributed_optimizer"),
        "seq_length": not at.given("seq_length"),
        "cluster": bool(dialect.cluster),
        "precision": not (at.given("bf16") or at.given("fp16")),
    }))  # fmt: skip


def _assumed(at: Arguments) -> Iterator[str]:
    """What Megatron-LM fills in, or demands, and is taken so."""
    if not any(at.given(field) for field in ("global_batch_size", "step_batch_size_schedule", "accumulation")):
        each = "one micro-batch per data-parallel rank is priced, Megatron-LM's default"
        yield f"--global-batch-size is not given; {each}"
    if not at.given("micro_batch_size"):
        yield "--micro-batch-size is not given, though Megatron-LM needs it; 1 is priced"
    if at.given("rampup_batch_size"):
        ramp = at.words("rampup_batch_size")
        until = f" from {ramp[0]} on, over {ramp[2]} sequences" if len(ramp) == _RAMP else ""
        yield f"--rampup-batch-size: the batch grows{until}; the final batch is priced"
    if at.given("step_batch_size_schedule"):
        yield "--step-batch-size-schedule: the last batch is priced"


def _batch(at: Arguments) -> int | None:
    """Sequences of an iteration; the last of a schedule such as ``0:768 250B:1536``."""
    if not at.given("step_batch_size_schedule"):
        found: int | None = at("global_batch_size")
        return found
    said = " ".join(at.words("step_batch_size_schedule"))
    last = re.search(r":(\d+)\s*\Z", said)
    if last is None:
        raise BadRequest(f"--step-batch-size-schedule: expected steps such as 0:768 250B:1536, got {said!r:.40}")
    return int(last[1])


def _precision(at: Arguments) -> str:
    """The recipe whose options these are; whether 8 bits have one format or two makes no other."""
    if at.given("bf16") and at.given("fp16"):
        raise BadRequest("--bf16 and --fp16 cannot be used together; leave one of them out")
    narrow = at.given("fp8") or at.given("fp8_flag")
    if at.given("fp4"):
        if narrow:
            raise BadRequest("--fp4-format and --fp8-format cannot be used together; leave one of them out")
        return next(name for name, recipe in PRECISIONS.items() if "fp4" in recipe)
    if narrow:
        recipes = {recipe.get("fp8_recipe", "delayed"): name for name, recipe in PRECISIONS.items() if "fp8" in recipe}
        return recipes[at("fp8_recipe")]
    return next((name for name in ("bf16", "fp16") if at.given(name)), "fp32")


def _states(at: Arguments) -> dict[str, Any]:
    """The optimizer, the formats and the places of its states, and what else saves memory."""
    named, capacity = at("optimizer"), at.real("expert_capacity")
    balanced = at.given("moe_router_force_load_balancing") and at.given("num_experts") and capacity is None
    return present(
        optimizer=MOMENTS.get(at("moments")) if named == "adam" else named,
        main_grads=_gradients(at),
        main_params=at("main_params"),
        fp8_param_gather=True if at.given("fp8_param_gather") or at.given("fp4_param_gather") else None,
        offload_fraction=at.text("offload_fraction") if at.real("offload_fraction") else None,
        expert_capacity=capacity,
        expert_imbalance=1.0 if balanced else None,
        adapters=_adapters(at),
    )


def _adapters(at: Arguments) -> str | None:
    """Rank of the adapters and the modules that have them, where not all do."""
    if not at.given("peft"):
        return None
    named = [name for word in at.words("adapter_modules") for name in re.split(r"[,\[\]'\" ]+", word)]
    modules = ",".join(name for name in named if name in ADAPTED)
    return f"{at('adapter_rank')}" + (f":{modules}" if modules else "")


def _gradients(at: Arguments) -> str | None:
    """The format that gradients are added up in, where an option says another than usual."""
    if at.given("grad_reduce_in_bf16") or at("main_grads") == "bf16":
        return "bf16"
    whole = at.given("accumulate_allreduce_grads_in_fp32")
    return "fp32" if at.given("fp16") and whole else None


def _pins(at: Arguments, pipeline: Pipeline) -> dict[str, Any]:
    tp = at("tp")
    pp, vpp = pipeline.pp, pipeline.vpp
    grouped = at.given("chunk_group")
    interleaved = "interleaved-groups" if grouped else "interleaved-1f1b"
    usual = "none" if pp == 1 else "1f1b" if vpp == 1 else interleaved
    schedule = (at("own_schedule") if pp > 1 else None) or usual
    copies = at("copies")
    layers = at.given("cpu_offloading") or at.given("offloaded_layers")
    activations = at.given("fine_grained_activation_offloading") or bool(layers and at("offloaded_layers"))
    hosted = at.given("optimizer_cpu_offload") and at.real("offload_fraction") != 0
    return present(
        **at.each("tp", "cp"),
        pp=pp,
        vpp=vpp,
        dp=at("dp"),
        **_expert_ranks(at, tp),
        micro_batch_size=at("micro_batch_size"),
        steps=at("accumulation") or (None if at.given("global_batch_size") else 1),
        copies=copies if copies > 1 else None,
        cp_kind=_context_kind(at),
        schedule=schedule,
        sequence_parallel=str(at.given("sequence_parallel") and tp > 1).lower(),
        rank_order="tp-cp-ep-pp-dp" if at.given("use_tp_pp_dp_mapping") and pp > 1 else "tp-cp-ep-dp-pp",
        offload="optimizer" if hosted else "activations" if activations else "none",
        zero_stage=_zero_stage(at),
    )


def _expert_ranks(at: Arguments, tp: int) -> dict[str, int]:
    """Ranks over experts, and within one, which are those of tensors unless an option says otherwise."""
    if at.given("experts_over_tensor_ranks"):
        return {"ep": at("ep") * tp, "etp": 1}
    some = at.given("num_experts") or (at("ep") > 1 and not at.given("num_layers"))
    return {"ep": at("ep"), "etp": at("etp") or tp if some else 1}


def _context_kind(at: Arguments) -> str:
    kinds = at.words("cp_kind") or ["p2p"]
    if len(set(kinds)) > 1:
        raise BadRequest(f"--cp-comm-type: {' '.join(kinds)!r:.40} is not priced; one kind for all layers is")
    return str(at("cp_kind") or "p2p")


def _zero_stage(at: Arguments) -> int:
    """The stage that says itself; FSDP's; else that of the distributed optimizer, which Muon is its own."""
    if at.given("deepspeed_stage"):
        own = at("deepspeed_stage") == 0 and at.given("bf16")  # DeepSpeed's BF16_Optimizer shares states by itself
        return 1 if own else int(at("deepspeed_stage"))
    if at.given("use_torch_fsdp2"):
        return 3
    alone = int(at.given("use_distributed_optimizer") or at.text("optimizer") == "dist_muon")
    return int(at("zero_stage")) if at.given("use_megatron_fsdp") else alone


def _changes(at: Arguments, dialect: Dialect, environment: Mapping[str, str], pipeline: Pipeline) -> dict[str, Any]:
    """Fields of the stack that the arguments decide, and the share of a chunk's layers that go to the host."""
    found = stack_changes(at, dialect, environment)
    if at.given("deepspeed_stage") and at("deepspeed_stage") > 1:
        found["stack.supports.zero_stages"] = [0, 1, 2, 3]
    offloaded = at("offloaded_layers")
    if offloaded and pipeline.chunks and (most := max(pipeline.chunks)) > offloaded:
        found["stack.offloaded_layers"] = round(offloaded / most, 6)
    return found


def _length(at: Arguments) -> Length | None:
    """Iterations, samples or tokens, where a number says them; a variable of the environment does not."""
    known = {field: at(field) for field in _LENGTHS if not at.text(field).startswith("$")}
    found = {field: count for field, count in known.items() if count}
    if {"train_iters", "train_samples"} <= set(found):
        raise BadRequest("--train-iters and --train-samples cannot be used together; leave one of them out")
    if not found:
        return None
    field, count = list(found.items())[-1]
    return Length(count, _LENGTHS[field], f"--{at.word_of(field)}")


def _unset(at: Arguments) -> Iterator[str]:
    """That a length is given by a variable that nothing in the script sets."""
    for field in (one for one in _LENGTHS if at.text(one).startswith("$")):
        word = f"--{at.word_of(field)} {at.text(field):.40}"
        yield f"{word} is not set anywhere in the script; --tokens says how long the training is"
