"""Command lines of Megatron-LM and of programs on its arguments, also inside a shell script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.configurations import swift_words
from planner.jobs.megatron.dialect import (
    DIALECTS,
    HYBRID,
    MEGATRON,
    SWIFT,
    Dialect,
    Words,
    dialect_of,
    is_multimodal,
    of_language,
    option_names,
    options_of,
    said_of_vision,
)
from planner.jobs.megatron.job import job_of
from planner.jobs.megatron.options import OPTIONS
from planner.jobs.reader import CommandReader, Context, Launch, not_here
from planner.jobs.shell.processes import processes
from planner.jobs.transformers.arguments import files_of
from planner.jobs.values import at_path, data, words

_OWN: Final = frozenset({"tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size"})
"""Options by which a command line is known, whatever its program is called."""
_TABLES: Final = (".yaml", ".yml", ".json")
_OTHERS_SIZES: Final = frozenset({"hidden-width", "hidden-dim", "num-heads", "n-heads", "n-embd", "d-model"})
"""Sizes that programs have which call their layers as Megatron-LM does."""


def _recognises(launch: Launch) -> bool:
    names = option_names(launch)
    sized = "num-layers" in names and not names & _OTHERS_SIZES
    return sized or bool(names & _OWN) or SWIFT.knows(launch)


_OTHER_MODELS: Final[Mapping[str, str]] = data("megatron/words")["other_models"]
"""Scripts of Megatron-LM that train no decoder of text."""
_TASKS: Final = ("tasks/main.py", "tasks/msdp/main.py")
BOTH_WAYS: Final = "BERT's bidirectional attention and head are priced like a decoder's: the run takes more time"


def _read(launch: Launch, context: Context) -> ImportedJob:
    programs = {Path(word).stem: Path(word).name for word in launch.words if word.endswith(".py")}
    for program, other in _OTHER_MODELS.items():
        if program in programs:
            raise BadRequest(f"{programs[program]} trains {other}, which is not priced; a decoder of text is")
    if any(word.endswith(_TASKS) for word in launch.words):
        raise BadRequest("tasks of Megatron-LM evaluate or classify, which is not priced; training a decoder is")
    found = _of_decoder(launch, context)
    return replace(found, unpriced=(*found.unpriced, BOTH_WAYS)) if "pretrain_bert" in programs else found


def _of_decoder(launch: Launch, context: Context) -> ImportedJob:
    given, dialect = options_of(launch.words), dialect_of(launch)
    if dialect is SWIFT and (name := next(iter([*files_of(launch.words, *_TABLES), *given.pop("config", [])]), "")):
        file = launch.file(name, context)
        if file is None or file.document is None:
            return ImportedJob(missing=(not_here(name),))
        given = {**swift_words(file.document, context), **given}
    given = {**_of_deepspeed(given, launch, context), **given}
    programs = {Path(word).stem for word in launch.words if word.endswith(".py")}
    vision = tuple(said_of_vision(given)) if is_multimodal(given, programs) else ()
    given = of_language(given) if vision else given
    left, open_, loose = _without_unknown(given, launch.unknown)
    left |= {"is-hybrid-model": []} if HYBRID & programs else {}
    needed = {name: way for name, way in open_.items() if _decides(name, dialect, described="num-layers" in given)}
    asked = tuple(f"--{name} {' '.join(given[name]):.60}: give {way}" for name, way in needed.items())
    known = "model" in context.known or bool(_OF_MODEL & open_.keys())
    try:
        found = job_of(left, dialect, model_known=known, environment=launch.environment)
    except BadRequest:
        if not asked:
            raise
        return ImportedJob(missing=asked)  # what contradicts the rest may be what is missing
    empty = tuple(f"{part:.60} is taken as empty; {way} sets it" for part, way in loose.items())
    return replace(
        found,
        fields=_with_devices(found, launch),
        missing=(*found.missing, *asked),
        unpriced=(*vision, *found.unpriced),
        assumed=(*found.assumed, *empty),
    )


def _of_deepspeed(given: Mapping[str, Sequence[str]], launch: Launch, context: Context) -> Words:
    """Stage, format and offloading that the file says; nothing where there is none, or it is no table.

    A script often writes the file itself, right in front of the launch.
    """
    name = next(iter(given.get("deepspeed-config", ())), "")
    if not name:
        return {}
    written = {Path(path).name: text for path, text in launch.written.items()}
    text = written.get(Path(name).name)
    if text is None and (file := context.find(name)):
        text = file.text
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return _deepspeed_options(document) if isinstance(document, dict) else {}


def _deepspeed_options(document: Mapping[str, Any]) -> Words:
    found: Words = {name: [] for name in ("bf16", "fp16") if at_path(document, f"{name}.enabled") is True}
    if isinstance(stage := at_path(document, "zero_optimization.stage"), int):
        found["zero-stage"] = [str(stage)]
    if at_path(document, "zero_optimization.offload_optimizer.device") not in (None, "none"):
        found["optimizer-cpu-offload"] = []
    return found


def _with_devices(job: ImportedJob, launch: Launch) -> dict[str, Any]:
    """Fields with the devices that the launch takes, where only it says them and the ranks fit on them."""
    found = dict(job.fields)
    each = prod(int(job.pins.get(axis, 1)) for axis in ("tp", "pp", "cp"))
    if "gpus" not in found and (total := processes(launch)) and total % each == 0:
        found["gpus"] = total
    return found


_OF_MODEL: Final = frozenset(
    words("""
    num-layers hidden-size num-attention-heads ffn-hidden-size seq-length max-position-embeddings num-experts
    moe-ffn-hidden-size moe-layer-freq hybrid-layer-pattern num-query-groups kv-channels
""")
)
"""Options without whose values there is no model."""
_FREE: Final = frozenset(
    {"nnodes", "nproc-per-node", "tokenizer-model", "tokenizer-type", "rotary-base", "train-iters", "train-samples"}
)
"""Options that are read where they are known, and not needed: others say how many devices and how long."""


def _without_unknown(
    given: Mapping[str, Sequence[str]], unknown: Mapping[str, str]
) -> tuple[Words, dict[str, str], dict[str, str]]:
    """Options whose values are known; those whose are not, with what says them; words that may be anything, likewise.

    What is not known and stands behind a flag, or behind the first value of an option, is no value of it.
    """
    left: Words = {}
    open_: dict[str, str] = {}
    loose: dict[str, str] = {}
    flags = {name for row in OPTIONS if row.kind == "flag" for name in (row.word, *row.older)}
    for name, values in given.items():
        place = next((place for place, value in enumerate(values) if _way(value, unknown)), None)
        if place is None:
            left[name] = list(values)
        elif place or name in flags:
            left[name] = list(values[:place])
            loose |= {value: _way(value, unknown) for value in values[place:] if _way(value, unknown)}
        else:
            open_[name] = _way(values[0], unknown)
    return left, open_, loose


def _way(value: str, unknown: Mapping[str, str]) -> str:
    """How a word that a script does not say can be given; empty where it says it."""
    return ", ".join(dict.fromkeys(way for part, way in unknown.items() if part in value))


def _decides(name: str, dialect: Dialect, *, described: bool) -> bool:
    """Whether there is no price without an option's value; a model that is described needs no name."""
    meant = dialect.means.get(name, f"--{name}")
    word = meant.split()[0].removeprefix("--") if isinstance(meant, str) and meant else name
    named = word == "model.name" and described
    return word not in _FREE and not named and any(word in (row.word, *row.older) for row in OPTIONS)


def _reader(dialect: Dialect) -> CommandReader:
    def recognises(launch: Launch) -> bool:
        return _recognises(launch) and dialect_of(launch) is dialect

    title = f"arguments of {dialect.name}"
    return CommandReader("megatron-args", title, dialect.framework, recognises, _read)


READERS: Final = tuple(_reader(one) for one in (MEGATRON, *DIALECTS))
