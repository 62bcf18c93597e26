"""The formats that `plan predict --from` reads, one line each, and what becomes of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from planner.errors import BadFile, BadRequest
from planner.jobs.deepspeed.read import deepspeed_job
from planner.jobs.given import Given, said
from planner.jobs.kinds import refusal
from planner.jobs.megatron.read import megatron_job
from planner.jobs.torchtitan.read import torchtitan_job

_Reader = Callable[[Path, Collection[str]], Given]


def _hugging_face(path: Path, _: Collection[str]) -> Given:
    return Given({"model": str(path)})


def _megatron(path: Path, known: Collection[str]) -> Given:
    return megatron_job(path.read_text(encoding="utf-8"), model_known="model" in known)


def _parsed(kind: str, parse: Callable[[str], Mapping[str, Any]], job: Callable[[Mapping[str, Any]], Given]) -> _Reader:
    def read(path: Path, _: Collection[str]) -> Given:
        text = path.read_text(encoding="utf-8")
        try:
            document = parse(text)
        except (ValueError, RecursionError) as error:
            raise BadFile(path, refusal(text, kind, str(error).splitlines()[0])) from None
        if not isinstance(document, Mapping):
            raise BadFile(path, "expected a table of fields")
        return job(document)

    return read


FORMATS: Final[Mapping[str, tuple[str | None, str | None, _Reader]]] = {
    "megatron-args": ("megatron-core", "megatron-lm", _megatron),
    "deepspeed": ("deepspeed", "deepspeed", _parsed("JSON", json.loads, deepspeed_job)),
    "torchtitan": ("torchtitan", "torchtitan", _parsed("TOML", tomllib.loads, torchtitan_job)),
    "hf": (None, None, _hugging_face),
}
"""Format to the stack that is priced unless another is asked for, the framework that reads it, and its reader.

What Hugging Face says is a model, of no framework in particular: the usual stack is priced, or that of ``--for``.
"""


def given(form: str, path: Path, *, known: Collection[str] = ()) -> Given:
    """What a file says, where the fields that are ``known`` are said elsewhere.

    Raises:
        BadFile: it is missing or unreadable.
        BadRequest: no such format, or nothing of it in the file.
    """
    if form not in FORMATS:
        raise BadRequest(f"--from: {form!r} is not read; {', '.join(FORMATS)} are")
    stack, framework, read = FORMATS[form]
    try:
        found = read(path, known)
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise BadFile(path, "not text in UTF-8") from None
    return replace(found, fields={**said(stack=stack), **found.fields}, framework=framework)
