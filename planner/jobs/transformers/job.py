"""A job of TrainingArguments: the model, its batch, what trains of it, and how its states are sharded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from costmodels.model.model import Model
from costmodels.stack.finetune import GENERATING, task_named
from costmodels.stack.optimizers import OPTIMIZERS, named_optimizer
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length, joined
from planner.jobs.models import known_model, taken_to_be
from planner.jobs.options import Document, applicable, present, typed
from planner.jobs.reader import Context
from planner.jobs.transformers.states import LAST_LAYERS, STACK, adapted_job, asked_adapters, sharded_job
from planner.jobs.transformers.trainer import ATTENTION, PAGED, RANKED, Trainer
from planner.jobs.values import pattern, unpriced, whole

_OFF: Final = "false"
_EAGER: Final = 92
"""Bytes per parameter that PyTorch's multi-tensor AdamW moves, where no kernel does it all."""


def training_job(
    values: Mapping[str, Any],
    trainer: Trainer,
    context: Context,
    *,
    beside: Path | None = None,
    accelerate: Mapping[str, Any] | None = None,
    gpus: int | None = None,
    task: str | None = None,
) -> ImportedJob:
    """The job of a trainer's options, as a command line or the file ``beside`` has them.

    ``accelerate`` is the configuration of ``accelerate launch`` where that starts it, ``gpus`` what the launcher says,
    and ``task`` what a program's name says and no option.
    """
    values = trainer.translated(_whole_length(values))
    switched = str(values.get("deepspeed", "")).lower() in {"true", ""}  # gives way to the option that names its file
    if switched and any(str(name).startswith("deepspeed_config") for name in values):
        values = {name: value for name, value in values.items() if name != "deepspeed"}
    found = typed(values, trainer.options)
    silent = trainer.switches and not {"bf16", "fp16"} & set(found)
    at = Document(found | ({"bf16": True} if silent else {}) | _made_up(found, trainer, gpus), trainer.options)
    if at("bf16") and at("fp16"):
        raise BadRequest("bf16 and fp16 are both switched on, which Transformers refuses; switch one of them off")
    named, shape = model_named(at("model"), context)
    hidden = shape.hidden_size if shape else None
    sharded = sharded_job(at, trainer, accelerate, context, beside, hidden)
    adapted = adapted_job(at, trainer, sharded, experts=bool(shape and shape.moe), said="adapters" in context.known)
    parts = (
        sharded,
        _optimizer_job(at, sharded),
        _kernels_job(at),
        _sizes_job(at, trainer, sharded),
        adapted,
        asked_adapters(at, trainer, context.known),
        _task_job(at, task),
        _frozen_job(at, shape, context, adapted="adapters" in adapted.fields),
        _batch_of_script(at, trainer, sharded, context),
        named,
        ImportedJob(present(gpus=gpus or whole((accelerate or {}).get("num_processes")))),
    )
    effects = _unpriced_values(found, at, trainer)
    usual = f"neither bf16 nor fp16 is given; bf16 is priced, the default of {trainer.title}"
    return _spread(joined(*parts, ImportedJob(unpriced=effects, assumed=(usual,) if silent else ())))


def _unpriced_values(values: Mapping[str, Any], at: Document, trainer: Trainer) -> tuple[str, ...]:
    """What is read and has no price, and what is not read; nothing of what changes no price."""
    known = re.compile(pattern((*trainer.harmless, *trainer.effects)))
    _ = [at.raw(row.field) for row in trainer.options]
    _ = [at.table("").get(name) for name in values if known.fullmatch(name)]
    return (*unpriced(values, trainer.effects), *at.unread("", ""))


_PARTS: Final = (("source_max_len", "target_max_len"), ("max_source_length", "max_target_length"))
"""Options for what goes in and what comes out, which make one sequence."""


def _whole_length(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values, with one length of sequences where they have two for its parts."""
    for names in _PARTS:
        parts = [whole(values.get(name)) for name in names]
        if all(parts):
            left = {name: value for name, value in values.items() if name not in names}
            return {"max_length": sum(part or 0 for part in parts), **left}
    return values


def _spread(job: ImportedJob) -> ImportedJob:
    """The job with what splits its sequences: all to all under DeepSpeed and without sharding, else as Accelerate does.

    Accelerate's own rules know no context ranks without sharding; a trainer that has them goes without.
    """
    if job.pins.get("cp", 1) == 1:
        return job
    plain = job.framework == "accelerate" and not job.pins.get("zero_stage")
    kind = "a2a" if job.framework == "deepspeed" or plain else "p2p"
    pins = {**job.pins, "cp_kind": job.pins.get("cp_kind", kind)}
    return replace(job, pins=pins, framework=None if plain else job.framework)


def _batch_of_script(at: Document, trainer: Trainer, sharded: ImportedJob, context: Context) -> ImportedJob:
    """What must be said of a batch that a script has a word of its own for: whether it is a device's."""
    said = {"global_batch_size", "pins.micro_batch_size"} & set(context.known)
    if said or not trainer.own_adapters or at.raw("micro_batch_size") is not None or "steps" in sharded.pins:
        return ImportedJob()
    name = next((one for one in ("train_batch_size", "batch_size") if whole(at.table("").get(one))), "")
    asked = f"{name} may be a GPU's or all GPUs' batch, depending on the script; --micro-batch-size N or "
    return ImportedJob(missing=(f"{asked}--global-batch-size N says it",) if name else ())


def _frozen_job(at: Document, shape: Model | None, context: Context, *, adapted: bool) -> ImportedJob:
    """What of a model is frozen: its first layers, or the vision tower, whose images no file counts."""
    fields: dict[str, Any] = {}
    assumed, effects = list[str](), list[str]()
    tower = shape is not None and shape.tower is not None
    unfrozen = at.raw("frozen_tower") is not None and not at("frozen_tower")
    if unfrozen and adapted:
        effects = ["adapters of the vision tower are not priced: more time and memory"]
    elif unfrozen and (tower or shape is None):
        fields = {"train_tower": True, "images_per_sample": 1}
        assumed = ["the vision tower trains, and one image a sample is priced; --images-per-sample changes it"]
    elif tower:
        assumed = ["no images are priced, nor the vision tower; --images-per-sample prices both"]
    if "images_per_sample" in context.known:
        assumed = []
    if at.raw("frozen_projector") is not None and not at("frozen_projector"):
        effects.append("the projector of images trains, which is not priced: a little more memory")
    if str(at("method") or "").lower() == LAST_LAYERS:
        some = "freeze trains only some weights; all are priced, so it takes less memory and time"
        if shape is None or not 0 < at("trained_layers") <= shape.num_layers or at.table("").get("use_llama_pro"):
            effects.append(some)
        else:
            fields["frozen_layers"] = shape.num_layers - at("trained_layers")
            effects.append("the head is priced as trained, though freeze trains layers alone: a little less memory")
    return ImportedJob(fields, assumed=tuple(assumed), unpriced=tuple(effects))


def model_named(name: Any, context: Context) -> tuple[ImportedJob, Model | None]:
    """The model by its name, or by the last part of it, where the catalogue has it; else what it lacks."""
    if "model" in context.known:
        return ImportedJob(), None
    if not name or name is True:
        return ImportedJob(lacks="no model is named; give it with --model"), None
    if found := known_model(str(name)):
        return ImportedJob({"model": found[0]}, assumed=taken_to_be(str(name), found[0])), found[1]
    lacks = f"model {str(name)!r:.80} is not in the catalogue; give it with --model, as a name or a config.json"
    return ImportedJob(lacks=lacks), None


def _sizes_job(at: Document, trainer: Trainer, sharded: ImportedJob) -> ImportedJob:
    """Batch, sequence and length; the micro-batch that DeepSpeed's file says stands."""
    length, steps = max(at("seq_length") or 0, 0) or trainer.seq_length, at("max_steps")
    own = {name: at(name) for name in ("micro_batch_size", "steps") if at.raw(name) is not None}
    whole = sharded.fields.get("global_batch_size")
    pins = {"micro_batch_size": at("micro_batch_size"), "steps": at("steps") or 1}
    pins |= {name: pin for name, pin in sharded.pins.items() if name in pins}
    if whole:
        pins = {name: sharded.pins[name] for name in pins if name in sharded.pins} | own
    silent = at.raw("recompute") is None
    assumed = {
        f"{trainer.options['micro_batch_size'].word} is not given; {pins.get('micro_batch_size')} is priced, the "
        f"default of {trainer.title}": "micro_batch_size" not in {*own, *sharded.pins} and not whole,
        "no sequence length is given; the usual one is priced, --seq-len changes it": not length,
        f"{trainer.options['seq_length'].word} is not given; {length} is priced, the default of {trainer.title}": (
            bool(length) and not at("seq_length")
        ),
        f"{trainer.options['recompute'].word} is not given; layers are recomputed, as {trainer.title} does": (
            silent and trainer.recompute
        ),
        f"every sequence is priced with {length} tokens; shorter ones take less time if nothing is packed": (
            bool(length) and not at("packing")
        ),
    }
    recompute = trainer.recompute if silent else at("recompute")
    kept = "recompute" in sharded.pins and not recompute
    again = {} if kept else {"recompute": "full" if recompute else "none"}
    unsaid = {
        "pins.micro_batch_size": "micro_batch_size" not in {*own, *sharded.pins},
        "pins.steps": "steps" not in {*own, *sharded.pins},
        "pins.recompute": silent,
        "seq_length": at("seq_length") is None,
    }
    tp, cp = at("tp"), at("cp")
    degrees = ({"tp": tp} if tp > 1 else {}) | ({"cp": cp} if cp > 1 else {})
    many = Length(steps, "iterations", trainer.options["max_steps"].word) if steps and steps > 0 else None
    filled, fields = frozenset(applicable(unsaid)), present(seq_length=length)
    return ImportedJob(fields, pins | again | degrees, assumed=applicable(assumed), length=many, filled=filled)


def _made_up(values: Mapping[str, Any], trainer: Trainer, gpus: int | None) -> dict[str, Any]:
    """The steps that make up a trainer's usual batch, where none are said."""
    steps, micro = trainer.options["steps"], trainer.options["micro_batch_size"]
    if steps.word in values or not (trainer.batch and gpus):
        return {}
    each = whole(values.get(micro.word)) or micro.default
    return {steps.word: max(1, math.ceil(trainer.batch / each / gpus))}


def _optimizer_job(at: Document, sharded: ImportedJob) -> ImportedJob:
    """The optimizer that the options name, unless DeepSpeed's file has one."""
    word = str(at("optimizer") or "adamw")
    if sharded.fields.get("optimizer"):
        return ImportedJob()
    effects = (f"{word}: states that move to the host when the GPU is full are priced on the GPU",)
    paged = effects if word.startswith(PAGED) else ()
    name, less = _priced(word)
    eager = word in {"adamw_torch", "adamw_hf"} and sharded.fields.get("stack") == STACK
    changes = {"changes": {"stack.states.optimizer_traffic": _EAGER}} if eager else {}
    filled = frozenset() if at("optimizer") else frozenset({"optimizer"})
    return ImportedJob({"optimizer": name, **changes}, unpriced=(*paged, *less), filled=filled)


def _priced(word: str) -> tuple[str, tuple[str, ...]]:
    """What an optimizer is priced as, and what is not priced of it."""
    plain = word.lower()
    if near := next((near for start, near in RANKED.items() if plain.startswith(start)), None):
        return near, (f"optimizer {word} is priced like {near}; its states are smaller: less memory",)
    name = named_optimizer(word)
    if name in OPTIMIZERS:
        return name, ()
    return "adam", (f"optimizer {word} is not known; it is priced like adam, with two moments in fp32",)


def _kernels_job(at: Document) -> ImportedJob:
    attention = str(at("attention") if at.raw("attention") is not None else "").lower()
    kernels = ATTENTION.get(attention, ...)
    changes: dict[str, Any] = {}
    effects = []
    if kernels is ...:
        effects.append(f"attention {attention} is priced as PyTorch's scaled_dot_product_attention")
    elif kernels:
        changes["stack.attention_backend"] = list(kernels)
    if at("compile"):
        changes["stack.fused_elementwise"] = True
        effects.append("torch_compile is priced as fused elementwise kernels, without the compilation at the start")
    if at("liger"):
        others = "its norms, activations and rotary kernel"
        effects.append(f"Liger's loss is priced, but not {others}: a little less time and memory")
    fields = present(loss="fused" if at("liger") else None, changes=changes or None)
    return ImportedJob(fields, unpriced=tuple(effects))


def _task_job(at: Document, task: str | None) -> ImportedJob:
    """What is learnt; what generates its samples is priced as the step that learns from them."""
    word = str(at("stage") or task or "").lower()
    if not word and at("model"):  # weights that are loaded are tuned
        return ImportedJob({"task": "finetune"}, filled=frozenset({"task"}))
    if not word:
        return ImportedJob()
    if word.replace("_", "-") in GENERATING:
        effect = "their generation, and models that judge them, cost more time and memory"
        return ImportedJob({"task": "finetune"}, unpriced=(f"{word} generates its samples; {effect}",))
    try:
        return ImportedJob({"task": task_named(word)})
    except ValueError:
        return ImportedJob(unpriced=(f"{word} is priced as fine-tuning; what else it does is not known",))
