"""MaxText's configuration as a question."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from costmodels.model.catalogue import entry_of
from costmodels.model.catalogue import model as find_model
from costmodels.names import SHARDED_PARAMETERS
from hardware.catalogue import names
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length, llama_shape
from planner.jobs.logs.tables import Findings, log_reader, made_job
from planner.jobs.maxtext.options import AXES, CALLED, NARROW_STATES, NEARLY, OPTIONS, SIZES
from planner.jobs.options import Document, present
from planner.jobs.reader import CommandReader, Context, JobFile, Launch, reader_of_tables
from planner.jobs.shell.processes import processes
from planner.jobs.values import data, literal
from planner.jobs.yaml_text import yaml_value

_AUTO: Final = -1
_BETWEEN: Final = ("ici_", "dcn_")
"""How names of ranks inside a slice and between slices begin."""
_OF_BASE: Final = 150
"""Keys of a file that is base.yml, which has all of them."""


def maxtext_job(document: Mapping[str, Any]) -> ImportedJob:
    """The job of what overrides MaxText's base.yml."""
    at = Document(_without_base(document), OPTIONS)
    if not any(row.word in document for row in OPTIONS if row.field not in {"run_name", "vocab_size"}):
        raise BadRequest("it has no key of MaxText, such as ici_fsdp_parallelism")
    narrow, known, table = at("weights") == "bfloat16", {row.word for row in OPTIONS}, at.table("")
    for word in table:
        if _is_axis(word) and word not in known and table.get(word) != 1:
            raise BadRequest(f"{word}: {table.get(word)!r:.40} is not priced; 1 is")
    ranks = {axis: _ranks(at, axis) for axis in AXES}
    tp, cp, pp, ep = ranks["tensor"] * ranks["tensor_sequence"], ranks["context"], ranks["pipeline"], ranks["expert"]
    sharding = _sharding(at, ranks)
    batch, remarks = _batch(at, pp, tp * cp * pp)
    vpp = at("vpp") if at("vpp") != _AUTO else None
    model, lacks = _model(at)
    hosted = at("states_on_host")
    pins = present(
        tp=tp,
        cp=cp,
        pp=pp,
        ep=ep,
        vpp=vpp if pp > 1 else 1,
        etp=tp if isinstance(model, str) and find_model(model).moe else 1,
        **sharding,
        **batch,
        cp_kind=at("cp_kind") if cp > 1 else None,
        schedule="none" if pp == 1 else {None: None, 1: "gpipe"}.get(vpp, "breadth-first"),
        sequence_parallel=str(ranks["tensor_sequence"] > 1).lower(),
        recompute=at("recompute"),
        offload="none" if not hosted else "optimizer+parameters" if at("parameters_on_host") else "optimizer",
    )
    fields = present(
        model=model,
        gpus=sharding["dp"] * tp * cp * pp if "dp" in sharding else None,
        seq_length=at("seq_length"),
        precision=at("recipe") or ("fp32" if at("width") == "float32" else "bf16"),
        optimizer="adam-bf16" if narrow and at("optimizer") == "adam" else at("optimizer"),
        changes=(dict(NARROW_STATES) if narrow else {}) | _other_sizes(at, model) or None,
    )
    length = Length(at("iterations"), "iterations", "steps") if (at("iterations") or 0) > 0 else None
    policy = str(at.raw("recompute"))
    nearly = () if policy not in NEARLY else (f"remat_policy {policy} is priced as {at('recompute')} recomputation",)
    left, assumed = at.left(data("maxtext/words")["harmless"]), tuple(remarks)
    return ImportedJob(fields, pins, remarks=left, assumed=assumed, unpriced=nearly, length=length, lacks=lacks)


def _scaled(at: Document) -> dict[str, int]:
    """The sizes of a model that is a base times some power of two: heads and inner width grow first, layers last."""
    scale = at("scale")
    doublings = scale.bit_length() - 1
    if scale != 2**doublings:
        raise BadRequest(f"global_parameter_scale: {scale} is no power of two; {2**doublings} is")
    each, left = divmod(doublings, 3)
    heads, width = each + (left > 0), each + (left > 1)
    grown = {"num_heads": heads, "num_query_groups": heads, "ffn_hidden_size": heads}
    grown |= {"hidden_size": width, "num_layers": each}
    return {field: at(field) * 2**times for field, times in grown.items()}


def _other_sizes(at: Document, model: Any) -> dict[str, Any]:
    """Fields of a model that is named and whose sizes are said otherwise, as ``override_model_config`` allows."""
    if not isinstance(model, str):
        return {}
    known = find_model(model)
    said = {field: at(field) for field in SIZES if at.raw(field) is not None}
    return {f"model.{field}": value for field, value in said.items() if getattr(known, field, value) != value}


def _without_base(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys that are read, of a file that is MaxText's base.yml: nobody chose the hundreds of others."""
    if len(document) < _OF_BASE:
        return document
    known = {row.word for row in OPTIONS}
    return {name: value for name, value in document.items() if name in known or _is_axis(str(name))}


def _is_axis(word: str) -> bool:
    return word.startswith(_BETWEEN) and word.endswith("_parallelism")


def _ranks(at: Document, axis: str) -> int:
    """Ranks of an axis in all slices; -1 is left to MaxText, inside a slice of fsdp and between slices of data."""
    inside, between = at(f"ici_{axis}"), at(f"dcn_{axis}")
    if (inside == _AUTO and axis != "fsdp") or (between == _AUTO and axis != "data"):
        raise BadRequest(f"-1 for {axis} cannot be read; it can for fsdp inside a slice and data between slices")
    return _AUTO if inside == _AUTO else int(inside * max(between, 1))


def _sharding(at: Document, ranks: Mapping[str, int]) -> dict[str, Any]:
    """Replicas and what they share: parameters over the context and expert ranks and those of fsdp."""
    if ranks["fsdp"] == _AUTO:
        return {"zero_stage": SHARDED_PARAMETERS, "copies": ranks["data"]}
    dp, shared = (ranks["fsdp"] * ranks["expert"] * ranks[axis] for axis in ("data", "context"))
    if shared > 1:
        return {"dp": dp, "zero_stage": SHARDED_PARAMETERS, "sharding_degree": shared}
    return {"dp": dp, "zero_stage": int(at("sharded_states"))}


def _batch(at: Document, pp: int, each: int) -> tuple[dict[str, int], list[str]]:
    """Sequences of a micro-batch and how many a replica of so many devices takes, in steps or through the pipeline."""
    steps, word = at("steps"), OPTIONS["per_device_batch_size"].word
    given = at("per_device_batch_size")
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise BadRequest(f"{word}: expected a number of sequences, got {given!r:.40}")
    staged = pp if at("micro_batches") == _AUTO else at("micro_batches")
    together, through = given * each, staged if pp > 1 else 1
    micro = together / through
    if not math.isclose(micro, round(micro)) or micro < 1:
        raise BadRequest(f"{word} {given:g} makes {micro:g} sequences of a replica's {each} devices at a time")
    remarks = [f"{word} is not given; {given:g} is priced"] if at.raw("per_device_batch_size") is None else []
    if _AUTO in {at("num_slices"), at("dcn_data")} and at("dcn_data") != 1:
        remarks.append(f"{OPTIONS['dcn_data'].word} is left to MaxText; one slice is priced")
    if pp > 1 and steps > 1:
        remarks.append(f"each of the {steps} steps fills and drains the pipeline; they are priced as one pipeline")
    return {"micro_batch_size": round(micro), "steps": through * steps}, remarks


def _model(at: Document) -> tuple[Any, str]:
    """A model by its name, or the shape that is written out; and why there is none."""
    name = str(at("model"))
    if name == "default" and at("experts") > 1:
        return None, "num_experts is not read without a model_name; give the model with --model"
    if name == "default" and at("decoder"):
        return llama_shape(at, *SIZES, "seq_length") | _scaled(at), ""
    known = CALLED.get(name) or entry_of(name)
    return (known, "") if known else (None, f"model {name!r:.40} is not known; give it with --model")


_OWN: Final = frozenset({"per_device_batch_size", "max_target_length", "base_config", "base_emb_dim", "remat_policy"})
"""Keys that no other framework's file has."""


def _on_machines(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job with its machines, by the topology that it is compiled for; without one, TPUs are to be said."""
    found = maxtext_job(document)
    topology = str(document.get("compile_topology") or "").partition("-")[0]
    cluster = next((name for name in names("cluster") if topology and name == f"tpu-{topology}-pod"), None)
    if cluster:
        return replace(found, fields={**found.fields, "cluster": cluster})
    on_tpus = document.get("hardware", "tpu") == "tpu" and "cluster" not in context.known
    said = "hardware is tpu; say which one with --cluster, such as tpu-v5p-pod"
    return replace(found, missing=(*found.missing, said)) if on_tpus else found


_PROGRAM: Final = re.compile(r"(?i)maxtext|(^|/)(train|train_compile|pre_train)(\.py)?$")


_OF_MANY: Final = {"run_name"}
"""Words that other programs take too."""
_FILES: Final = (".yml", ".yaml")


def _starts(launch: Launch) -> bool:
    """Whether a command line is MaxText's: its module, or a program and words such as ``model_name=llama2-7b``."""
    named = any(_PROGRAM.search(word) for word in launch.words[:4])
    itself = any("maxtext" in word.lower() for word in launch.words)
    own = {row.word for row in OPTIONS} - (set() if itself else _OF_MANY)
    said = any(word.partition("=")[0] in own for word in launch.words if "=" in word)
    module = any(word.lower().startswith("maxtext.") for word in launch.words[:4])
    return (module or (named and said)) and any(word.endswith(_FILES) for word in launch.words)


def _read_command(launch: Launch, context: Context) -> ImportedJob:
    """The job of a command line: the file that it names below what it says, base.yml below both."""
    name = next(word for word in launch.words if word.endswith(_FILES))
    file = context.find(name)
    document = dict(_without_base(file.document or {})) if file else {}
    if file is None and name.rpartition("/")[2] != "base.yml":
        said = f"{name}, which the command line names, is not here; give that file too"
        return ImportedJob(missing=(said,))
    assumed = () if file else ("base.yml is not here; that of MaxText 0.2.5 is taken",)
    for word in launch.words:
        key, sign, value = word.partition("=")
        if sign and key.isidentifier():
            document[key] = yaml_value(value) if value else ""
    found = _on_machines(document, context)
    gpus = processes(launch) if "gpus" not in found.fields else None
    fields = {**found.fields, **({"gpus": gpus} if gpus and gpus > 1 else {})}
    return replace(found, fields=fields, assumed=(*assumed, *found.assumed))


READERS: Final = (
    reader_of_tables(
        "maxtext", "a configuration of MaxText", "maxtext",
        lambda document: any(key in _OWN or str(key).startswith(_BETWEEN) for key in document), _on_machines,
    ),
    CommandReader("maxtext", "a command line of MaxText", "maxtext", _starts, _read_command),
)  # fmt: skip


def _of_log(findings: Findings, _: JobFile, __: Context) -> ImportedJob:
    said = {name: literal(value) for name, value in findings.start.said.items()}
    known = {option.word for option in OPTIONS}
    settings = {name: value for name, value in said.items() if name in known and value not in (None, "")}
    job = made_job(lambda: _settled(settings), "configuration that it prints does")
    gpus = {"gpus": said["num_devices"]} if "num_devices" in said else {}
    return replace(job, fields={**job.fields, **gpus}, length=None)


def _settled(settings: Mapping[str, Any]) -> ImportedJob:
    """The job of the settings, without its model where an excerpt leaves sizes out."""
    job = maxtext_job(settings) if settings else ImportedJob()
    if not isinstance(job.fields.get("model"), Mapping) or all(OPTIONS[size].word in settings for size in SIZES):
        return job
    fields = {name: value for name, value in job.fields.items() if name != "model"}
    lacks = "the log does not give all sizes of the model; give the model with --model"
    return replace(job, fields=fields, lacks=lacks)


LOG: Final = log_reader("maxtext", _of_log)
