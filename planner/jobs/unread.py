"""Frameworks whose files are known by their content and not read: named, so that none is taken for another's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NoReturn

from planner.errors import BadRequest
from planner.jobs.data import data, words
from planner.jobs.reader import CommandReader, DocumentReader, JobFile, Launch, Reader
from planner.jobs.values import table_at

_SAY: Final = (
    "say its job by options: --model, --gpus, --global-batch-size, --seq-length, and --tp, --pp, --zero of its strategy"
)


def _readers(title: str, *, program: str = "", keys: str = "", text: str = "") -> Iterator[Reader]:
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
        raise BadRequest(f"{title} is known and not read; {_SAY}")

    yield DocumentReader("", f"a file of {title}", "", is_file, refuse)
    if program:
        yield CommandReader("", f"a command line of {title}", "", is_command, refuse)


READERS: Final = tuple(reader for title, row in data("unread").items() for reader in _readers(title, **row))
"""In front of all others, whose options some of these have too."""
