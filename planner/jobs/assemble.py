"""One job out of its files: each is recognised and read, what they say is joined, and who said what is kept."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from hardware.catalogue import cluster
from hardware.errors import not_parsed
from planner.errors import BadFile, BadRequest, MeshwrightError
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.imported import ImportedJob, sentences
from planner.jobs.python_text import program_of
from planner.jobs.reader import SYNTAXES, Context, DocumentReader, FileReader, JobFile, LogReader, Reader, job_file
from planner.jobs.script import figures_in, job_of_script, script_of, started
from planner.jobs.shell.tasks import scripted
from planner.jobs.values import data
from planner.request.fields import FIELDS

_SHELL: Final = re.compile(
    r"\A#!.*\b(ba|z|k|da)?sh\b"
    r"|^[ \t]*([A-Z_]+=\S*[ \t]+)*(srun|torchrun|sbatch|python3?|bash|source|export|set|if \[+)\s"
    r"|^[ \t]*[A-Z][A-Z0-9_]*=\S*[ \t]+[a-z./\\]"
    r"|(^|\s)--[a-z][\w-]+",
    re.MULTILINE,
)
_SIGNS: Final = {
    "TOML": re.compile(r"^[ \t]*\[[\w.\"-]+\]\s*(#.*)?$", re.MULTILINE),
    "JSON": re.compile(r"\A\s*[{\[]"),
    "YAML": re.compile(r"^[ \t]*[\w.-]+:(\s|$)", re.MULTILINE),
}
"""What a text has of a syntax that its parser refuses."""
_KEYS: Final = 4
_HEAD: Final = 2**16
"""Characters by which a script is known; a log of gigabytes need not be looked through."""


def readers_of(file: JobFile, readers: Sequence[Reader]) -> tuple[FileReader, ...]:
    """Those of documents and logs that take a file."""
    return tuple(one for one in readers if isinstance(one, FileReader) and one.recognises(file))


def kind(file: JobFile, readers: Sequence[Reader]) -> FileReader | None:
    """The reader of a document or a log; None where none takes it.

    What a run printed is a log, whatever table it prints. Where several take it, the one whose kind the file's name has
    is meant.

    Raises:
        BadFile: several take it, and its name says nothing.
    """
    every = readers_of(file, readers)
    found = tuple(one for one in every if isinstance(one, LogReader))[:1] or every
    if len({one.form for one in found}) > 1:
        name = file.path.name.lower()
        found = tuple(one for one in found if one.form in name) or found
        if len({one.form for one in found}) > 1:
            fits = " and ".join(dict.fromkeys(one.title for one in found))
            ways = " or ".join(f"--from {form}" for form in dict.fromkeys(one.form for one in found))
            raise BadFile(file.path, f"it looks like {fits}; choose one with {ways}")
    return found[0] if found else None


def looks_like(file: JobFile) -> str:
    """What a file that nobody reads looks like, in words that follow "it looks like" or stand alone."""
    if not file.text.strip():
        return "an empty file"
    if file.document is not None and not is_script(file):
        keys = ", ".join(f"{key!s:.30}" for key in list(file.document)[:_KEYS])
        return f"{file.syntax} of another kind" + (f", with {keys}" if keys else ", with nothing in it")
    if is_script(file):
        return "a script or a command line"
    if is_python(file):
        return "a Python program"
    return next((said for name in _SIGNS if (said := _broken(file, name))), "plain text")


def is_script(file: JobFile) -> bool:
    """Whether a text that is no document is a shell script or a command line; variables alone may be TOML too."""
    if not _SHELL.search(file.text, 0, _HEAD):
        return False
    variables = file.syntax == "TOML" and all(isinstance(one, str | int) for one in (file.document or {}).values())
    return (file.document is None or variables) and not is_python(file)


def is_python(file: JobFile) -> bool:
    """Whether a text is Python's: it parses and has a definition or an import."""
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    return any(isinstance(one, kinds) for one in program_of(file.text).body)


def _broken(file: JobFile, name: str) -> str:
    """That a text begins as one of a syntax, with what its parser says against it; nothing where it does not."""
    if not _SIGNS[name].search(file.text, 0, _HEAD):
        return ""
    try:
        found = SYNTAXES[name](file.text)
    except (ValueError, RecursionError) as error:
        return not_parsed(name, error, f"{name} that does not parse")
    return "" if isinstance(found, dict) else f"{name} without a table of fields"


Read = TypeVar("Read")
_WORDS: Final = 50
_TAKEN: Final = "give a launch script, a configuration, a model's config.json or a log"


@dataclass(frozen=True)
class Part:
    """A file of a job, and what it says.

    Attributes:
        file: the file.
        reader: of its kind.
        job: what it asks for; nothing of its own where another file named it and was read with it.
        line: of the launch that was read, of a script.
        run: of a log, the ``run/1`` document.
        named: whether another file named it, and nobody gave it.
    """

    file: JobFile
    reader: Reader
    job: ImportedJob | None
    line: int | None = None
    run: Mapping[str, Any] | None = None
    named: bool = False

    @property
    def title(self) -> str:
        """What the file is, and where in it the job stands."""
        where = f", line {self.line}" if self.line else ""
        return f"{self.reader.title}{where}" + ("" if self.job else ", read with the file that names it")


@dataclass(frozen=True)
class FilesOfJob:
    """The files of a job, joined.

    Attributes:
        parts: the files, as they were given, and then those that they name and that were read from disk.
        job: all that they say.
        run: the measured run, where one of them is a log or a run.
    """

    parts: tuple[Part, ...]
    job: ImportedJob
    run: Mapping[str, Any] | None = None

    @property
    def names(self) -> str:
        """The files that were given, in words."""
        return ", ".join(str(part.file.path) for part in self.parts if not part.named)


def read_files(
    given: Sequence[Path | JobFile], context: Context, readers: Sequence[Reader], form: str | None = None
) -> FilesOfJob:
    """The job of some files.

    Args:
        given: their paths, or what they hold.
        context: what else is known; its files are filled in.
        readers: of all kinds.
        form: the kind of the file, or of one of several, where somebody said it.

    Raises:
        BadFile: a file is missing or unreadable, or of another kind than somebody said.
        BadRequest: the files contradict each other, or one of them itself.
    """
    files = tuple(scripted(one if isinstance(one, JobFile) else job_file(one)) for one in given)
    context = replace(context, files=files, opened={})
    parts: dict[Path, Part] = {}
    for file in sorted(files, key=lambda file: not is_script(file)):  # scripts name other files
        others = replace(context, files=tuple(one for one in files if one is not file), folder=file.path.parent)
        parts[file.path] = _part(file, others, readers, form if len(files) == 1 else None)
    if form and all(part.reader.form != form for part in parts.values()):
        seen = "; ".join(f"{part.file.path} looks like {part.reader.title}" for part in parts.values())
        raise BadRequest(f"--from {form}: {seen}; leave --from out")
    found = tuple(
        replace(part, job=None)
        if part.file.path in context.opened and isinstance(part.reader, DocumentReader)
        else part
        for part in (parts[file.path] for file in files)
    )
    run = next((part.run for part in found if part.run is not None), None)
    job = _joined(found, context)
    every = {path: parts.get(path) or _named(file, context, readers) for path, file in context.opened.items()}
    origins = _own_files(job, found, [part for part in every.values() if part])
    listed = [replace(part, job=None) for part in every.values() if part and part.named]
    return FilesOfJob((*found, *listed), replace(job, origins=origins), run)


def _named(file: JobFile, context: Context, readers: Sequence[Reader]) -> Part | None:
    """A file that another one named, with what it says alone; None where no reader of documents knows it."""
    alone = replace(context, files=(), opened={}, folder=file.path.parent)
    try:
        reader = kind(file, [one for one in readers if isinstance(one, DocumentReader)])
        if isinstance(reader, DocumentReader):
            return Part(file, reader, _with_stack(reader.read(file, alone), reader), named=True)
    except MeshwrightError:  # it says too little, or contradicts itself, without the file that names it
        pass
    return None


def _own_files(job: ImportedJob, given: Sequence[Part], opened: Sequence[Part]) -> dict[str, str]:
    """The origins of a job's values; those that a file says which a given one names, or that file, are its own."""
    origins = dict(job.origins)
    naming = {str(part.file.path) for part in given if part.job is not None}
    values = _names(job)
    for part in (one for one in reversed(opened) if str(one.file.path) not in naming):
        alone = part.job or ImportedJob()
        for name, value in _names(alone).items():
            if origins.get(name) in naming and name not in alone.filled and values[name] == value:
                origins[name] = str(part.file.path)
    return origins


def _part(file: JobFile, context: Context, readers: Sequence[Reader], form: str | None) -> Part:
    """A file, read by the reader of its kind."""
    of_form = [one for one in readers if one.form == form] if form else list(readers)
    reader = kind(file, of_form)
    script = _own_words(file, lambda: job_of_script(file, context, of_form)) if not reader and is_script(file) else None
    if said := script:
        job = replace(said.job, remarks=(*said.job.remarks, *figures_in(file.text)))
        job = _on_devices(job, file.devices) if "cluster" not in {*job.fields, *context.known} else job
        return Part(file, said.reader, _with_stack(job, said.reader), line=said.line)
    if reader is None:
        raise BadFile(file.path, _refusal(file, context, readers, of_form if form else []))
    job = _own_words(file, lambda: reader.read(file, context))
    run = _run_of(job, file) if isinstance(reader, LogReader) else file.document if reader.form == "run" else None
    return Part(file, reader, _with_stack(job, reader), run=run)


def _on_devices(job: ImportedJob, kinds: Sequence[str]) -> ImportedJob:
    """A job on the usual machines of the one kind of accelerators that its scheduler is asked for."""
    if not kinds:
        return job
    named = {written: name for name, written in data("launchers/skypilot")["accelerators"].items()}
    try:
        (found,) = {cluster(named.get(kind, kind)).name for kind in kinds}
    except (ValueError, MeshwrightError):
        said = f"the file asks for {' or '.join(kinds):.60}; --cluster names the machines"
        return replace(job, missing=(*job.missing, said))
    said = f"{' or '.join(kinds):.60} is taken to be of {found}; --cluster changes it"
    return replace(job, fields={**job.fields, "cluster": found}, assumed=(*job.assumed, said))


def _refusal(file: JobFile, context: Context, readers: Sequence[Reader], of_form: Sequence[Reader]) -> str:
    """Why a file is not read: what it looks like, and what is read where that is another kind."""
    others = [one.title for one in readers_of(file, readers)]
    script = script_of(file, context) if is_script(file) else None
    if script:
        others += [one.reader.title for one in started(script, readers)]
    if others:
        return f"it looks like {others[0]}; leave --from out"
    wanted = f"no {of_form[0].title.removeprefix('a ')}: " if of_form else ""
    programs = [f"{shlex.join(one.words):.{_WORDS}} (line {one.line})" for one in script.launches] if script else []
    starts = f", which starts {programs[0]}, of an unknown framework" if programs else ""
    reasons = script.wanted if script and not programs else ()
    if script and not programs:
        starts = ", which starts no training" + (f": {reasons[-1]}" if reasons else "")
    taken = "" if of_form or programs or reasons else f"; {_TAKEN}"
    return f"{wanted}it looks like {looks_like(file)}{starts}{taken}"


def _own_words(file: JobFile, read: Callable[[], Read]) -> Read:
    """What a reader makes of a file, whose name stands in front of what it says against it."""
    try:
        return read()
    except BadFile:
        raise
    except MeshwrightError as error:
        text = str(error)
        raise BadRequest(text if text.startswith(str(file.path)) else f"{file.path}: {text}") from None


def _with_stack(job: ImportedJob, reader: Reader) -> ImportedJob:
    """A job whose stack is its framework's, where neither it nor anybody says another."""
    if not reader.framework:
        return job
    stack = FRAMEWORKS[reader.framework].stack
    filled = job.filled if "stack" in job.fields else job.filled | {"stack"}
    return replace(job, fields={"stack": stack, **job.fields}, framework=reader.framework, filled=filled)


def _run_of(job: ImportedJob, file: JobFile) -> Mapping[str, Any]:
    """The ``run/1`` document of a log, whose question is filled in once all files and options are known."""
    run = {"schema": "run/1", "id": file.path.name, "source": {"title": file.path.name, "where": str(file.path)}}
    run |= {"measured": dict(job.measured), "unread": list(job.lines)}
    return run | ({"suspect": True} if job.suspect else {})


def _names(job: ImportedJob) -> dict[str, Any]:
    """What a job says, changes of the stack and the model one by one."""
    plain = {name: value for name, value in job.fields.items() if name != "changes"}
    tables = {"pins": job.pins, "changes": job.fields.get("changes") or {}}
    return plain | {f"{table}.{name}": value for table, held in tables.items() for name, value in held.items()}


def _table(table: str, every: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    return {name.removeprefix(f"{table}."): one for name, (one, _) in every.items() if name.startswith(f"{table}.")}


def _joined(parts: Sequence[Part], context: Context) -> ImportedJob:
    """All that the files say."""
    said: dict[str, tuple[Any, str]] = {}
    filled: dict[str, tuple[Any, str]] = {}
    read = [(part, part.job) for part in parts if part.job is not None]
    against: list[str] = []
    for part, job in read:
        for name, value in _names(job).items():
            into = filled if name in job.filled else said
            if name not in into or _same(name, into[name][0], value):
                into[name] = (value, str(part.file.path))
            elif into is said and not {name, name.partition(".")[0]} & {*context.known} - {"pins"}:
                against.append(_contradiction(name, into[name], (value, str(part.file.path))))
    if against:
        raise BadRequest("; ".join(against))
    every = filled | said
    jobs = [job for _, job in read]
    fields = {name: value for name, (value, _) in every.items() if not name.startswith(("pins.", "changes."))}
    changes = _table("changes", every)
    origins = {name: origin for name, (_, origin) in every.items() if not name.startswith("changes.")}
    changed = {origin: None for name, (_, origin) in every.items() if name.startswith("changes.")}
    lacks = "" if "model" in every else next((job.lacks for job in jobs if job.lacks), "")
    common: dict[str, Any] = {
        name: next((found for job in jobs if (found := getattr(job, name))), None)
        for name in ("layers", "recomputed", "framework", "length")
    }
    return ImportedJob(
        fields=fields | ({"changes": changes} if changes else {}),
        pins=_table("pins", every),
        **common,
        **sentences(jobs),
        lacks=lacks,
        unsaid={name: line for job in jobs for name, line in job.unsaid.items() if name not in every},
        filled=frozenset(filled.keys() - said.keys()),
        origins=origins | ({"changes": ", ".join(changed)} if changed else {}),
        measured=next((job.measured for job in jobs if job.measured), {}),
        suspect=any(job.suspect for job in jobs),
    )


def _same(name: str, one: Any, other: Any) -> bool:
    """Whether two values mean the same; models may be named and described."""
    if one == other or str(one).lower() == str(other).lower():
        return True
    return name == "model" and _sizes(one) == _sizes(other)


def _sizes(model: Any) -> Any:
    """A model by its sizes, whatever it is called; itself where it is none."""
    from costmodels.model.catalogue import model as find_model
    from planner.request.tables import model_of

    try:
        found = model_of(model) if isinstance(model, Mapping) else find_model(str(model))
    except (MeshwrightError, ValueError):
        return model
    free = ("name", "title", "source", "published_parameters", "batch_tokens", "seq_length", "max_positions")
    return json.dumps({name: value for name, value in found.model_dump(mode="json").items() if name not in free})


def _contradiction(name: str, one: tuple[Any, str], other: tuple[Any, str]) -> str:
    plain = name.removeprefix("pins.").removeprefix("changes.")
    sides = " and ".join(f"{value!s:.{_WORDS}} by {path}" for value, path in (one, other))
    option = FIELDS[plain].words[0] if plain in FIELDS else f"set {plain}=..." if name.startswith("changes.") else plain
    return f"{plain} is {sides}; say which with --{option}"
