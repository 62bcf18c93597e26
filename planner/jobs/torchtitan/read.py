"""torchtitan's TOML, Python configurations and command lines as the same tables, each by its reader.

Functions of a registry are read by their syntax, never run. A function makes a ``Trainer.Config(training=...)``, or
takes another one's, sets some of its fields and returns it. What is no constant stays unknown and is named.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import prod
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.lines import table_in
from planner.jobs.logs.tables import Findings, log_reader, made_job
from planner.jobs.options import Options, applicable, present
from planner.jobs.python_text import dotted, program_of, value_of
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.shell.processes import processes
from planner.jobs.torchtitan.options import MODELS, OPTIONS
from planner.jobs.torchtitan.settings import torchtitan_job
from planner.jobs.values import data

_TABLES: Final = ("training", "parallelism", "compile", "optimizer", "activation_checkpoint")
_POLICIES, _CONVERTERS = (data("torchtitan/words")[name] for name in ("policies", "converters"))
_DEPTH: Final = 8
"""Functions that take one another's configuration."""


@dataclass
class Configuration:
    """What a function makes.

    Attributes:
        tables: of the configuration.
        model: name of the function that began it, and the flavor that it asks the registry of models for.
        dispatch: what exchanges tokens with experts, which the registry of models is asked for.
        unknown: fields whose value is no constant.
    """

    tables: dict[str, Any] = field(default_factory=dict)
    model: tuple[str, str] = ("", "")
    dispatch: str = ""
    unknown: list[str] = field(default_factory=list)


def functions(text: str) -> dict[str, ast.FunctionDef]:
    """The functions of a file that make a configuration, by name.

    Those that only take one, as ``apply(config)`` does, are none.
    """
    found = {one.name: one for one in program_of(text).body if isinstance(one, ast.FunctionDef)}
    return {name: one for name, one in found.items() if _makes(one, found)}


def _makes(function: ast.FunctionDef, others: Mapping[str, ast.FunctionDef], depth: int = 0) -> bool:
    """Whether a function returns a Trainer.Config, of its own or another one's."""
    if function.args.args or depth > _DEPTH:
        return False
    called = [dotted(one.func) for one in ast.walk(function) if isinstance(one, ast.Call)]
    if any(name.endswith("Trainer.Config") for name in called):
        return True
    return any(name in others and name != function.name and _makes(others[name], others, depth + 1) for name in called)


def configuration(text: str, name: str) -> Configuration:
    """What a function of a file makes, by name."""
    made = _made(functions(text), name, 0)
    made.tables.setdefault("model", {}).update(_family(made.model))
    if made.dispatch:
        made.tables.setdefault("parallelism", {})["expert_parallel_comm_backend"] = made.dispatch
    return made


def _made(known: Mapping[str, ast.FunctionDef], name: str, depth: int) -> Configuration:
    found, variables, constants = Configuration(), dict[str, ast.expr](), dict[str, Any]()
    for statement in known[name].body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            target = dotted(targets[0]) if targets[0] else ""
            began = _beginning(statement.value, known, name, depth)
            if began is not None:
                found = began
            elif target.startswith("config."):
                _set(found, target.removeprefix("config."), statement.value, constants)
            elif target and "." not in target:
                variables[target], constants[target] = statement.value, value_of(statement.value, {})
    for variable in variables.values():
        _flavor(found, variable)
    return found


def _beginning(value: ast.expr, known: Mapping[str, ast.FunctionDef], own: str, depth: int) -> Configuration | None:
    """A configuration that begins here: one that is made, or another function's."""
    if not isinstance(value, ast.Call):
        return None
    called = dotted(value.func)
    if called in known and called != own and depth < _DEPTH:
        return _made(known, called, depth + 1)
    if not called.endswith("Trainer.Config"):
        return None
    found = Configuration(model=(own, ""))
    for one in value.keywords:
        _set(found, one.arg or "", one.value, {})
        _flavor(found, one.value)
    return found


def _flavor(found: Configuration, value: ast.expr) -> None:
    """The size that the registry of models is asked for, and the products that it makes narrow."""
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and dotted(call.func).endswith("model_registry"):
            if call.args and isinstance(call.args[0], ast.Constant):
                found.model = (found.model[0], str(call.args[0].value))
            used = [dotted(one.func).partition(".")[0] for one in ast.walk(call) if isinstance(one, ast.Call)]
            converters = [_CONVERTERS.get(one, one) for one in used if one.endswith("Converter")]
            backend = next((one.value for one in call.keywords if one.arg == "moe_comm_backend"), None)
            if isinstance(backend, ast.Constant):
                found.dispatch = str(backend.value)
            if converters:
                found.tables.setdefault("model", {})["converters"] = converters


def _set(found: Configuration, path: str, value: ast.expr, constants: Mapping[str, Any]) -> None:
    """A field, or a whole table, of a configuration."""
    table, _, key = path.partition(".")
    if table == "activation_checkpoint" and not key:
        found.tables[table] = {"mode": _policy(value)} | _arguments(found, table, value, constants)
    elif table == "model_spec":
        _flavor(found, value)
    elif table in _TABLES and not key:
        found.tables[table] = _arguments(found, table, value, constants)
    elif table in _TABLES and "." not in key:
        _put(found, table, key, value, constants)


def _policy(value: ast.expr) -> str:
    """How activations are kept: None, FullAC.Config(), SelectiveAC.Config()."""
    if isinstance(value, ast.Constant) and value.value is None:
        return "none"
    name = dotted(value.func) if isinstance(value, ast.Call) else ""
    return next((mode for policy, mode in _POLICIES.items() if policy in name), "selective")


def _arguments(found: Configuration, table: str, value: ast.expr, constants: Mapping[str, Any]) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for one in value.keywords if isinstance(value, ast.Call) else ():
        constant = value_of(one.value, constants)
        if constant is not None and constant is not ...:
            held[one.arg or ""] = constant
        elif constant is ... and table in {"training", "parallelism", "compile"}:
            found.unknown.append(f"{table}.{one.arg}")
    return held


def _put(found: Configuration, table: str, key: str, value: ast.expr, constants: Mapping[str, Any]) -> None:
    constant = value_of(value, constants)
    held = found.tables.setdefault(table, {})
    if constant is not None and constant is not ...:
        held[key] = constant
    else:
        held.pop(key, None)
        found.unknown += [f"{table}.{key}"] if constant is ... else []


def _family(model: tuple[str, str]) -> dict[str, str]:
    """Name and flavor of a model by the function that makes it, such as ``llama3_8b``."""
    function, flavor = model
    name = re.match(r"(?:[a-z]+_)?[a-z]+_?\d*?(?=_|$)", function)
    family = next((one for one in _FAMILIES if re.search(rf"(?:^|_){one}_", function)), name[0] if name else function)
    return {"name": family, "flavor": flavor} if flavor else {}


_FAMILIES: Final = ("llama3", "llama4", "deepseek_v3", "qwen3", "gpt_oss", "llama2")


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


_AXES: Final[tuple[str, ...]] = ("tp", "cp", "pp")
_SHARES: Final = ("dp_shard", "dp_replicate", "dp", *_AXES)
"""Dimensions of the mesh that it prints; the others are made of these."""


def _of_log(findings: Findings, _: JobFile, __: Context) -> ImportedJob:
    """The job of the configuration behind "Running with args:", where there is one, and of lines at the start."""
    text = findings.start.table
    found = table_in(text, longest=len(text)) or {}
    own = bool({"parallelism", "training"} & set(found))
    made = made_job(lambda: torchtitan_job(found) if own else ImportedJob(), "configuration that it prints does")
    return _with_facts(made, findings.start.said)


def _with_facts(job: ImportedJob, said: Mapping[str, str]) -> ImportedJob:
    """A job with what lines at the start say and the configuration does not."""
    named = (said.get("model", ""), said.get("flavor", ""))
    model = next((known for known, flavor in MODELS.items() if flavor == named), None)
    degrees = _degrees(said)
    batch, length, local = (
        next(iter(_whole(said.get(name, ""))), None) for name in ("global_batch_size", "seq_len", "local_batch_size")
    )
    gpus = prod(degrees.get(name, 1) for name in _SHARES) if degrees else None
    fields = present(model=model, gpus=gpus, global_batch_size=batch, seq_length=length)
    pins = {axis: degrees[axis] for axis in _AXES if axis in degrees}
    staged = degrees.get("pp", 1) > 1
    pins |= {"micro_batch_size": 1 if staged else local} if local is not None and degrees else {}
    pins |= _shared(degrees)
    assumed = {
        "the mesh says over how many ranks states are shared; parameters are gathered for every pass, as usual": (
            pins.get("zero_stage") == SHARDED_PARAMETERS and "zero_stage" not in job.pins
        ),
        "micro-batches of one sequence are priced, as torchtitan's pipelines have them": (
            staged and "micro_batch_size" in pins and "micro_batch_size" not in job.pins
        ),
    }
    named_one = f"{named[0]} {named[1]} is not known; give another one with --model" if all(named) and not model else ""
    sentences, lacks = (*job.assumed, *applicable(assumed)), job.lacks or named_one
    return replace(job, fields={**fields, **job.fields}, pins={**pins, **job.pins}, assumed=sentences, lacks=lacks)


def _shared(degrees: Mapping[str, int]) -> dict[str, int]:
    """What FSDP shards, of whose ranks those of a sequence are a part; the oldest meshes do not say whether it does."""
    if not degrees or "dp" in degrees:
        return {}
    ranks = degrees.get("dp_shard", 1) * degrees.get("cp", 1)
    if ranks == 1:
        return {"zero_stage": 0}
    return {"zero_stage": 1 if degrees.get("pp", 1) > 1 else SHARDED_PARAMETERS, "sharding_degree": ranks}


def _degrees(said: Mapping[str, str]) -> dict[str, int]:
    """The dimensions of the mesh with their sizes, as older and newer versions print them."""
    pairs = re.findall(r"(\w+)=(\d+)", said.get("parallelism", ""))
    named = {name: int(size) for name, size in pairs}
    return named or dict(zip(re.findall(r"\w+", said.get("mesh", "")), _whole(said.get("degrees", "")), strict=False))


def _whole(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _seen(findings: Findings) -> list[str]:
    """What the log says of the machine and no field takes as it is."""
    device = findings.start.said.get("device")
    return [f"the log names the device {device}; --cluster accepts that name"] if device else []


LOG: Final = log_reader("torchtitan", _of_log, aside=_seen)
