"""The formats that `plan predict --from` reads, one line each, and what becomes of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from planner.errors import BadFile, BadRequest
from planner.intake.given import Given
from planner.intake.megatron import megatron_job
from planner.intake.others import deepspeed_job, torchtitan_job


def _hugging_face(path: Path) -> Given:
    return Given({"model": str(path)})


def _parsed(
    parse: Callable[[str], Mapping[str, Any]], job: Callable[[Mapping[str, Any]], Given]
) -> Callable[[Path], Given]:
    def read(path: Path) -> Given:
        try:
            document = parse(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise BadFile(path, str(error).splitlines()[0]) from None
        if not isinstance(document, Mapping):
            raise BadFile(path, "expected a table of fields")
        return job(document)

    return read


FORMATS: Final[Mapping[str, tuple[str, Callable[[Path], Given]]]] = {
    "megatron-args": ("megatron-core", lambda path: megatron_job(path.read_text(encoding="utf-8"))),
    "deepspeed": ("deepspeed", _parsed(json.loads, deepspeed_job)),
    "torchtitan": ("torchtitan", _parsed(tomllib.loads, torchtitan_job)),
    "hf": ("megatron-core", _hugging_face),
}
"""Format to the stack that is priced unless another is asked for, and its reader."""


def given(form: str, path: Path) -> Given:
    """What a file says.

    Raises:
        BadFile: it is missing or unreadable.
        BadRequest: no such format, or nothing of it in the file.
    """
    if form not in FORMATS:
        raise BadRequest(f"--from: {form!r} is not read; {', '.join(FORMATS)} are")
    stack, read = FORMATS[form]
    try:
        found = read(path)
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise BadFile(path, "not text in UTF-8") from None
    return Given({"stack": stack, **found.fields}, found.pins, found.layers, found.remarks)


def settled(fields: Mapping[str, Any], pins: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and pins with what follows from the number of GPUs: copies of states, and batches said in steps."""
    fields, pins = dict(fields), dict(pins)
    copies, steps = pins.pop("copies", 1), pins.pop("steps", 0)
    gpus = int(fields.get("gpus") or 0)
    ranks = gpus // (int(pins.get("tp", 1)) * int(pins.get("pp", 1)))
    if copies > 1 and gpus:
        pins["sharding_degree"] = ranks // copies
    if steps and gpus:
        fields["global_batch_size"] = ranks // int(pins.get("cp", 1)) * int(pins.get("micro_batch_size", 1)) * steps
    return fields, pins
