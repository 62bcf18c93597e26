"""What a framework's folder says of the files that it reads: how they are recognised and what makes a job of them.

A file is a document (JSON, TOML, YAML, Python), a log, or a shell script. A script is evaluated first
(``planner.jobs.shell``); each command line that starts a training is then given to the framework whose program it is.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TextIO, cast

from hardware.errors import BadFile
from hardware.files import LARGEST, parse_toml, reading, refuse_pipe
from planner.jobs.imported import ImportedJob
from planner.jobs.values import put
from planner.jobs.yaml_text import parse_yaml, yaml_value

SYNTAXES: Final[Mapping[str, Callable[[str], Any]]] = {"JSON": json.loads, "TOML": parse_toml, "YAML": parse_yaml}
"""What parses a table: every one raises a ValueError where it does not."""
_UPWARDS: Final = 3
"""Folders above a script in which it may be started."""
_LONGEST_YAML: Final = 2**20
"""Characters; what is longer is a log or data, and YAML's parser takes its time over them."""


@dataclass(frozen=True)
class JobFile:
    """A file of a job.

    Attributes:
        path: where it lies, as the user or another file names it.
        text: what it holds; of a long log its beginning.
        whole: whether that is all of it.
        devices: the accelerators, any of them, that a scheduler's file asks for, in the scheduler's words.
    """

    path: Path
    text: str
    whole: bool = True
    devices: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Its lines, one at a time, to the end of the file."""
        if self.whole:
            yield from self.text.splitlines()
            return
        with _opened(self.path) as lines:
            yield from iter(lambda: lines.readline(LARGEST), "")

    @cached_property
    def document(self) -> Mapping[str, Any] | None:
        """The table that it holds as JSON, TOML or YAML; None where it is none of these."""
        return self._parsed[1]

    @property
    def syntax(self) -> str:
        """JSON, TOML or YAML where it holds a table, else nothing."""
        return self._parsed[0]

    @cached_property
    def _parsed(self) -> tuple[str, Mapping[str, Any] | None]:
        for name, parse in SYNTAXES.items():
            if not self.text.strip() or (name == "YAML" and len(self.text) > _LONGEST_YAML):
                continue
            try:
                found = parse(self.text)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, Mapping):
                return name, found
        return "", None


def job_file(path: Path) -> JobFile:
    """A file from disk, also one packed by gzip; of a log that is longer than any description its beginning.

    Raises:
        BadFile: it is missing, a folder, or no text.
    """
    with reading(path):
        try:
            with _opened(path) as lines:
                text = lines.read(LARGEST)
                whole = not lines.read(1)
        except (EOFError, gzip.BadGzipFile):
            raise BadFile(path, "not a gzip file, though its name says so") from None
    if "\0" in text or text.count(_NO_TEXT) * _RARE > len(text):
        raise BadFile(path, "not a text file in UTF-8")
    return JobFile(path, text, whole)


def _opened(path: Path) -> TextIO:
    """The text of a file, unpacked; what a cut leaves of a character in a log stands as a mark of it."""
    refuse_pipe(path)
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, "rt", encoding="utf-8-sig", errors="replace"))
    return path.open(encoding="utf-8-sig", errors="replace")


_NO_TEXT: Final = "\N{REPLACEMENT CHARACTER}"
_RARE: Final = 1000
"""Characters of a log among which one may be broken."""


@dataclass(frozen=True)
class Launch:
    """One command line that a script runs, evaluated.

    Attributes:
        words: program and arguments, after variables, quoting and splitting.
        line: of the script, counted from 1.
        written: files that the script itself writes before it (here-documents), by path.
        environment: variables that are set for it.
        unknown: parts of words, files and variables that the script does not say, as they stand there (``${NNODES}``),
            and how the user can (``--env NNODES=VALUE``).
        when: the arms of branches in which it runs, where that is not known.
        outer: commands around it, such as ``srun`` with its options, from the outermost on.
    """

    words: tuple[str, ...]
    line: int = 1
    written: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    when: tuple[str, ...] = ()
    outer: tuple[tuple[str, ...], ...] = ()

    def file(self, name: str, context: Context) -> JobFile | None:
        """The file that it names: as the script itself writes it, else as the context has it."""
        written = self.written.get(name)
        return context.find(name) if written is None else JobFile(Path(name), written)

    def option(self, *names: str) -> str | None:
        """The value of the first of some options that it has, ``--name VALUE`` or ``--name=VALUE``."""
        for place, word in enumerate(self.words):
            name, sign, value = word.removeprefix("--").partition("=")
            if word.startswith("--") and name.replace("-", "_") in names:
                return value if sign else next(iter(self.words[place + 1 : place + 2]), None)
        return None


@dataclass(frozen=True)
class Context:
    """What is known in addition to a file.

    Attributes:
        known: fields of the request that are given elsewhere, such as ``model``.
        files: the other files of the same job.
        environment: variables of the user's shell that the user gave (``--env``).
        arguments: of the script (``--arg``).
        launch: which of several launches is meant, counted from 1; None where nobody said.
        expand: whether a script's own code may be run, its programs replaced by recorders.
        folder: where the file lies; what it names is looked for there, and in the folders above, where scripts are run.
        disk: whether what files name is looked for on this machine, after the files of the job.
        opened: the files that others named and that were read with them, in that order.
    """

    known: Collection[str] = ()
    files: tuple[JobFile, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    launch: int | None = None
    expand: bool = False
    folder: Path | None = None
    disk: bool = True
    opened: dict[Path, JobFile] = field(default_factory=dict)

    def holding(self, key: str) -> JobFile | None:
        """The file of the job whose table has a name, where one has it; it counts as read with the one that asks."""
        found = next((file for file in self.files if file.document and key in file.document), None)
        if found is not None:
            self.opened.setdefault(found.path, found)
        return found

    def find(self, name: str, beside: Path | None = None) -> JobFile | None:
        """The file that another file names: one of the job's, by its whole path or its last part, else one on disk.

        Relative names begin in the working directory, in the end ``beside`` the other file.
        """
        wanted = Path(name)
        for one in self.files:
            if one.path == wanted or one.path.name == wanted.name:
                return self.opened.setdefault(one.path, one)
        if not self.disk:
            return None
        folders = [beside.parent] if beside else []
        folders += [self.folder, *self.folder.parents[:_UPWARDS]] if self.folder else []
        for place in (wanted, *(folder / wanted for folder in folders)):
            if place.is_file():
                return self.opened.get(place) or self.opened.setdefault(place, job_file(place))
        return None


@dataclass(frozen=True)
class _Kind:
    """A kind of file or of command line.

    Attributes:
        form: the kind's name, as ``--from`` takes it.
        title: what a person calls it.
        framework: name of the exporter's framework whose stack is priced, "" where nothing says one.
    """

    form: str
    title: str
    framework: str


@dataclass(frozen=True)
class FileReader(_Kind):
    """Reads a kind of file, which is known by its content alone."""

    recognises: Callable[[JobFile], bool]
    read: Callable[[JobFile, Context], ImportedJob]


class DocumentReader(FileReader):
    """Reads a kind of document."""


def reader_of_tables(
    form: str,
    title: str,
    framework: str,
    knows: Callable[[Mapping[str, Any]], bool],
    read: Callable[[Mapping[str, Any], Context], ImportedJob],
) -> DocumentReader:
    """The reader of a kind of table, whatever file it stands in; arguments as of ``FileReader``."""
    return DocumentReader(
        form, title, framework,
        lambda file: knows(file.document or {}), lambda file, context: read(file.document or {}, context),
    )  # fmt: skip


class LogReader(FileReader):
    """Reads what a run printed: the job as far as the log says it, with what was ``measured``."""


@dataclass(frozen=True)
class CommandReader(_Kind):
    """Reads the command lines of a program, which are known by program, module or options."""

    recognises: Callable[[Launch], bool]
    read: Callable[[Launch, Context], ImportedJob]


Reader = FileReader | CommandReader
"""What a framework's folder exports, as a tuple ``READERS`` in its ``read.py``."""


def not_here(name: object, what: str = "has the options") -> str:
    """That a file is needed which another one names."""
    return f"{name} {what}, but is not here; give that file too"


def configured(
    launch: Launch, context: Context, name: str, pairs: Mapping[str, str], job: Callable[[dict[str, Any]], ImportedJob]
) -> ImportedJob:
    """The job of the file that a command line names with its overrides, or that the file is missing.

    Overrides (``path=value``, values as YAML's) stand above the file; without a name they are all.
    """
    file = launch.file(name, context) if name else None
    if name and (file is None or file.document is None):
        return ImportedJob(missing=(not_here(name),))
    made: dict[str, Any] = {**((file.document if file else None) or {})}
    for path, text in pairs.items():
        put(made, path.split("."), yaml_value(text))
    return job(made)
