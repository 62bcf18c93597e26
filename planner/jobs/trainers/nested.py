"""Trainers whose files are tables within tables: torchtune, litgpt, oumi, LLaMA-Factory v1.

As of torchtune 0.6 (FSDP over all ranks, plain formats), litgpt 0.5 (FSDP where there are several devices) and oumi,
which has Transformers' options in tables, sharded by FSDP or DeepSpeed if they say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length, joined
from planner.jobs.options import present, without_price
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch, configured, reader_of_tables
from planner.jobs.shell.processes import processes
from planner.jobs.trainers.family import by_ulysses, full_shard, on_own_kernels, plain_words, trainer, tuned
from planner.jobs.trainers.recipes import OF_V1, is_v1
from planner.jobs.transformers.arguments import files_of, overrides_of, started, values_of
from planner.jobs.transformers.trainer import FORMATS, OPTIONS, zero
from planner.jobs.values import at_path, data, has_all, truth, whole, words

TORCHTUNE: Final = trainer("torchtune", alone=True)
_BUILDER: Final = re.compile(r"(?:torchtune\.)?models\.(?P<family>\w+)\.(?P<kind>q?lora_)?(?P<name>\w+)")
_WHICH: Final = re.compile(r"_(?:instruct|base|chat)$")
_MLP: Final = ("gate_proj", "up_proj", "down_proj")


def model_of_builder(component: str) -> str:
    """The model that a function builds: ``torchtune.models.llama3_1.lora_llama3_1_8b`` is llama3.1-8b."""
    found = _BUILDER.fullmatch(component)
    if found is None or not found["name"].startswith(found["family"]):
        return component
    size = _WHICH.sub("", found["name"].removeprefix(found["family"]).strip("_"))
    name = "-".join(part.replace("_", ".") for part in (found["family"], size) if part)
    return str(data("trainers/torchtune")["models"].get(name, name))


def _tune_job(document: Mapping[str, Any], context: Context, *, gpus: int | None, single: bool) -> ImportedJob:
    """The job of a configuration, on one device or on all that start it."""
    said, made = data("trainers/torchtune"), plain_words(document, "torchtune")
    component = str(made.get("model_name_or_path", ""))
    builder, loss = _BUILDER.fullmatch(component), str(made.pop("loss", "")).rpartition(".")[2]
    narrow = builder is not None and builder["kind"] == "qlora_"
    optimizer = str(made.pop("optim", "AdamW")).rpartition(".")[2]
    word = str(made.pop("dtype", "bf16"))
    if word not in {"bf16", "fp32"}:
        raise BadRequest(f"dtype: torchtune trains in bf16 and fp32, got {word!r:.40}")
    named = made.get("lora_target_modules")
    modules = named if isinstance(named, list | tuple) else str(named or "").strip("[]").split(",")
    made |= {
        "model_name_or_path": model_of_builder(component),
        "optim": said["optimizers"].get(optimizer, optimizer),
        "dtype": word,
        "bf16": word == "bf16",
        "gradient_checkpointing": truth(made.get("gradient_checkpointing", False)),
        "use_peft": bool(builder and builder["kind"]),
        "load_in_4bit": narrow or bool(truth(made.get("load_in_4bit", False))),
        "lora_target_modules": [*map(str, modules), *(_MLP if truth(made.pop("mlp", 0)) else ())],
        "per_device_train_batch_size": whole(made.get("per_device_train_batch_size")) or 1,
    }
    if not single:
        kept = truth(made.pop("fsdp_reshard_after_forward", True)) is False
        made["fsdp"] = full_shard(kept=kept, offload=made.pop("fsdp_cpu_offload", False))
    freed, hosted = (truth(made.pop(name, False)) for name in ("optimizer_in_bwd", "enable_activation_offloading"))
    parts = document.get("compile")
    compiled = bool(truth(parts.get("model", True) if isinstance(parts, Mapping) else made.pop("torch_compile", False)))
    task = said["tasks"].get(loss, "finetune")
    copies = whole(made.get("data_parallel_replicate_dim")) or 1
    job = tuned(made, TORCHTUNE, context, gpus=gpus, batch=None, task=task)
    job = on_own_kernels(job, "torchtune", compiled=compiled)
    changes = {"stack.gradients.gradient_bytes": 0} if freed and "adapters" not in job.fields else {}
    alone = job.pins.get("offload", "none") == "none"
    more = present(copies=copies if copies > 1 else None, offload="activations" if hosted and alone else None)
    both = data("transformers/words")["unpriced"]["activation_offloading"]
    left = () if alone or not hosted else (f"enable_activation_offloading: {both}",)
    return joined(job, ImportedJob(present(changes=changes or None), more, unpriced=left))


def _read_file_tune(file: JobFile, context: Context) -> ImportedJob:
    single = "single_device" in file.path.name
    return _tune_job(file.document or {}, context, gpus=1 if single else None, single=single)


def _read_tune(launch: Launch, context: Context) -> ImportedJob:
    single = any("single_device" in word for word in launch.words)
    gpus = 1 if single else processes(launch)
    name, pairs = launch.option("config") or "", overrides_of(launch.words)
    return configured(launch, context, name, pairs, lambda made: _tune_job(made, context, gpus=gpus, single=single))


_TUNES: Final = (
    CommandReader(
        "torchtune", "a command line of torchtune", "",
        lambda launch: launch.words[0].rpartition("/")[2] == "tune" and launch.words[1:2] == ("run",), _read_tune,
    ),
    DocumentReader(
        "torchtune", "a configuration of torchtune", "",
        lambda file: has_all(file.document or {}, "model._component_", "optimizer"), _read_file_tune,
    ),
)  # fmt: skip


LITGPT: Final = trainer("litgpt", alone=True)
_FORMATS: Final[Mapping[str, tuple[str, str]]] = data("trainers/litgpt")["formats"]
"""Of the products and of the weights, by what ``precision`` says."""
_USUAL: Final = "bf16-mixed"
_QUERY_VALUE: Final = frozenset({"lora_query", "lora_value"})
"""Adapters that are on unless they are switched off."""
_LLAMA: Final = "LLaMAMLP"
_WAYS: Final = ("pretrain", "finetune_lora", "finetune_full", "finetune_adapter", "finetune_adapter_v2", "finetune")


def _litgpt_job(document: Mapping[str, Any], context: Context, way: str = "") -> ImportedJob:
    """The job of a configuration of one of its programs, by the keys that only that one has where it is not said."""
    said, made = data("trainers/litgpt"), plain_words(document, "litgpt")
    pretrains = way == "pretrain" or (not way and "model_name_or_path" not in made)
    if way.startswith("finetune_adapter"):
        raise BadRequest("LLaMA-Adapter is not priced; finetune_lora and finetune_full are")
    devices, nodes = whole(made.pop("devices", "auto" if pretrains else 1)), whole(made.pop("num_nodes", 1)) or 1
    gpus, sharded = devices and devices * nodes, devices is None or devices * nodes > 1
    precision = str(made.pop("precision", _USUAL)).lower()
    if precision not in _FORMATS:
        raise without_price("precision", precision, _FORMATS)
    products, weights = _FORMATS[precision]
    low_rank = way == "finetune_lora" or (not way and "lora_r" in made)
    asked = [name for name in said["modules"] if truth(made.pop(name, name in _QUERY_VALUE))]
    bits = str(made.pop("quantize", "")).removeprefix("bnb.")
    if bits and (sharded or "mixed" in precision):
        raise BadRequest("quantize: litgpt quantises on one GPU and in a -true precision only; leave it out, or these")
    kind = str(made.pop("optim", "AdamW")).rpartition(".")[2]
    batch, tokens = whole(made.pop("batch", None)), whole(made.pop("tokens", None))
    named = str(made.pop("model_name", made.pop("initial", "")))
    shape = _shape_litgpt(document.get("model_config"))
    made |= {
        "model_name_or_path": made.get("model_name_or_path", named),
        "bf16": products == "bf16",
        "fp16": products == "fp16",
        "dtype": weights,
        "use_peft": low_rank,
        "lora_target_modules": [part for name in asked for part in words(said["modules"][name])],
        "load_in_4bit": bits.startswith(("nf4", "fp4")),
        **({"double_quantization": bits.endswith("-dq")} if bits[:3] in {"nf4", "fp4"} else {}),
        "load_in_8bit": bits.startswith("int8"),
        "optim": "adamw_torch" if kind == "AdamW" else kind.lower(),
        "gradient_checkpointing": sharded and not pretrains,
        **({"fsdp": "full_shard"} if sharded else {}),
    }
    kept = {name: value for name, value in made.items() if not name.startswith("model_config")}
    context = replace(context, known={*context.known, *(["model"] if shape else [])})
    job = tuned(kept, LITGPT, context, gpus=gpus, batch=batch, task="pretrain" if pretrains else "finetune")
    job = on_own_kernels(job, "litgpt", compiled=pretrains)  # which compiles its model
    fields = {**job.fields, **present(model=shape)}
    length = Length(tokens, "tokens", "train.max_tokens") if tokens else job.length
    spread = {"sharding_degree": devices} if pretrains and nodes > 1 and devices else {}
    return replace(job, fields=fields, pins={**job.pins, **spread}, length=length)


def _shape_litgpt(config: Any) -> dict[str, Any] | None:
    """The sizes of ``model_config``, where it has them; what it leaves out is as of Pythia."""
    if not isinstance(config, Mapping) or not {"n_layer", "n_embd"} <= set(config):
        return None
    if config.get("n_expert"):
        raise BadRequest("model_config.n_expert: experts of litgpt are not priced")
    made = {meant: config.get(name) for name, meant in data("trainers/litgpt")["sizes"].items()}
    kind, norm = str(config.get("mlp_class_name", "GptNeoxMLP")), str(config.get("norm_class_name", "LayerNorm"))
    bias, gated = bool(config.get("bias", True)), kind != "GptNeoxMLP"
    return {
        "name": "given", "num_heads": 32, "seq_length": 4096, "vocab_size": 50688, **present(**made),
        "ffn_hidden_size": made["ffn_hidden_size"] or 4 * config["n_embd"],
        "gated_ffn": gated, "activation": "swiglu" if kind == _LLAMA else "geglu" if gated else "gelu",
        "position": "rotary", "norm": norm.lower(), "tied_embeddings": False,
        "parallel_block": bool(config.get("parallel_residual", True)),
        **dict.fromkeys(("qkv_bias", "output_bias", "ffn_bias"), bias),
    }  # fmt: skip


def _read_litgpt(launch: Launch, context: Context) -> ImportedJob:
    given = launch.words[2:]
    way = launch.words[1]
    if way == "finetune":  # of two words, or of LoRA
        of_two = bool(given) and "-" not in given[0]
        way, given = (f"{way}_{given[0]}", given[1:]) if of_two else ("finetune_lora", given)
    said = {name: str(value) for name, value in values_of(given, OPTIONS).items()}
    name = said.pop("config", "")
    word = "model_name" if way == "pretrain" else "checkpoint_dir"
    model = dict(zip((word,), files_of(given, ""), strict=False))
    return configured(launch, context, name, said, lambda document: _litgpt_job({**document, **model}, context, way))


_LITGPTS: Final = (
    CommandReader(
        "litgpt", "a command line of litgpt", "",
        lambda launch: launch.words[0].rpartition("/")[2] == "litgpt" and bool({*launch.words[1:2]} & {*_WAYS}),
        _read_litgpt,
    ),
    reader_of_tables(
        "litgpt", "a configuration of litgpt", "",
        lambda document: has_all(document, "train.micro_batch_size", "train.global_batch_size")
        and "precision" in document, _litgpt_job,
    ),
)  # fmt: skip


OUMI: Final = trainer("oumi")


def _oumi_job(document: Mapping[str, Any], context: Context, gpus: int | None = None) -> ImportedJob:
    """The job of a configuration."""
    made = {name.removeprefix("training."): value for name, value in plain_words(document, "oumi").items()}
    mixed = str(made.pop("mixed_precision_dtype", "none")).lower()
    products = mixed if mixed in {"bf16", "fp16"} else FORMATS.get(str(made.get("dtype", "float32")).lower(), "fp32")
    if products in {"bf16", "fp16"}:
        made[products] = True
    bits = whole(made.pop("peft.q_lora_bits", 4))
    if truth(made.pop("load_in_4bit", False)):
        made |= {"load_in_4bit": bits == 4, "load_in_8bit": bits == 8}
    if truth(made.get("fsdp.enable_fsdp", False)) and truth(made.get("deepspeed.enable_deepspeed", False)):
        raise BadRequest("fsdp and deepspeed are both enabled; oumi takes one of them")
    if made.get("fsdp.enable_fsdp"):
        away = " offload" if truth(made.get("fsdp.cpu_offload", False)) else ""
        made["fsdp"] = str(made.get("fsdp.sharding_strategy", "FULL_SHARD")).lower() + away
    if made.get("deepspeed.enable_deepspeed"):
        stage = int(str(made.get("deepspeed.zero_stage", "ZERO_0"))[-1])
        own = at_path(document, "deepspeed") or {}
        kept = {name: own[name] for name in ("overlap_comm", "reduce_bucket_size") if name in own}
        made["deepspeed"] = zero(stage, offload=bool(own.get("offload_optimizer")), bf16=products == "bf16", **kept)
    task = data("trainers/oumi")["tasks"].get(str(made.get("trainer_type", "TRL_SFT")).rpartition("_")[2], "finetune")
    task = "pretrain" if made.get("model.load_pretrained_weights") is False else task
    return tuned(made, OUMI, context, gpus=gpus, batch=None, task=task)


def _read_oumi(launch: Launch, context: Context) -> ImportedJob:
    said = values_of(launch.words[launch.words.index("train") + 1 :], OPTIONS)
    name = str(said.pop("config", said.pop("c", "")))
    pairs = {path: str(value) for path, value in said.items() if "." in path}
    return configured(launch, context, name, pairs, lambda document: _oumi_job(document, context, processes(launch)))


_OUMIS: Final = (
    CommandReader(
        "oumi", "a command line of oumi", "",
        lambda launch: "oumi" in {word.rpartition("/")[2] for word in launch.words[:12]} and "train" in launch.words,
        _read_oumi,
    ),
    reader_of_tables(
        "oumi", "a configuration of oumi", "",
        lambda document: has_all(document, "model.model_name", "training.trainer_type"), _oumi_job,
    ),
)  # fmt: skip


V1: Final = trainer("llamafactory-v1")
_NAMED: Final = ("peft", "dist", "kernel")


def _v1_job(
    document: Mapping[str, Any], context: Context, gpus: int | None = None, task: str = "finetune"
) -> ImportedJob:
    """The job of a configuration, whose plug-ins are tables with a name."""
    made = plain_words(document, "llamafactory-v1")
    adapters, sharded, kernels = (str(made.pop(f"{table}_config.name", "")) for table in _NAMED)
    wide, batch = truth(made.get("bf16", True)) is False, whole(made.pop("global_batch_size", None))
    made = {"gradient_checkpointing": True, "bf16": not wide, "dtype": "float32" if wide else "bfloat16", **made}
    made |= {"use_peft": adapters == "lora", "use_liger_kernel": "liger" in kernels}
    made |= {"finetuning_type": adapters} if adapters not in {"", "lora"} else {}
    kept, hosted = (made.pop(f"dist_config.{name}", None) for name in ("reshard_after_forward", "offload_params"))
    if sharded.startswith("fsdp"):
        made["fsdp"] = full_shard(kept=truth(kept) is False, offload=hosted or False)
    if made.get("batching_strategy") == "normal":
        del made["batching_strategy"]
    return by_ulysses(tuned(made, V1, context, gpus=gpus, batch=batch, task=task))


def _read_v1(launch: Launch, context: Context) -> ImportedJob:
    command, *given = started(launch.words).words
    name = next(iter(files_of(given, ".yaml", ".yml", ".json")), "")
    said = {path: str(value) for path, value in values_of(given, V1.options).items()} | overrides_of(given)
    job = lambda document: _v1_job(document, context, processes(launch), OF_V1.get(command, "finetune"))  # noqa: E731
    return configured(launch, context, name, said, job)


_V1S: Final = (
    CommandReader("llamafactory", "a command line of LLaMA-Factory v1", "", is_v1, _read_v1),
    reader_of_tables(
        "llamafactory", "a configuration of LLaMA-Factory v1", "",
        lambda document: has_all(document, "model", "cutoff_len")
        and bool({"model_class", "dist_config", "peft_config"} & set(document)), _v1_job,
    ),
)  # fmt: skip
READERS: Final = (*_TUNES, *_LITGPTS, *_OUMIS, *_V1S)
