"""nanotron's YAML as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model.model import BadModel, from_shape
from planner.errors import BadRequest
from planner.frameworks.nanotron import stage_layers
from planner.jobs.imported import ImportedJob, Length, llama_shape
from planner.jobs.nanotron.options import OPTIONS, SIZES
from planner.jobs.options import Document, present
from planner.jobs.reader import CommandReader, Launch, configured, reader_of_tables
from planner.jobs.values import data, table_at, unpriced


def nanotron_job(document: Mapping[str, Any]) -> ImportedJob:
    """The job of a nanotron configuration."""
    if "parallelism" not in document:
        raise BadRequest("it has no table of nanotron, such as parallelism")
    at = Document(document, OPTIONS)
    tp, pp, dp = (at.needed(axis) for axis in ("tp", "pp", "dp"))
    lacks = _unknown(at)
    shape = llama_shape(at, *SIZES, "seq_length") | present(qkv_bias=at("qkv_bias") or None)
    fields = present(
        model=shape if at.raw("num_layers") and not lacks else None,
        gpus=tp * pp * dp,
        **at.each("seq_length", "precision", "optimizer"),
        main_grads="bf16" if at.raw("wide_grads") is False else None,
    )
    pins = present(
        **at.each("tp", "pp", "dp", "cp", "ep", "micro_batch_size", "steps", "zero_stage"),
        schedule=at("schedule") if pp > 1 else "none",
        sequence_parallel=str(at("sequence_parallel") and tp > 1).lower(),
        recompute="full" if at("recompute") else "none",
        offload="none",
    )
    length = Length(at("iterations"), "iterations", OPTIONS["iterations"].word) if at("iterations") else None
    assumed = ["parallelism.pp_engine is not given; afab is priced"] if pp > 1 and at.raw("schedule") is None else []
    tables = ("", "parallelism", "model", "model.model_config", "tokens", "optimizer")
    said = data("nanotron/words")
    effects = unpriced(document, said["unpriced"])
    if pins["sequence_parallel"] == "true" and at.raw("tensor_overlap") is False:
        effects += (f"{OPTIONS['tensor_overlap'].word} is off, which is not priced: tensor ranks wait longer",)
    harmless = f"{said['harmless']} {' '.join(path.rpartition('.')[2] for path in said['unpriced'])}"
    remarks = at.left(dict.fromkeys(tables, harmless))
    layers = _cut(fields["model"], pp) if "model" in fields and pp > 1 else None
    return ImportedJob(
        fields, pins, layers, remarks=remarks, assumed=tuple(assumed), unpriced=effects, length=length, lacks=lacks
    )


def _cut(shape: Mapping[str, Any], pp: int) -> tuple[int, ...] | None:
    """Layers of every stage as nanotron divides them; None of sizes that are no model's, or fill not every stage."""
    try:
        held = stage_layers(from_shape(shape), pp)
    except BadModel:
        return None
    return tuple(held) if all(held) else None


def _unknown(at: Document) -> str:
    """That a model is of another kind than those that are read; nothing where it is not."""
    config = at.table("model.model_config")
    kinds = {OPTIONS[field].word.rpartition(".")[2] for field in ("is_llama", "is_qwen2")}
    others = [name for name in config if name == "moe_config" or (name.startswith("is_") and name not in kinds)]
    other = next((name for name in others if config.get(name)), None)
    return f"model.model_config.{other} is not read; give the model with --model" if other else ""


def _starts(launch: Launch) -> bool:
    """Whether a command line is that of nanotron's ``run_train.py``, which takes one file and no other option."""
    named = any(word.rpartition("/")[2] in {"run_train.py", "train_nanotron.py"} for word in launch.words)
    return named and launch.option("config_file") is not None


READERS: Final = (
    reader_of_tables(
        "nanotron", "a configuration of nanotron", "nanotron",
        lambda document: bool({"dp", "tp", "pp"} & {*table_at(document, "parallelism")}),
        lambda document, _: nanotron_job(document),
    ),
    CommandReader(
        "nanotron", "a command line of nanotron", "nanotron", _starts,
        lambda launch, context: configured(launch, context, launch.option("config_file") or "", {}, nanotron_job),
    ),
)  # fmt: skip
