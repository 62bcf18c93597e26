"""The dump of arguments that Megatron-LM and its relatives print, as the command line that has the same effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.logs.scan import Start
from planner.jobs.logs.tables import log_reader, made_job
from planner.jobs.megatron.dialect import DEEPSPEED
from planner.jobs.megatron.options import OPTIONS
from planner.jobs.megatron.read import READERS as COMMANDS
from planner.jobs.reader import Context, Launch
from planner.jobs.values import data

_UNSET: Final = ("", "None", "False", "[]", "{}")
_TURNED: Final[Mapping[str, Sequence[str]]] = data("megatron/dump")["turned"]
"""Arguments that a dump has by another name than the option that turns them off, and the value which that gives."""
_RENAMED: Final[Mapping[str, Sequence[str]]] = data("megatron/dump")["renamed"]
"""Options by what dumps call them, where that is not the option's own name or was not in older versions."""
_WORDS: Final[Mapping[str, str]] = data("megatron/dump")["words"]
"""Values as dumps have them, by what the option takes."""
_OF: Final[Mapping[str, Sequence[str]]] = data("megatron/dump")["needs"]
"""Arguments, and how the options begin that say nothing without one of them: a dump has their defaults."""
_LEFT: Final = frozenset(
    {"fp8", "zero-stage", "train-iters", "train-samples", "train-tokens", "nnodes", "nproc-per-node"}
)
"""Options that a dump says otherwise, or that are of no use to what ran."""


def dumped_job(start: Start, context: Context) -> ImportedJob:
    """The job of a dump; where it makes none, the reason and what was measured."""
    said = start.said
    if not said:
        return ImportedJob()
    return made_job(lambda: _of_dump(said, start.table, context), "options that it prints do", sizes_alone(said))


def _of_dump(said: Mapping[str, str], settings: str, context: Context) -> ImportedJob:
    """The job of a dump of arguments, as of the command line that has the same effect, and of DeepSpeed's settings."""
    by_engine = said.get("deepspeed") == "True"
    words = [*_arguments(said), *_recomputed(said), *(_engine(said) if by_engine else [])]
    file = said.get("deepspeed_config", "None") if by_engine else "None"
    launch = Launch(tuple(words), written={file: settings} if settings else {})
    reader = next((one for one in COMMANDS if one.recognises(launch)), COMMANDS[0])
    job = reader.read(launch, context)
    fields = dict(job.fields) | ({"gpus": gpus} if (gpus := _whole(said.get("world_size"))) else {})
    old = "checkpoint_activations" in said and "transformer_impl" not in said  # from before Transformer Engine
    stack = "" if not old else "megatron-deepspeed-2021" if by_engine else "megatron-lm-2021"
    fields |= {"stack": stack} if stack else {}
    assumed = [line for line in job.assumed if not (stack and "priced as stack" in line)]
    assumed += [f"the options are those of {stack}, which is priced; --stack changes it"] if stack else []
    lost = file != "None" and not settings and context.find(file) is None
    asked = "give that file too, or offloading and buckets that it asks for are not priced"
    unpriced = (*job.unpriced, *([f"the log does not contain {file}; {asked}"] if lost else []))
    return replace(job, fields=fields, length=None, assumed=tuple(assumed), unpriced=unpriced)


def _engine(said: Mapping[str, str]) -> Iterator[str]:
    """What a dump has of DeepSpeed, where that is on."""
    yield "--deepspeed"
    for name in ("zero_stage", "deepspeed_config"):
        if said.get(name, "None") != "None":
            yield from (f"--{name.replace('_', '-')}", said[name])
    for word, stands_for in DEEPSPEED.means.items():
        if isinstance(stands_for, str) and "{}" not in stands_for and _field(said, word) == "True":
            yield f"--{word}"
    if _field(said, "ds-sequence-parallel-size") not in {*_UNSET, "1"}:
        yield from ("--ds-sequence-parallel-size", said["ds_sequence_parallel_size"])


def _arguments(said: Mapping[str, str]) -> Iterator[str]:
    """A dump as the command line that has the same effect, of the options that are read."""
    turned = (word for name, (value, word) in _TURNED.items() if said.get(name) == value)
    yield from (f"--{word}" for word in turned if not _idle(said, word))
    said = {name: value for name, value in said.items() if not (name == "num_experts" and value in {"1", "[1]"})}
    heads, groups = (_whole(said.get(name)) for name in ("num_attention_heads", "num_key_value_heads"))
    if groups and heads and groups < heads:
        yield "--group-query-attention"
    for option in OPTIONS:
        names = (option.word.replace("-", "_"), *_RENAMED.get(option.word, ()))
        value = next((said[name] for name in names if said.get(name, "") not in _UNSET), "")
        if option.word in _LEFT or value in _UNSET or _idle(said, option.word):
            continue  # a default that has no effect
        yield f"--{option.word}"
        glued = _GLUED.match(value) if option.kind == "number" else None
        yield from () if option.kind == "flag" else _parts(glued[1] if glued else value)
    known = {option.word for option in OPTIONS}
    yield from (f"--{word}" for word in DEEPSPEED.unpriced if word not in known and _field(said, word) == "True")
    for word in _NAMED:
        if (value := _field(said, word)) not in _UNSET:
            yield from (f"--{word}", value)


_NAMED: Final = ("spec", "tp-comm-overlap-cfg", "heterogeneous-layers-config-path", "symmetric-ar-type")
"""Options that no price has and whose value is a name, nothing where it is left out."""


def _field(said: Mapping[str, str], word: str) -> str:
    """What a dump has under an option's own name."""
    return said.get(word.replace("-", "_"), "").strip()


def _idle(said: Mapping[str, str], word: str) -> bool:
    """Whether an option says nothing, for want of another."""
    needs = [name for name, begins in _OF.items() if word.startswith(tuple(begins))]
    return bool(needs) and all(said.get(name, "") in _UNSET for name in needs)


def _parts(value: str) -> list[str]:
    """The words of a value, a list's one by one; of an enumeration its last part."""
    parts = [part.strip(" '\"") for part in value.strip("[]").split(",")] if value.startswith("[") else [value]
    return [_WORDS.get(part, part.rpartition(".")[2] if _ENUMERATED.fullmatch(part) else part) for part in parts]


_GLUED: Final = re.compile(r"(\d+)[a-z_]")
"""A number behind which another rank went on writing."""
_ENUMERATED: Final = re.compile(r"[A-Z]\w+\.\w+")


def _recomputed(said: Mapping[str, str]) -> list[str]:
    """What was called checkpointing: whole layers, in groups of so many."""
    if said.get("checkpoint_activations") != "True" or said.get("recompute_granularity", "None") != "None":
        return []
    count = said.get("checkpoint_num_layers", "1")
    return ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", count]


_COUNTS: Final[Mapping[str, Sequence[str]]] = data("megatron/dump")["counts"]
"""Sizes that a dump has whatever else it has, by what GPT-NeoX and Megatron-LM call them."""


def sizes_alone(said: Mapping[str, str]) -> ImportedJob:
    """The sizes alone; degrees of 0 are none."""
    found = {
        field: _whole(next((said[name] for name in names if name in said), "")) for field, names in _COUNTS.items()
    }
    found |= {field: max(found[field], 1) for field in ("pins.tp", "pins.pp")}
    fields = {name: size for name, size in found.items() if size and not name.startswith("pins.")}
    return ImportedJob(fields, {name[5:]: size for name, size in found.items() if size and name.startswith("pins.")})


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


LOG: Final = log_reader("megatron", lambda findings, _, context: dumped_job(findings.start, context))
"""Of its logs, and those of what left its lines as they are: Megatron-DeepSpeed, MindSpeed, Pai's and others."""
