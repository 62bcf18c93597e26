"""What a file is, by its content: the readers that take it, or what it looks like where none does."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

from planner.errors import BadFile
from planner.jobs.reader import SYNTAXES, FileReader, JobFile, LogReader, Reader
from planner.jobs.values import program_of

_SHELL: Final = re.compile(
    r"\A#!.*\b(ba|z|k|da)?sh\b"
    r"|^[ \t]*([A-Z_]+=\S*[ \t]+)*(srun|torchrun|sbatch|python3?|bash|source|export|set|if \[+)\s"
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
        return f"{name} that does not parse: {str(error).splitlines()[0]}"
    return "" if isinstance(found, dict) else f"{name} without a table of fields"
