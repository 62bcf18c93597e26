"""The DeepSpeed configuration that a Megatron-DeepSpeed launch names, as options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from planner.jobs.megatron.dialect import Words
from planner.jobs.reader import Context, Launch


def deepspeed_words(given: Mapping[str, Sequence[str]], launch: Launch, context: Context) -> Words:
    """Stage, format and offloading that the file says; nothing where there is none, or it is no table.

    A script often writes the file itself, right in front of the launch.
    """
    name = next(iter(given.get("deepspeed-config", ())), "")
    if not name:
        return {}
    written = {PurePath(path).name: text for path, text in launch.written.items()}
    text = written.get(PurePath(name).name)
    if text is None and (file := context.find(name)):
        text = file.text
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return _options(document) if isinstance(document, dict) else {}


def _options(document: Mapping[str, Any]) -> Words:
    zero = document.get("zero_optimization")
    zero = zero if isinstance(zero, dict) else {}
    found: Words = {}
    if isinstance(stage := zero.get("stage"), int):
        found["zero-stage"] = [str(stage)]
    for name in ("bf16", "fp16"):
        part = document.get(name)
        if isinstance(part, dict) and part.get("enabled") is True:
            found[name] = []
    offload = zero.get("offload_optimizer")
    if isinstance(offload, dict) and offload.get("device") not in {None, "none"}:
        found["optimizer-cpu-offload"] = []
    return found
