"""Configurations in tables of programs on Megatron-Core: their keys as options, read by the one reader of arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import MEGATRON, SWIFT, Dialect, Words, dialect
from planner.jobs.megatron.job import job_of
from planner.jobs.reader import Context, not_here, reader_of_tables
from planner.jobs.values import at_path, table_at

_REFERENCE: Final = re.compile(r"\$\{(?P<env>oc\.env:)?(?P<name>[\w.]+)(?:[:,](?P<other>[^{}]*))?\}")
TYPES: Final = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
"""Formats as Megatron-LM has them, by PyTorch's names."""
_ABSENT: Final = frozenset({"???", "null", "none", ""})


def table_words(
    document: Mapping[str, Any], paths: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Words:
    """Options of a document's tables, by the paths of these and what stands in front of their keys.

    Dashes stand in place of underscores, dots join names within tables, "" is the document itself; what is absent, or
    refers to what is, is left out.
    """
    found: Words = {}
    for path, prefix in paths.items():
        table = at_path(document, path) if path else document
        if isinstance(table, Mapping):
            found |= _flat(table, prefix, document, environment or {})
        elif (words := _values(table, {**document, "": {}}, environment or {})) is not None:
            found[prefix.rstrip(".")] = words  # a name in place of a table
    return found


def resolved_tables(table: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A table with what its texts refer to in the document in their places; what refers to nothing is left out."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            known: Any = resolved_tables(value, document)
        else:
            refers = isinstance(value, str) and "${" in value
            known = _resolved(value, {**document, "": table}, {}) if refers else value
        found |= {} if known is None else {str(key): known}
    return found


def _flat(table: Mapping[str, Any], prefix: str, document: Mapping[str, Any], environment: Mapping[str, str]) -> Words:
    found: Words = {}
    for key, value in table.items():
        name = prefix + str(key).lstrip("-").replace("_", "-")
        if isinstance(value, Mapping):
            found |= _flat(value, f"{name}.", document, environment)
        elif (words := _values(value, {**document, "": table}, environment)) is not None:
            found[name] = words
    return found


def _values(value: Any, document: Mapping[str, Any], environment: Mapping[str, str]) -> list[str] | None:
    """A value as words; None where it is absent, or refers to something that is."""
    if isinstance(value, list):
        return [word for one in value for word in _values(one, document, environment) or ()]
    if isinstance(value, str) and "${" in value:
        value = _resolved(value, document, environment)
    if value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT):
        return None
    return [str(value).lower() if isinstance(value, bool) else TYPES.get(str(value), str(value))]


def _resolved(text: str, document: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """A value with what it refers to in its place; None where that is not known.

    ``${NAME:usual}`` and ``${oc.env:NAME,usual}`` are variables, ``${model.hidden_size}`` a value of the document, also
    where a name of the whole stands in front.
    """

    def known(found: re.Match[str]) -> Any:
        name = found["name"]
        if name in environment or found["other"] is not None or found["env"]:
            return environment.get(name, found["other"])
        at = document[""].get(name[1:]) if name.startswith(".") else at_path(document, name)
        return at_path(document, name.partition(".")[2]) if at is None and "." in name else at

    whole = _REFERENCE.fullmatch(text.strip())
    if whole:
        return known(whole)
    replaced = _REFERENCE.sub(lambda found: "" if known(found) is None else str(known(found)), text)
    return None if "${" in replaced else replaced


def table_job(words: Words, dialect: Dialect, context: Context) -> ImportedJob:
    """The job of such options."""
    return job_of(words, dialect, model_known="model" in context.known, environment=context.environment)


_FLAGSCALE: Final = {
    "system": "", "system.precision": "", "model": "", "model.optimizer": "", "data": "", "data.tokenizer": "",
    "experiment.runner": "",
}  # fmt: skip
_SYSTEM: Final = frozenset({"tensor_model_parallel_size", "precision", "checkpoint"})


def _read_flagscale(document: Mapping[str, Any], context: Context) -> ImportedJob:
    words = table_words(document, _FLAGSCALE, context.environment)
    return table_job({name: words[name] for name in words if "." not in name}, dialect("flagscale"), context)


def _train_file(document: Mapping[str, Any]) -> str:
    """The file with the system and the model that an experiment names among its defaults; empty where it names none."""
    own = isinstance(document.get("experiment"), Mapping)
    own = own and at_path(document, "experiment.task.backend") in {None, "megatron"}
    named = document.get("defaults") if own else None
    parts = [one for one in (named if isinstance(named, list) else ()) if isinstance(one, Mapping)]
    return next((f"train/{one['train']}.yaml" for one in parts if one.get("train")), "")


def _read_experiment(document: Mapping[str, Any], context: Context) -> ImportedJob:
    name = _train_file(document)
    file = context.find(name)
    if file is None or file.document is None:
        return ImportedJob(missing=(not_here(name),))
    return _read_flagscale({**file.document, **document}, context)


_OF_SWIFT: Final = frozenset({"tuner_type", "train_type", "rlhf_type", "split_dataset_ratio"})


def _is_swift(document: Mapping[str, Any]) -> bool:
    own = bool(_OF_SWIFT & {*document, *table_at(document, "train")})
    return own and {"model", "micro_batch_size"} <= set(document)


def swift_words(document: Mapping[str, Any], context: Context) -> Words:
    """Options of a configuration of ms-swift, under Ray those of the trainer's own table above the others."""
    found = table_words(document, {"": "", "train": ""}, context.environment)
    return {name: values for name, values in found.items() if "." not in name}


def _is_factory(document: Mapping[str, Any]) -> bool:
    own = "model_name_or_path" in document and bool({"finetuning_type", "cutoff_len"} & set(document))
    return own and any(name.endswith("_model_parallel_size") for name in map(str, document))


def _trainer(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The module of Primus that trains on Megatron; empty where there is none."""
    found = [one for one in table_at(document, "modules").values() if isinstance(one, dict)]
    return next((one for one in found if str(one.get("framework", "")).startswith("megatron")), {})


def _read_primus(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """A model by the name of its file, and Megatron-LM's arguments as overrides."""
    words = table_words(_trainer(document), {"": "of.", "overrides": ""}, context.environment)
    name = words.get("of.model", [""])[0].removesuffix(".yaml")
    own = {word: values for word, values in words.items() if not word.startswith("of.")}
    return table_job(own | ({"model": [name]} if name else {}), dialect("primus"), context)


def _read_arguments(document: Mapping[str, Any], context: Context) -> ImportedJob:
    variables = {str(name): str(value) for name, value in table_at(document, "ENV_VARS").items()}
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
    "flagscale", "a configuration of FlagScale", "megatron-lm",
    lambda document: isinstance(document.get("model"), dict) and bool(_SYSTEM & {*table_at(document, "system")}),
    _read_flagscale,
)  # fmt: skip
EXPERIMENT: Final = reader_of_tables(
    "flagscale", "an experiment of FlagScale", "megatron-lm", lambda document: bool(_train_file(document)),
    _read_experiment,
)  # fmt: skip
FACTORY: Final = reader_of_tables(
    "llamafactory", "a recipe of LLaMA-Factory on Megatron-Core", "megatron-lm", _is_factory,
    lambda document, context: table_job(table_words(document, {"": ""}), dialect("llamafactory"), context),
)  # fmt: skip
SWIFT_FILE: Final = reader_of_tables(
    "swift", "a configuration of ms-swift (megatron)", SWIFT.framework, _is_swift,
    lambda document, context: table_job(swift_words(document, context), SWIFT, context),
)  # fmt: skip
