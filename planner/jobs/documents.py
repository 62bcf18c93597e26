"""Our own documents as files of a job, descriptions of models, and frameworks whose files are known and not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch, Reader
from planner.jobs.values import data, table_at, words
from planner.request.document import question_fields
from planner.request.fields import QUESTION, by_own_name
from planner.request.files import with_relative_files

_FAMILY: Final = frozenset({"model_type", "architectures"})
_SIZES: Final = frozenset(
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "hidden_size", "n_embd", "d_model", "text_config"}
    | {"thinker_config", "_diffusers_version"}
)
_OURS: Final = frozenset({"num_layers", "hidden_size", "num_heads"})


def asked_in(document: Mapping[str, Any], file: JobFile) -> ImportedJob:
    """What a question asks, or the question of an answer or a run."""
    asked = document.get("request", document)
    if not isinstance(asked, Mapping):
        raise BadRequest(f"{file.path}: request: expected a table, got {asked!r:.40}")
    plain = {name: value for name, value in asked.items() if name != "schema"}
    found = question_fields(with_relative_files(plain, file.path), str(file.path))
    fields = {name: value for name, value in found.items() if not name.startswith("pins.")}
    pins = {name.removeprefix("pins."): value for name, value in found.items() if name.startswith("pins.")}
    layers, again = fields.pop("layers_per_stage", None), fields.pop("recomputed_per_stage", None)
    return ImportedJob(fields, pins, tuple(layers) if layers else None, tuple(again) if again else None)


def _read_own(file: JobFile, _: Context) -> ImportedJob:
    return asked_in(file.document or {}, file)


def _schema(file: JobFile) -> str:
    at = file.document or {}
    return str(at.get("schema", "run/" if {"request", "measured"} <= set(at) else ""))


def _is_request(file: JobFile) -> bool:
    """A table whose names are all fields of a question; a model and a batch or the devices are among them."""
    at = file.document or {}
    try:
        names = set(by_own_name({str(name): None for name in at}, (*QUESTION, "pins")))
    except BadRequest:
        return False
    return bool(names & {"model", "gpus", "cluster", "pins"}) and names <= {*QUESTION, "pins", "profile", "schema"}


def _is_hugging_face(file: JobFile) -> bool:
    at = file.document or {}
    return file.syntax == "JSON" and bool(_FAMILY & set(at)) and bool(_SIZES & set(at))


def _is_model(file: JobFile) -> bool:
    at = file.document or {}
    inner = at.get("model")
    fields = inner if set(at) == {"model"} and isinstance(inner, Mapping) else at
    return set(fields) >= _OURS and not _FAMILY & set(at)


def describes_model(file: JobFile) -> bool:
    """Whether a file describes a model, and nothing of how it is trained."""
    return _is_hugging_face(file) or _is_model(file)


def _read_model(file: JobFile, context: Context) -> ImportedJob:
    if context.disk:
        return ImportedJob({"model": str(file.path)})
    from costmodels.model.catalogue import model_in

    return ImportedJob({"model": model_in(dict(file.document or {}), file.path).model_dump(mode="json")})


READERS: Final = (
    DocumentReader("hf", "a Hugging Face model configuration", "", _is_hugging_face, _read_model),
    DocumentReader("model", "a description of a model", "", _is_model, _read_model),
    DocumentReader("run", "a measured run", "", lambda file: _schema(file).startswith("run/"), _read_own),
    DocumentReader(
        "plan", "an answer of plan", "", lambda file: _schema(file).startswith(("plan/", "replan/")), _read_own
    ),
    DocumentReader("request", "a question for plan", "", _is_request, _read_own),
)


_SAY: Final = "--model, --gpus, --global-batch-size, --seq-length, and --tp, --pp, --zero of its strategy"


def _refusing(title: str, *, program: str = "", keys: str = "", text: str = "") -> Iterator[Reader]:
    """The readers of a framework, which refuse what is its own, by a row of ``unread.toml``."""

    def is_file(file: JobFile) -> bool:
        if (document := file.document) is not None:
            paths = [key.rpartition(".") for key in words(keys)]
            held = [name in (table_at(document, above) if above else document) for above, _, name in paths]
            return bool(held) and all(held)
        return bool(text) and re.search(text, file.text, re.MULTILINE) is not None

    def is_command(launch: Launch) -> bool:
        return any(re.fullmatch(rf"(?:.*/)?(?:{program})", word) for word in launch.words[:3])

    def refuse(*_: object) -> NoReturn:
        raise BadRequest(f"{title} is known and not read; say its job by options: {_SAY}")

    yield DocumentReader("", f"a file of {title}", "", is_file, refuse)
    if program:
        yield CommandReader("", f"a command line of {title}", "", is_command, refuse)


UNREAD: Final = tuple(reader for title, row in data("unread").items() for reader in _refusing(title, **row))
"""In front of all others, whose options some of these have too."""
