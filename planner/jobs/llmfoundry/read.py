"""llm-foundry's YAML, also within a run of MosaicML's, as a question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length, joined
from planner.jobs.logs.tables import Findings, log_reader
from planner.jobs.megatron.configurations import resolved_tables
from planner.jobs.options import Document, options_of, present
from planner.jobs.reader import CommandReader, Context, JobFile, Launch, configured, reader_of_tables
from planner.jobs.transformers.arguments import overrides_of
from planner.jobs.transformers.job import model_named
from planner.jobs.transformers.states import adapted_modules
from planner.jobs.values import data, table_at, unpriced, whole

OPTIONS: Final = options_of("llmfoundry")
"""Keys of its YAML, as of llm-foundry 0.22, with the values that Composer and MPT take by default."""
STACK: Final = "fsdp"
_MPT: Final = "mpt_causal_lm"
_DURATION: Final = re.compile(r"([\d_]+)\s*(ba|tok|sp)")
_OF: Final[Mapping[str, Literal["iterations", "tokens", "sequences"]]] = {
    "ba": "iterations", "tok": "tokens", "sp": "sequences"
}  # fmt: skip
_DEGREES: Final = {"tp": 1, "pp": 1, "cp": 1}
_KEYS: Final = frozenset({"global_train_batch_size", "device_train_microbatch_size", "max_seq_len"})


def foundry_job(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of a configuration of llm-foundry."""
    document = {**document, **table_at(document, "parameters")}
    document = resolved_tables(document, document)
    at = Document(document, OPTIONS)
    micro = whole(at("micro_batch_size"))
    sharded = bool(at.table("fsdp_config"))
    stage = at("zero_stage") if sharded else 0
    reduced = at("reduced") if stage else 4
    changes: dict[str, Any] = {"stack.gradients.reduce_bytes": reduced}
    if str(at("kind")) == _MPT or at("flash"):
        changes["stack.attention_backend"] = at("attention_backend")
    said = at.each("gpus", "seq_length", "global_batch_size", "precision", "optimizer")
    fields = present(stack=STACK, **said, changes=changes)
    pins = present(
        **_DEGREES,
        micro_batch_size=micro,
        zero_stage=stage,
        recompute="full" if at("recompute") else "none",
        offload="optimizer+parameters" if at("offload") else "none",
    )
    hybrid = str(at.raw("zero_stage")).upper().startswith(("HYBRID", "_HYBRID"))
    apart = "sharding_strategy HYBRID_SHARD shares states inside a node"
    remarks = (f"{apart}; all ranks are priced to: more traffic between them",) if hybrid else ()
    missing = () if micro else ("device_train_microbatch_size is found while it runs; --micro-batch-size says it",)
    words = data("llmfoundry/words")
    effects = (*unpriced(document, words["unpriced"]), *remarks)
    found = re.fullmatch(_DURATION, str(at("length") or "").strip())
    length = Length(int(found[1]), _OF[found[2]], OPTIONS["length"].word) if found else None
    plain = ImportedJob(fields, pins, missing=missing, unpriced=effects, length=length, framework="accelerate")
    made = joined(plain, _model(at, context), _adapters(at))
    return joined(made, ImportedJob(unpriced=at.left(words["harmless"])))


def _model(at: Document, context: Context) -> ImportedJob:
    """MPT by its sizes, Transformers' models by their names."""
    kind = str(at("kind"))
    if kind != _MPT:
        task = "finetune" if at.raw("pretrained") is not False else "pretrain"
        named, _ = model_named(at("model"), context)
        return joined(named, ImportedJob({"task": task}))
    if "model" in context.known:
        return ImportedJob()
    if str(at.raw("gated_ffn") or "").startswith(("mb_", "torch_dmoe")):
        raise BadRequest(f"model.ffn_config.ffn_type {at.raw('gated_ffn')}: experts of MPT are not priced")
    norm, bias, heads = str(at("norm")), not at("no_bias"), at("num_heads")
    grouped = {"multiquery_attention": 1, "multihead_attention": heads}.get(str(at("attention_type")))
    shape = {
        "name": "given",
        **at.each("hidden_size", "num_layers", "num_heads", "vocab_size", "seq_length"),
        "num_query_groups": at("num_query_groups") or grouped or heads,
        "ffn_hidden_size": at("ffn_hidden_size") or int(_factor(at) * at("hidden_size")),
        "gated_ffn": at("gated_ffn"),
        "activation": "geglu" if at("gated_ffn") else "gelu",
        "position": "rotary" if at("rope") else "alibi" if at("alibi") else "learned",
        "norm": "rmsnorm" if "rms" in norm else "layernorm",
        "tied_embeddings": at("tied") is not False,
        **dict.fromkeys(("qkv_bias", "output_bias", "ffn_bias"), bias),
    }
    return ImportedJob({"model": shape})


def _factor(at: Document) -> float:
    given = at("expansion")
    try:
        return float(given)
    except (TypeError, ValueError):
        raise BadRequest(f"model.expansion_ratio: expected a number, got {given!r:.40}") from None


def _adapters(at: Document) -> ImportedJob:
    if not at("rank"):
        return ImportedJob()
    modules, _, unlike = adapted_modules(at("targets") or "all-linear")
    dropout = "+dropout" if at("lora_dropout") else ""
    return ImportedJob({"adapters": f"{at('rank')}:{','.join(modules)}/autocast{dropout}"}, unpriced=unlike)


def _recognises(at: Mapping[str, Any]) -> bool:
    keys, model = {*at, *table_at(at, "parameters")}, at.get("model")
    return len(keys & _KEYS) > 1 and "model" in keys and (not isinstance(model, Mapping) or "name" in model)


def _file_in(launch: Launch) -> str:
    """The file that a command line of its ``train.py`` under Composer names; empty where it is another program's."""
    files = [word for word in launch.words if word.endswith((".yaml", ".yml"))]
    return files[0] if files and Path(launch.words[0]).name == "composer" else ""


def _read_command(launch: Launch, context: Context) -> ImportedJob:
    """The job of the file that a command line names, with its overrides (``max_duration=10ba``)."""
    pairs = overrides_of(launch.words)
    return configured(launch, context, _file_in(launch), pairs, lambda made: foundry_job(made, context))


READERS: Final = (
    CommandReader(
        "llm-foundry", "a command line of llm-foundry", "", lambda launch: bool(_file_in(launch)), _read_command
    ),
    reader_of_tables("llm-foundry", "a configuration of llm-foundry", "", _recognises, foundry_job),
)


def _of_log(findings: Findings, _: JobFile, __: Context) -> ImportedJob:
    """The batch and the length by what was counted, where they come out even; padding may not count."""
    said = {name: int(value) for name, value in findings.start.said.items()}
    gpus = said["each"] * said["nodes"] if {"each", "nodes"} <= said.keys() else None
    samples, batches, tokens = (said.get(name, 0) for name in ("samples", "batches", "tokens"))
    batch = samples // batches if batches and samples % batches == 0 else None
    length = tokens // samples if samples and tokens % samples == 0 else None
    fields = present(stack=STACK, gpus=gpus, global_batch_size=batch, seq_length=length)
    pins = present(**_DEGREES, micro_batch_size=said.get("micro_batch_size"))
    return ImportedJob(fields, pins, framework="accelerate", filled=frozenset({"stack"}))


LOG: Final = log_reader("llmfoundry", _of_log)
