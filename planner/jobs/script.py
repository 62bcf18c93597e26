"""The job of a shell script: its launches, which is meant, what depends on values that nobody said; its comments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from planner.errors import BadRequest, MeshwrightError
from planner.jobs.imported import ImportedJob, sentences
from planner.jobs.reader import CommandReader, Context, JobFile, Launch, Reader
from planner.jobs.shell import Script, read_script
from planner.jobs.shell.launches import starts_training
from planner.jobs.shell.parsing import parsed
from planner.jobs.shell.script import WARNING, expand

_SHOWN: Final = 60
"""Characters of a command line in a list of several."""
_FEW: Final = 3
"""Values that a script does not say with which its launches are listed too."""
_GPUS: Final = "gpus"
_TRIED: Final = ("8", "16")
"""Two values in the place of what is not known: what differs between them depends on it."""
_ONLY_OPTIONS: Final = "train.py"
"""A program for the options of a file that has nothing else."""
_LARGEST: Final = 2**20
"""Bytes of a script that another one runs."""


class Started(NamedTuple):
    """A launch, and the reader of its program."""

    launch: Launch
    reader: CommandReader


class JobOfScript(NamedTuple):
    """What the launch of a script that is meant asks for, by its program's reader; else what must be said first."""

    job: ImportedJob
    reader: CommandReader
    line: int | None = None


def job_of_script(file: JobFile, context: Context, readers: Sequence[Reader]) -> JobOfScript | None:
    """What the training that a script starts asks for; None where it starts none that is known here."""
    script = script_of(file, context)
    known = started(script, readers)
    if not known:
        return None
    beside = ImportedJob(
        assumed=script.assumed, remarks=(*script.unread, *script.wanted, *((WARNING,) if context.expand else ()))
    )
    if context.launch is None and len(known) > 1:
        asked = tuple(f"{one.option or 'its value'} ({one.reason})" for one in script.needs)
        listed = _several(known) if len(asked) <= _FEW else ()  # each launch would repeat all that is asked for
        return JobOfScript(replace(beside, missing=(*asked, *listed)), known[0].reader)
    one = _chosen(known, context.launch)
    if arms := one.launch.when if len(known) == 1 else ():
        only = f"line {one.launch.line} trains where {', '.join(arms)}, which is assumed: nothing else trains"
        beside = replace(beside, assumed=(*beside.assumed, only))
    job = _read(one, context)
    joined = replace(job, assumed=(*beside.assumed, *job.assumed), remarks=(*beside.remarks, *job.remarks))
    return JobOfScript(joined, one.reader, one.launch.line)


def script_of(file: JobFile, context: Context) -> Script:
    """What a script starts, with the scripts in its folder that it runs or sources."""
    files = (_beside(file) if context.disk else {}) | {str(one.path): one.text for one in context.files}
    given: dict[str, Any] = {"environment": context.environment, "arguments": context.arguments}
    given |= {"files": files, "name": str(file.path)}
    if context.expand:
        return expand(file.text, **given)
    found = read_script(file.text, **given)
    if found.launches:
        return found
    text = _with_program(file.text)
    starts = lambda words: words[0] == _ONLY_OPTIONS or starts_training(words)  # noqa: E731
    return read_script(text, **given, starts=starts) if text else found


def _beside(file: JobFile) -> dict[str, str]:
    """The small files in the folder of a script whose names it has."""
    folder = file.path.parent
    if not folder.is_dir():
        return {}
    named = [one for one in folder.iterdir() if one.name in file.text and one != file.path and one.is_file()]
    found = {}
    for one in named:
        with suppress(OSError, UnicodeDecodeError):
            if one.stat().st_size <= _LARGEST:
                found[one.name] = one.read_text(encoding="utf-8")
    return found


def _with_program(text: str) -> str:
    """A file of nothing but options, or of variables that hold them, as a script; empty where it is neither."""
    if text.lstrip().startswith("--"):
        return f"{_ONLY_OPTIONS} {text}"
    names = []
    for node in parsed(text).children:
        if node.type not in {"variable_assignment", "comment", "declaration_command", "\n"}:
            return ""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and value is not None and b"--" in (value.text or b""):
            word = (name.text or b"").decode()
            names.append(f'"${{{word}[@]}}"' if value.type == "array" else f"${word}")
    return f"{text}\n{_ONLY_OPTIONS} {' '.join(names)}\n" if names else ""


def started(script: Script, readers: Sequence[Reader]) -> tuple[Started, ...]:
    """The launches of a script that start a training that is known here, each once."""
    of_lines = [one for one in readers if isinstance(one, CommandReader)]
    found = {
        (launch.words, launch.when): Started(launch, reader)
        for launch in reversed(script.launches)
        if (reader := next((one for one in of_lines if one.recognises(launch)), None))
    }
    return tuple(sorted(found.values(), key=lambda one: one.launch.line))


def _several(known: Sequence[Started]) -> tuple[str, ...]:
    """That there are several launches, with each."""
    if len(known) < 2:
        return ()
    lines = []
    for place, launch in enumerate((one.launch for one in known), 1):
        arms = f" where {', '.join(launch.when)}" if launch.when else ""
        lines.append(f"{place}: line {launch.line}{arms} {shlex.join(launch.words):.{_SHOWN}}")
    return (f"it starts {len(known)} trainings ({'; '.join(lines)}); --launch N chooses one",)


def _chosen(known: Sequence[Started], number: int | None) -> Started:
    """The launch that is meant."""
    if number is not None and number > len(known):
        said = _several(known) or ("it starts only one training; leave --launch out",)
        raise BadRequest(f"there is no launch {number}: {said[0]}")
    return known[(number or 1) - 1]


def _read(one: Started, context: Context) -> ImportedJob:
    """A launch, read; of what depends on values that are not known, what they are and how they are said."""
    launch, read = one.launch, one.reader.read
    around = [word for words in launch.outer for word in words]
    texts = (*launch.words, *around, *launch.written.values(), *launch.environment.values())
    unknown = {text: option for text, option in launch.unknown.items() if any(text in word for word in texts)}
    if not unknown:
        return read(launch, context)
    usual = dict.fromkeys(unknown, _TRIED[0])
    base = _tried(read, launch, context, usual)
    if base is None:
        return _refused(read, launch, context, unknown)
    missing, unsaid, doubtful, said = [], dict(base.unsaid), set[str](), sentences([base])
    length = base.length
    for text, option in unknown.items():
        other = _tried(read, launch, context, usual | {text: _TRIED[1]})
        depends = _differing(base, other)
        others = sentences([other] if other else [])
        said = {name: tuple(_as_written(line, others[name], text) for line in lines) for name, lines in said.items()}
        length = length if other is not None and other.length == base.length else None
        if depends == {_GPUS}:  # which an option says as well
            unsaid[_GPUS] = f"gpus depends on {text}; give {option or 'its value'} or --gpus"
            doubtful |= depends
        elif depends:
            names = ", ".join(name.removeprefix("pins.") for name in sorted(depends) if name) or "what it asks for"
            missing.append(f"{option or 'its value'}: {names} depends on {text}")
            doubtful |= depends
    base = replace(base, length=length, **said)
    if not doubtful:
        return base
    return replace(
        base,
        unsaid=unsaid,
        fields={name: value for name, value in base.fields.items() if name not in doubtful},
        pins={name: value for name, value in base.pins.items() if f"pins.{name}" not in doubtful},
        layers=None if "layers" in doubtful else base.layers,
        lacks="" if "model" in doubtful else base.lacks,
        missing=(*base.missing, *missing),
    )


def _as_written(line: str, others: Sequence[str], text: str) -> str:
    """A sentence with what is not known as the script has it, in the place of the value that was tried for it."""
    if line in others:
        return line
    usual, other = _TRIED
    places = (found.start() for found in re.finditer(usual, line))
    pairs = ((line[:at], line[at + len(usual) :]) for at in places)
    return next((f"{front}{text}{rest}" for front, rest in pairs if f"{front}{other}{rest}" in others), line)


def _tried(
    read: Callable[[Launch, Context], ImportedJob], launch: Launch, context: Context, values: Mapping[str, str]
) -> ImportedJob | None:
    """A launch with values in the places of what is not known; None where it is refused with them."""

    def filled(text: str) -> str:
        for unknown, value in values.items():
            text = text.replace(unknown, value)
        return text

    known = replace(
        launch,
        words=tuple(map(filled, launch.words)),
        written={filled(path): filled(text) for path, text in launch.written.items()},
        environment={name: filled(value) for name, value in launch.environment.items()},
        outer=tuple(tuple(map(filled, words)) for words in launch.outer),
        unknown={},
    )
    try:
        return read(known, context)
    except MeshwrightError:
        return None


def _differing(one: ImportedJob, other: ImportedJob | None) -> set[str]:
    """Names of what two jobs do not agree on; one without a name where the other is refused."""
    if other is None:
        return {""}
    pairs = [(f"pins.{name}", one.pins.get(name), other.pins.get(name)) for name in {*one.pins, *other.pins}]
    pairs += [(name, one.fields.get(name), other.fields.get(name)) for name in {*one.fields, *other.fields}]
    pairs += [("layers", one.layers, other.layers), ("tokens", one.length, other.length)]
    pairs += [("model", one.lacks, other.lacks)]
    return {name for name, mine, theirs in pairs if mine != theirs}


def _refused(
    read: Callable[[Launch, Context], ImportedJob], launch: Launch, context: Context, unknown: Mapping[str, str]
) -> ImportedJob:
    """What a launch is refused for as it stands: the values that are not known, where they are to blame."""
    try:
        return read(launch, context)
    except MeshwrightError as error:
        blamed = [f"{option}: {text} is not known" for text, option in unknown.items() if option]
        if not any(text in str(error) or "$" in str(error) for text in unknown):
            raise
        return ImportedJob(missing=tuple(blamed))


_COMMENT: Final = re.compile(r"^[ \t]*#(?!!)[ \t]*(?P<said>.*)$", re.MULTILINE)
_FIGURE: Final = re.compile(
    r"\d\s*(?:s/it|it/s|iter/s)\b|(?:s/it|it/s|iter/s)\)?\s*[:=]\s*\d"
    r"|\b\d+\s*\*\s*[\d.]+\s*Gi?B\b|\d\s*Gi?B GPU memory",
    re.IGNORECASE,
)
"""A time of an iteration, or so many devices with so much memory each: "8 * 80GiB, 3.2s/it"."""
_LONGEST: Final = 80


def figures_in(text: str) -> Iterator[str]:
    """A remark for every comment of a script that has such figures."""
    for found in _COMMENT.finditer(text):
        if _FIGURE.search(found["said"]):
            line = text.count("\n", 0, found.start("said")) + 1
            said = found["said"].strip()
            yield f'line {line} says of a run: "{said:.{_LONGEST}}"; it is not compared with the prediction'
