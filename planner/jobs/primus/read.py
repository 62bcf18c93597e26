"""Primus: one YAML with a model by the name of its file and Megatron-LM's arguments as overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import dialect
from planner.jobs.megatron.tables import table_job, table_words
from planner.jobs.reader import Context, DocumentReader, JobFile

_DIALECT: Final = dialect("primus")


def _trainer(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The module that trains on Megatron; empty where there is none."""
    modules = document.get("modules")
    found = [one for one in modules.values() if isinstance(one, dict)] if isinstance(modules, dict) else []
    return next((one for one in found if str(one.get("framework", "")).startswith("megatron")), {})


def _recognises(file: JobFile) -> bool:
    return bool(_trainer(file.document or {}))


def _read(file: JobFile, context: Context) -> ImportedJob:
    trainer = _trainer(file.document or {})
    words = table_words(trainer, {"": "of.", "overrides": ""}, context.environment)
    name = words.get("of.model", [""])[0].removesuffix(".yaml")
    own = {word: values for word, values in words.items() if not word.startswith("of.")}
    return table_job(own | ({"model": [name]} if name else {}), _DIALECT, context)


READERS: Final = (DocumentReader("primus", "a configuration of Primus", "megatron-lm", _recognises, _read),)
