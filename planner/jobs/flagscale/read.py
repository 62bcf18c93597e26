"""FlagScale: YAML whose tables ``system`` and ``model`` are Megatron-LM's arguments."""

from __future__ import annotations

from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import dialect
from planner.jobs.megatron.tables import table_job, table_words
from planner.jobs.reader import Context, DocumentReader, JobFile

_DIALECT: Final = dialect("flagscale")
_TABLES: Final = {
    "system": "", "system.precision": "", "model": "", "model.optimizer": "", "data": "", "data.tokenizer": "",
    "experiment.runner": "",
}  # fmt: skip


def _recognises(file: JobFile) -> bool:
    document = file.document or {}
    system = document.get("system")
    return (
        isinstance(system, dict)
        and isinstance(document.get("model"), dict)
        and bool({"tensor_model_parallel_size", "precision", "checkpoint"} & set(system))
    )


def _read(file: JobFile, context: Context) -> ImportedJob:
    words = table_words(file.document or {}, _TABLES, context.environment)
    return table_job({name: words[name] for name in words if "." not in name}, _DIALECT, context)


READERS: Final = (DocumentReader("flagscale", "a configuration of FlagScale", "megatron-lm", _recognises, _read),)
