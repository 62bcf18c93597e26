"""The readers of torchtitan: TOML, Python configurations and command lines, each as the same tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Options
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.shell.processes import processes
from planner.jobs.torchtitan.options import OPTIONS
from planner.jobs.torchtitan.python import configuration, functions
from planner.jobs.torchtitan.settings import torchtitan_job

_FILE: Final = "job.config_file"
_TRUE: Final = {"true": True, "false": False}


def overridden(document: Mapping[str, Any], words: Sequence[str], options: Options = OPTIONS) -> dict[str, Any]:
    """The configuration with what a command line says otherwise: ``--training.local_batch_size 2``.

    Switches stand alone, as ``--training.compile`` and ``--compile.no-enable`` do.
    """
    tables = {name: dict(table) if isinstance(table, Mapping) else table for name, table in document.items()}
    kinds = {word: row.kind for row in options for word in (row.word, *row.older)}
    for place, word in enumerate(words):
        if not word.startswith("--") or "." not in word:
            continue
        name, sign, value = word[2:].partition("=")
        path, _, key = name.replace("-", "_").rpartition(".")
        on = not key.startswith("no_")
        key = key.removeprefix("no_")
        said = [value] if sign else [*takewhile(lambda one: not one.startswith("--"), words[place + 1 :])]
        held = tables.setdefault(path.partition(".")[0], {})
        for part in path.split(".")[1:]:
            held = held.setdefault(part, {}) if isinstance(held, dict) else {}
        if isinstance(held, dict):
            held[key] = _value(said, kinds.get(f"{path}.{key}", "text")) if said else on
    return tables


def _value(said: Sequence[str], kind: str) -> Any:
    """Words as TOML would hold them."""
    if len(said) > 1:
        return list(said)
    text = said[0]
    if kind == "flag" or text.lower() in _TRUE:
        return _TRUE.get(text.lower(), text)
    plain = text.removeprefix("-")
    return int(text) if kind != "choice" and plain.isascii() and plain.isdecimal() else text


def _recognises(file: JobFile) -> bool:
    """Whether a TOML has tables of torchtitan with keys of its own, or a Python file makes its configurations."""
    if file.document is None:
        return bool(functions(file.text))
    if file.syntax != "TOML":
        return False
    model, training = file.document.get("model"), file.document.get("training")
    own = {row.word.rpartition(".")[2] for row in OPTIONS}
    named = isinstance(model, Mapping) and "flavor" in model
    return named or "parallelism" in file.document or (isinstance(training, Mapping) and bool(set(training) & own))


def _read(file: JobFile, context: Context) -> ImportedJob:
    if file.document is not None:
        return torchtitan_job(file.document)
    known = functions(file.text)
    names = [name for name in known if "debug" not in name] or list(known)
    if context.launch is None and len(names) > 1:
        listed = ", ".join(f"{place}: {name}" for place, name in enumerate(names, 1))
        return ImportedJob(missing=(f"it has {len(names)} configurations ({listed}); --launch N chooses one",))
    place = (context.launch or 1) - 1
    if place >= len(names):
        raise BadRequest(f"there is no configuration {place + 1}; it has {', '.join(names)}")
    return _of_function(file.text, names[place], ())


def _of_function(text: str, name: str, words: Sequence[str]) -> ImportedJob:
    """The job of a function of a file, with what a command line says otherwise."""
    made = configuration(text, name)
    job = torchtitan_job(overridden({"training": {}, **made.tables}, words))
    fields = dict.fromkeys(made.unknown)
    unknown = [f"{field} is not a constant in {name}; give --{field} on its command line" for field in fields]
    return replace(job, missing=(*job.missing, *unknown))


def _starts(launch: Launch) -> bool:
    of_torchtitan = any("torchtitan" in word for word in launch.words if not word.startswith("--"))
    return launch.option(_FILE) is not None or (of_torchtitan and launch.option("module") is not None)


def _read_command(launch: Launch, context: Context) -> ImportedJob:
    """The job of a command line: the file that it names, with what it says otherwise."""
    found = _configured(launch, context)
    gpus = processes(launch)
    return replace(found, fields={**({"gpus": gpus} if gpus else {}), **found.fields})


def _configured(launch: Launch, context: Context) -> ImportedJob:
    path, words = launch.option(_FILE), launch.words
    if path is not None:
        file = launch.file(path, context)
        if file is None:
            said = f"{path}, which --job.config_file names, is not here; give that file too"
            return ImportedJob(missing=(said,))
        if file.document is None:
            raise BadRequest(f"{path}: no TOML, which --job.config_file takes")
        return torchtitan_job(overridden(file.document, words))
    module, name = launch.option("module") or "", launch.option("config") or ""
    places = (f"{module.rpartition('.')[2]}.py", f"torchtitan/models/{module}/config_registry.py", "config_registry.py")
    for place in places:
        file = context.find(place)
        if file is not None and name in functions(file.text):
            return _of_function(file.text, name, words)
    said = f"the function {name} of {module}, which --config names, is in no file here; give its config_registry.py"
    return ImportedJob(missing=(said,))


READERS: Final = (
    DocumentReader("torchtitan", "a configuration of torchtitan", "torchtitan", _recognises, _read),
    CommandReader("torchtitan", "a command line of torchtitan", "torchtitan", _starts, _read_command),
)
