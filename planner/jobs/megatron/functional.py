"""Tables of Megatron-LM's arguments, as its own functional tests have them: ``MODEL_ARGS`` beside ``ENV_VARS``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import MEGATRON
from planner.jobs.megatron.job import job_of
from planner.jobs.megatron.tables import table_words
from planner.jobs.reader import Context, DocumentReader, JobFile

_ARGUMENTS: Final = "MODEL_ARGS"
_DIALECT: Final = replace(MEGATRON, booleans=True)


def _recognises(file: JobFile) -> bool:
    return isinstance((file.document or {}).get(_ARGUMENTS), dict)


def _read(file: JobFile, context: Context) -> ImportedJob:
    document = file.document or {}
    variables = document.get("ENV_VARS")
    variables = {str(name): str(value) for name, value in variables.items()} if isinstance(variables, dict) else {}
    words = table_words(document, {_ARGUMENTS: ""}, context.environment)
    return job_of(words, _DIALECT, model_known="model" in context.known, environment=variables)


READER: Final = DocumentReader("megatron-args", "a table of Megatron-LM's arguments", "megatron-lm", _recognises, _read)
