"""Megatron-LM's arguments as a question: words of a command line, also inside a shell script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final, Literal

from costmodels.stack.adapters import ADAPTED
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length
from planner.jobs.megatron.deepspeed_file import deepspeed_words
from planner.jobs.megatron.dialect import MEGATRON, Dialect, Words, options_of, translated
from planner.jobs.megatron.dialects import DIALECTS, SWIFT, dialect_of
from planner.jobs.megatron.hybrid import HYBRID, of_hybrid
from planner.jobs.megatron.options import MOMENTS, OPTIONS, PRECISIONS
from planner.jobs.megatron.read_model import assumed_fields, model_fields
from planner.jobs.megatron.read_pipeline import Pipeline, hybrid_pattern, pipeline_of, recomputation
from planner.jobs.megatron.read_software import assumed, check_priced, not_priced, stack_changes
from planner.jobs.megatron.vision import is_multimodal, of_language, said_of_vision
from planner.jobs.options import Arguments, present
from planner.jobs.reader import CommandReader, Context, Launch
from planner.jobs.shell.processes import processes

_LENGTHS: Final[Mapping[str, Literal["iterations", "sequences", "tokens"]]] = {
    "train_iters": "iterations",
    "train_samples": "sequences",
    "train_tokens": "tokens",
}
_RAMP: Final = 3
"""Numbers of a ramp: the first batch, what is added at a time, sequences until the batch is whole."""


def job_of(
    given: Mapping[str, Sequence[str]],
    dialect: Dialect = MEGATRON,
    *,
    model_known: bool = False,
    environment: Mapping[str, str] | None = None,
) -> ImportedJob:
    """The job that options of ``pretrain_gpt.py`` describe, as of Megatron-Core 0.17 to 0.19.

    Args:
        given: values by option, as the program takes them.
        dialect: what the program makes of them.
        model_known: the model is given elsewhere, and the arguments need not describe one.
        environment: variables that are set for the program.

    Raises:
        BadRequest: no argument of Megatron-LM is there, or a value is not what it should be.
    """
    environment = environment or {}
    at = Arguments(of_hybrid(translated(given, dialect, environment)), OPTIONS)
    if not (at.given("tp") or at.given("num_layers") or at.given("micro_batch_size") or dialect.usual):
        raise BadRequest("it has no options of Megatron-LM, such as --tensor-model-parallel-size 8")
    at.check_choices()
    at.names.update(name for row in OPTIONS for name in (row.word, *row.older))
    check_priced(at)
    pipeline = pipeline_of(at, balanced=dialect.balanced)
    described = not model_known and (at.given("num_layers") or bool(hybrid_pattern(at)))
    again = recomputation(at, pipeline)
    fields = present(
        model=model_fields(at) if described else at.text("model_name").rstrip("/") or None,
        gpus=_gpus(at),
        cluster=dialect.cluster,
        stack=dialect.stack if dialect is not MEGATRON else None,
        global_batch_size=_batch(at),
        seq_length=at("seq_length"),
        precision=_precision(at),
        **_states(at),
        changes=_changes(at, dialect, environment, pipeline) or None,
    )
    return ImportedJob(
        fields,
        _pins(at, pipeline) | again.pins,
        pipeline.layers,
        again.layers,
        remarks=again.remarks,
        assumed=(*_of_dialect(dialect), *(assumed_fields(at) if described else ()), *assumed(at), *_assumed(at)),
        unpriced=(*not_priced(at, dialect), *_unset(at), *at.unread(dialect.harmless, prefix="--")),
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


_OTHERS: Final = {
    "micro_batch_size": "pins.micro_batch_size",
    "use_distributed_optimizer": "pins.zero_stage",
    "seq_length": "seq_length",
}


def _filled(at: Arguments, dialect: Dialect) -> frozenset[str]:
    """Fields that the arguments leave to a default."""
    left = {name for field, name in _OTHERS.items() if not at.given(field)}
    left |= {"cluster"} if dialect.cluster else set()
    return frozenset(left | ({"precision"} if not (at.given("bf16") or at.given("fp16")) else set()))


def _assumed(at: Arguments) -> Iterator[str]:
    """What Megatron-LM fills in, or demands, and is taken so."""
    if not any(at.given(field) for field in ("global_batch_size", "step_batch_size_schedule", "accumulation")):
        yield (
            "--global-batch-size is not given; one micro-batch per data-parallel rank is priced, Megatron-LM's default"
        )
    if not at.given("micro_batch_size"):
        yield "--micro-batch-size is not given, though Megatron-LM needs it; 1 is priced"
    if at.given("rampup_batch_size"):
        ramp = at.words("rampup_batch_size")
        until = f" from {ramp[0]} on, over {ramp[2]} sequences" if len(ramp) == _RAMP else ""
        yield f"--rampup-batch-size: the batch grows{until}; the final batch is priced"
    if at.given("step_batch_size_schedule"):
        yield "--step-batch-size-schedule: the last batch is priced"


def _batch(at: Arguments) -> int | None:
    """Sequences of an iteration; the last of a schedule such as ``0:768 250B:1536``.

    Raises:
        BadRequest: a schedule that is none.
    """
    if not at.given("step_batch_size_schedule"):
        found: int | None = at("global_batch_size")
        return found
    said = " ".join(at.words("step_batch_size_schedule"))
    last = re.search(r":(\d+)\s*\Z", said)
    if last is None:
        raise BadRequest(f"--step-batch-size-schedule: expected steps such as 0:768 250B:1536, got {said!r:.40}")
    return int(last[1])


def _gpus(at: Arguments) -> int | None:
    """Processes of all nodes, where numbers say them; torchrun has one node unless it is told."""
    each, nodes = at.text("nproc_per_node"), at.text("nnodes") or "1"
    return int(each) * int(nodes) if each.isdecimal() and nodes.isdecimal() else None


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
    adam = MOMENTS.get(at("moments"))
    named = at("optimizer")
    capacity = at.real("expert_capacity")
    balanced = at.given("moe_router_force_load_balancing") and at.given("num_experts") and capacity is None
    return present(
        optimizer=adam if named == "adam" else named,
        main_grads=_gradients(at),
        main_params=at("main_params"),
        fp8_param_gather=True if at.given("fp8_param_gather") or at.given("fp4_param_gather") else None,
        offload_fraction=at.text("offload_fraction"),
        expert_capacity=capacity,
        expert_imbalance=1.0 if balanced else None,
        adapters=_adapters(at),
    )


def _adapters(at: Arguments) -> str | None:
    """Rank of the adapters and the modules that have them, where not all do."""
    if not at.given("peft"):
        return None
    modules = [
        name for word in at.words("adapter_modules") for name in re.split(r"[,\[\]'\" ]+", word) if name in ADAPTED
    ]
    return f"{at('adapter_rank')}" + (f":{','.join(modules)}" if modules else "")


def _gradients(at: Arguments) -> str | None:
    """The format that gradients are added up in, where an option says another than usual."""
    if at.given("grad_reduce_in_bf16") or at("main_grads") == "bf16":
        return "bf16"
    whole = at.given("accumulate_allreduce_grads_in_fp32")
    return "fp32" if at.given("fp16") and whole else None


def _pins(at: Arguments, pipeline: Pipeline) -> dict[str, Any]:
    tp, cp = at("tp"), at("cp")
    pp, vpp = pipeline.pp, pipeline.vpp
    grouped = at.given("chunk_group")
    own = at("own_schedule") if pp > 1 else None
    schedule = (
        own or "none"
        if own or pp == 1
        else "1f1b"
        if vpp == 1
        else "interleaved-groups"
        if grouped
        else "interleaved-1f1b"
    )
    copies = at("copies")
    return present(
        tp=tp,
        cp=cp,
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
        offload=_offload(at),
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


def _offload(at: Arguments) -> str:
    layers = at.given("cpu_offloading") or at.given("offloaded_layers")
    activations = at.given("fine_grained_activation_offloading") or bool(layers and at("offloaded_layers"))
    return "optimizer" if at.given("optimizer_cpu_offload") else "activations" if activations else "none"


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
    """Iterations, samples or tokens, where a number says them; a variable of the environment does not.

    Raises:
        BadRequest: both iterations and samples, which Megatron-LM refuses (arguments.py: validate_args).
    """
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
    for field in _LENGTHS:
        if at.text(field).startswith("$"):
            word = f"--{at.word_of(field)} {at.text(field):.40}"
            yield f"{word} is not set anywhere in the script; --tokens says how long the training is"


_OWN: Final = frozenset(
    {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--micro-batch-size", "--num-layers"}
)
"""Options by which a command line is known, whatever its program is called."""


def _recognises(launch: Launch) -> bool:
    named = any(word.partition("=")[0].replace("_", "-") in _OWN for word in launch.words)
    return named or SWIFT.knows(launch)


_OTHER_MODELS: Final = {
    "pretrain_t5": "an encoder as well as a decoder",
    "pretrain_ict": "two encoders",
    "pretrain_biencoder_nq": "two encoders",
    "pretrain_retro": "an encoder for what it retrieves",
    "pretrain_vision_classify": "a model of images",
    "pretrain_vision_dino": "a model of images",
    "pretrain_vision_inpaint": "a model of images",
}
"""Scripts of Megatron-LM that train no decoder of text."""
BOTH_WAYS: Final = "BERT's bidirectional attention and head are priced like a decoder's: the run takes more time"


def _read(launch: Launch, context: Context) -> ImportedJob:
    programs = {Path(word).stem: Path(word).name for word in launch.words if word.endswith(".py")}
    for program, other in _OTHER_MODELS.items():
        if program in programs:
            raise BadRequest(f"{programs[program]} trains {other}, which is not priced; a decoder of text is")
    found = _of_decoder(launch, context)
    return replace(found, unpriced=(*found.unpriced, BOTH_WAYS)) if "pretrain_bert" in programs else found


def _of_decoder(launch: Launch, context: Context) -> ImportedJob:
    given, dialect = options_of(launch.words), dialect_of(launch)
    given = {**deepspeed_words(given, launch, context), **given}
    programs = {Path(word).stem for word in launch.words if word.endswith(".py")}
    vision = tuple(said_of_vision(given)) if is_multimodal(given, programs) else ()
    given = of_language(given) if vision else given
    left, open_, loose = _without_unknown(given, launch.unknown)
    left |= {"is-hybrid-model": []} if HYBRID & programs else {}
    asked = tuple(
        f"--{name} {' '.join(given[name]):.60}: give {way}"
        for name, way in open_.items()
        if _decides(name, dialect, described="num-layers" in given)
    )
    known = "model" in context.known or bool(_OF_MODEL & open_.keys())
    try:
        found = job_of(left, dialect, model_known=known, environment=launch.environment)
    except BadRequest:
        if not asked:
            raise
        return ImportedJob(missing=asked)  # what contradicts the rest may be what is missing
    empty = tuple(f"{part:.60} is taken as empty; {way} sets it" for part, way in loose.items())
    return replace(
        found,
        fields=_with_devices(found, launch),
        missing=(*found.missing, *asked),
        unpriced=(*vision, *found.unpriced),
        assumed=(*found.assumed, *empty),
    )


def _with_devices(job: ImportedJob, launch: Launch) -> dict[str, Any]:
    """Fields with the devices that the launch takes, where only it says them and the ranks fit on them."""
    found = dict(job.fields)
    each = prod(int(job.pins.get(axis, 1)) for axis in ("tp", "pp", "cp"))
    if "gpus" not in found and (total := processes(launch)) and total % each == 0:
        found["gpus"] = total
    return found


_OF_MODEL: Final = frozenset(
    {"num-layers", "hidden-size", "num-attention-heads", "ffn-hidden-size", "seq-length", "max-position-embeddings"}
    | {
        "num-experts",
        "moe-ffn-hidden-size",
        "moe-layer-freq",
        "hybrid-layer-pattern",
        "num-query-groups",
        "kv-channels",
    }
)
"""Options without whose values there is no model."""
_FREE: Final = frozenset(
    {"nnodes", "nproc-per-node", "tokenizer-model", "tokenizer-type", "rotary-base", "train-iters", "train-samples"}
)
"""Options that are read where they are known, and not needed: others say how many devices and how long."""


def _without_unknown(
    given: Mapping[str, Sequence[str]], unknown: Mapping[str, str]
) -> tuple[Words, dict[str, str], dict[str, str]]:
    """Options whose values are known; those whose are not, with what says them; words that may be anything, likewise.

    What is not known and stands behind a flag, or behind the first value of an option, is no value of it.
    """
    left: Words = {}
    open_: dict[str, str] = {}
    loose: dict[str, str] = {}
    flags = {name for row in OPTIONS if row.kind == "flag" for name in (row.word, *row.older)}
    for name, values in given.items():
        place = next((place for place, value in enumerate(values) if _way(value, unknown)), None)
        if place is None:
            left[name] = list(values)
        elif place or name in flags:
            left[name] = list(values[:place])
            loose |= {value: _way(value, unknown) for value in values[place:] if _way(value, unknown)}
        else:
            open_[name] = _way(values[0], unknown)
    return left, open_, loose


def _way(value: str, unknown: Mapping[str, str]) -> str:
    """How a word that a script does not say can be given; empty where it says it."""
    return ", ".join(dict.fromkeys(way for part, way in unknown.items() if part in value))


def _decides(name: str, dialect: Dialect, *, described: bool) -> bool:
    """Whether there is no price without an option's value; a model that is described needs no name."""
    meant = dialect.means.get(name, f"--{name}")
    word = meant.split()[0].removeprefix("--") if isinstance(meant, str) and meant else name
    named = word == "model.name" and described
    return word not in _FREE and not named and any(word in (row.word, *row.older) for row in OPTIONS)


def _reader(dialect: Dialect) -> CommandReader:
    def recognises(launch: Launch) -> bool:
        return _recognises(launch) and dialect_of(launch) is dialect

    title = f"arguments of {dialect.name}"
    return CommandReader("megatron-args", title, dialect.framework, recognises, _read)


READERS: Final = tuple(_reader(one) for one in (MEGATRON, *DIALECTS))
