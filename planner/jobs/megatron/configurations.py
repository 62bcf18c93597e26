"""Configurations whose tables hold Megatron-LM's arguments: FlagScale's, Primus's, and its own functional tests'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import MEGATRON, dialect
from planner.jobs.megatron.job import job_of
from planner.jobs.megatron.tables import table_job, table_words
from planner.jobs.reader import Context, reader_of_tables

_FLAGSCALE: Final = {
    "system": "", "system.precision": "", "model": "", "model.optimizer": "", "data": "", "data.tokenizer": "",
    "experiment.runner": "",
}  # fmt: skip
_SYSTEM: Final = frozenset({"tensor_model_parallel_size", "precision", "checkpoint"})


def _is_flagscale(document: Mapping[str, Any]) -> bool:
    system = document.get("system")
    return isinstance(system, dict) and isinstance(document.get("model"), dict) and bool(_SYSTEM & set(system))


def _read_flagscale(document: Mapping[str, Any], context: Context) -> ImportedJob:
    words = table_words(document, _FLAGSCALE, context.environment)
    return table_job({name: words[name] for name in words if "." not in name}, dialect("flagscale"), context)


def _trainer(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The module of Primus that trains on Megatron; empty where there is none."""
    modules = document.get("modules")
    found = [one for one in modules.values() if isinstance(one, dict)] if isinstance(modules, dict) else []
    return next((one for one in found if str(one.get("framework", "")).startswith("megatron")), {})


def _read_primus(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """A model by the name of its file, and Megatron-LM's arguments as overrides."""
    words = table_words(_trainer(document), {"": "of.", "overrides": ""}, context.environment)
    name = words.get("of.model", [""])[0].removesuffix(".yaml")
    own = {word: values for word, values in words.items() if not word.startswith("of.")}
    return table_job(own | ({"model": [name]} if name else {}), dialect("primus"), context)


def _read_arguments(document: Mapping[str, Any], context: Context) -> ImportedJob:
    variables = document.get("ENV_VARS")
    variables = {str(name): str(value) for name, value in variables.items()} if isinstance(variables, dict) else {}
    words = table_words(document, {"MODEL_ARGS": ""}, context.environment)
    known = "model" in context.known
    return job_of(words, replace(MEGATRON, booleans=True), model_known=known, environment=variables)


ARGUMENTS: Final = reader_of_tables(
    "megatron-args", "a table of Megatron-LM's arguments", "megatron-lm",
    lambda document: isinstance(document.get("MODEL_ARGS"), dict), _read_arguments,
)  # fmt: skip
PRIMUS: Final = reader_of_tables(
    "primus", "a configuration of Primus", "megatron-lm", lambda document: bool(_trainer(document)), _read_primus
)
FLAGSCALE: Final = reader_of_tables(
    "flagscale", "a configuration of FlagScale", "megatron-lm", _is_flagscale, _read_flagscale
)
