"""Which field of a question an error is about, so that a form can say it there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from costmodels.stack.precision import PRECISIONS
from planner.errors import UnknownName
from planner.request.fields import FIELDS, own_name

_OPTION: Final = re.compile(r"--([a-z][a-z-]*)")
_WORD: Final = re.compile(r"[A-Za-z][\w-]*")
_KINDS: Final = {"model": "model", "cluster": "cluster", "accelerator": "cluster", "stack": "stack"}
_OTHER_WORDS: Final = {
    "GPU": "gpus", "GPUs": "gpus", "batch": "global_batch_size", **dict.fromkeys(PRECISIONS, "precision"),
}  # fmt: skip
"""What sentences say of a field in other words than its name."""
_ENGLISH: Final = frozenset({"changes", "loss", "model", "price", "stack", "task", "ties", "tokens", "top", "reasons"})
"""Names of fields that sentences have as plain words; they count at the beginning, before a colon."""


def field_of_error(error: Exception) -> str | None:
    """The field or the axis that an error is about; None where none is named.

    The error of a record says it; a sentence is about what it begins with, or the first option or field that it names.
    """
    if isinstance(error, UnknownName) and error.kind in _KINDS:
        return _KINDS[error.kind]
    if not isinstance(error, ValidationError):
        return next(_named(str(error)), None)
    first = error.errors(include_url=False)[0]
    place = str(first["loc"][0]) if first["loc"] else ""
    return place if place in FIELDS else next(_named(str(first["msg"])), place or None)


def _named(text: str) -> Iterator[str]:
    """Fields that a sentence names, the likeliest first; those that it offers in place of an unknown one are not."""
    text = text.partition(";")[0] if text.startswith("there is no field") else text
    begins = text.partition(":")[0]
    yield from (name for name in (begins,) if name in FIELDS)
    yield from (name for word in _OPTION.findall(text) if (name := own_name(word)) in FIELDS)
    words = _WORD.findall(text)
    yield from (word.lower() for word in words if word.lower() in FIELDS.keys() - _ENGLISH)
    yield from (_OTHER_WORDS[word] for word in words if word in _OTHER_WORDS)
