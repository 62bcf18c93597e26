"""litgpt's configurations and command lines as questions, as of litgpt 0.5: FSDP where there are several devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length
from planner.jobs.options import present
from planner.jobs.reader import CommandReader, Context, Launch, configured, reader_of_tables
from planner.jobs.trainers.family import on_own_kernels, plain_words, trainer, tuned
from planner.jobs.transformers.arguments import files_of, values_of
from planner.jobs.transformers.trainer import OPTIONS
from planner.jobs.values import data, has_all, truth, whole, words

LITGPT: Final = trainer("litgpt", alone=True)
_FORMATS: Final[Mapping[str, tuple[str, str]]] = data("trainers/litgpt")["formats"]
"""Of the products and of the weights, by what ``precision`` says."""
_USUAL: Final = "bf16-mixed"
_QUERY_VALUE: Final = frozenset({"lora_query", "lora_value"})
"""Adapters that are on unless they are switched off."""
_LLAMA: Final = "LLaMAMLP"
_WAYS: Final = ("pretrain", "finetune_lora", "finetune_full", "finetune_adapter", "finetune_adapter_v2", "finetune")


def _job(document: Mapping[str, Any], context: Context, way: str = "") -> ImportedJob:
    """The job of a configuration of one of its programs, by the keys that only that one has where it is not said."""
    said, made = data("trainers/litgpt"), plain_words(document, "litgpt")
    pretrains = way == "pretrain" or (not way and "model_name_or_path" not in made)
    if way.startswith("finetune_adapter"):
        raise BadRequest("LLaMA-Adapter is not priced; finetune_lora and finetune_full are")
    devices, nodes = whole(made.pop("devices", "auto" if pretrains else 1)), whole(made.pop("num_nodes", 1)) or 1
    gpus, sharded = devices and devices * nodes, devices is None or devices * nodes > 1
    precision = str(made.pop("precision", _USUAL)).lower()
    if precision not in _FORMATS:
        raise BadRequest(f"precision: {precision!r:.40} is not priced; {', '.join(_FORMATS)} are")
    products, weights = _FORMATS[precision]
    low_rank = way == "finetune_lora" or (not way and "lora_r" in made)
    asked = [name for name in said["modules"] if truth(made.pop(name, name in _QUERY_VALUE))]
    bits = str(made.pop("quantize", "")).removeprefix("bnb.")
    if bits and (sharded or "mixed" in precision):
        raise BadRequest("quantize: litgpt quantises on one GPU and in a -true precision only; leave it out, or these")
    kind = str(made.pop("optim", "AdamW")).rpartition(".")[2]
    batch, tokens = whole(made.pop("batch", None)), whole(made.pop("tokens", None))
    named = str(made.pop("model_name", made.pop("initial", "")))
    shape = _shape(document.get("model_config"))
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


def _shape(config: Any) -> dict[str, Any] | None:
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


def _read(launch: Launch, context: Context) -> ImportedJob:
    given = launch.words[2:]
    way = launch.words[1]
    if way == "finetune":  # of two words, or of LoRA
        of_two = bool(given) and "-" not in given[0]
        way, given = (f"{way}_{given[0]}", given[1:]) if of_two else ("finetune_lora", given)
    said = {name: str(value) for name, value in values_of(given, OPTIONS).items()}
    name = said.pop("config", "")
    word = "model_name" if way == "pretrain" else "checkpoint_dir"
    model = dict(zip((word,), files_of(given, ""), strict=False))
    return configured(launch, context, name, said, lambda document: _job({**document, **model}, context, way))


READERS: Final = (
    CommandReader(
        "litgpt", "a command line of litgpt", "",
        lambda launch: launch.words[0].rpartition("/")[2] == "litgpt" and bool({*launch.words[1:2]} & {*_WAYS}), _read,
    ),
    reader_of_tables(
        "litgpt", "a configuration of litgpt", "",
        lambda document: has_all(document, "train.micro_batch_size", "train.global_batch_size")
        and "precision" in document, _job,
    ),
)  # fmt: skip
