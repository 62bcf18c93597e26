"""Every reader of files, and the job of a file whose kind is said."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from hardware.files import read_text
from planner.errors import BadFile, BadRequest
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.accelerate import read as accelerate
from planner.jobs.deepspeed import read as deepspeed
from planner.jobs.imported import ImportedJob
from planner.jobs.maxtext import read as maxtext
from planner.jobs.megatron import read as megatron
from planner.jobs.nanotron import read as nanotron
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Reader
from planner.jobs.recognise import is_script, looks_like, readers_of
from planner.jobs.script import launches
from planner.jobs.torchtitan import read as torchtitan

READERS: Final[list[Reader]] = [
    *megatron.READERS,
    *deepspeed.READERS,
    *torchtitan.READERS,
    *accelerate.READERS,
    *nanotron.READERS,
    *maxtext.READERS,
]
"""Those of every framework; the first of a form is the usual one."""
HF: Final = "hf"


def forms() -> tuple[str, ...]:
    """The kinds of files, as ``--from`` takes them."""
    return tuple(dict.fromkeys([*(reader.form for reader in READERS), HF]))


def import_job(form: str, path: Path, *, known: Collection[str] = ()) -> ImportedJob:
    """What a file says, where the fields that are ``known`` are given elsewhere.

    Its framework's stack is priced unless another is asked for. What Hugging Face says is a model, of no framework.

    Raises:
        BadFile: it is missing or unreadable.
        BadRequest: no such format, or nothing of it in the file.
    """
    if form not in forms():
        raise BadRequest(f"--from: {form!r} is not read; {', '.join(forms())} are")
    if form == HF:
        return ImportedJob({"model": str(path)})
    file, context = JobFile(path, read_text(path)), Context(known=known)
    found, reader = _read(file, form, context)
    if not reader.framework:
        return found
    fields = {"stack": FRAMEWORKS[reader.framework].stack, **found.fields}
    return replace(found, fields=fields, framework=reader.framework)


def _read(file: JobFile, form: str, context: Context) -> tuple[ImportedJob, DocumentReader | CommandReader]:
    """What the reader of a kind makes of a file.

    Raises:
        BadFile: the file is of another kind.
    """
    of_form = [one for one in READERS if one.form == form]
    for one in of_form:
        if isinstance(one, DocumentReader) and one.recognises(file):
            return one.read(file, context), one
    if other := readers_of(file, READERS):
        raise BadFile(file.path, f"it looks like {other[0].title}; leave --from out")
    for one in of_form:
        if isinstance(one, CommandReader) and file.document is None:
            return one.read(launches(file, context)[0], context), one
    if is_script(file):
        launch = launches(file, context)[0]
        known = [one for one in READERS if isinstance(one, CommandReader) and one.recognises(launch)]
        if known:
            raise BadFile(file.path, f"it looks like {known[0].title}; leave --from out")
    for one in of_form:
        if isinstance(one, DocumentReader) and file.document is not None:
            return one.read(file, context), one  # which says what it lacks
    raise BadFile(file.path, f"no {of_form[0].title.partition(' ')[2]}: it looks like {looks_like(file)}")
