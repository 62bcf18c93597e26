"""GPT-NeoX: its own names in YAML or JSON, also over several files, read as options of Megatron-LM and DeepSpeed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.tables import Findings, log_reader, made_job
from planner.jobs.megatron.configurations import table_job, table_words
from planner.jobs.megatron.dialect import Words, dialect
from planner.jobs.megatron.dump import sizes_alone
from planner.jobs.reader import Context, DocumentReader, JobFile
from planner.jobs.values import literal

_DIALECT: Final = dialect("neox")
_KEYS: Final = frozenset({"pipe-parallel-size", "model-parallel-size", "pos-emb", "gpt-j-residual", "attention-config"})
_GATED: Final = frozenset({"swiglu", "geglu", "reglu", "bilinear", "glu"})
_SIZES: Final = frozenset({"num-layers", "hidden-size", "num-attention-heads"})


def _recognises(file: JobFile) -> bool:
    names = {str(key).replace("_", "-") for key in file.document or {}}
    return bool(_KEYS & names) or ("train-micro-batch-size-per-gpu" in names and bool(_SIZES & names))


def _read(file: JobFile, context: Context) -> ImportedJob:
    parts = [file, *(one for one in context.files if one.path != file.path and _recognises(one))]
    document: dict[str, Any] = {}
    for part in parts:
        document |= part.document or {}
    return neox_job(document, context)


def neox_job(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of settings by GPT-NeoX's names."""
    kinds = set(_words_in(next((document[key] for key in document if str(key).replace("_", "-") == _MIXERS), [])))
    if other := sorted(kinds & _OTHER_MIXERS):
        raise BadRequest(f"attention_config: layers of {', '.join(other)} are not priced; global and flash are")
    found = table_job(_as_options(table_words(document, {"": ""}, context.environment)), _DIALECT, context)
    sparse = sorted(kinds - {"global", "flash", "all"})
    effect = f"attention_config: layers of {', '.join(sparse)} are priced with full attention, which takes longer"
    return replace(found, unpriced=(*found.unpriced, effect)) if sparse else found


_MIXERS: Final = "attention-config"
_OTHER_MIXERS: Final = frozenset({"gmlp", "amlp", "rwkv", "mamba"})


def _words_in(value: Any) -> Iterator[str]:
    """All words in nested lists."""
    if isinstance(value, str):
        yield value
    for one in value if isinstance(value, list | tuple) else ():
        yield from _words_in(one)


def _as_options(words: Words) -> Words:
    """What no table says: a pipeline of none, a 16-bit format by its type, and kernels of attention by layer."""
    if words.get("pipe-parallel-size") == ["0"]:
        del words["pipe-parallel-size"]
    if words.pop("fp16.type", []) in (["bfloat16"], ["bf16"]):
        words.pop("fp16.enabled", None)
        words["bf16.enabled"] = ["true"]
    if any(kind.startswith("flash") for kind in words.pop("attention-config", [])):
        words["use-flash-attn"] = ["true"]
    if "hidden-size" in words and words["hidden-size"][0].isdecimal():
        words["ffn-hidden-size"] = [str(_width(words, int(words["hidden-size"][0])))]
    return words


def _width(words: Words, hidden: int) -> int:
    """Inner width of a network, of each branch where it is gated (megatron/model/transformer.py: ParallelMLP)."""
    given, factor = words.pop("intermediate-size", [""])[0], words.pop("expansion-factor", ["4"])[0]
    rounded = words.pop("mlp-multiple-of", ["1"])[0]
    try:
        multiple, width = max(int(rounded), 1), int(given) if given else int(float(factor) * hidden)
    except (ValueError, OverflowError):
        sizes = f"intermediate_size {given or 'none'}, expansion_factor {factor}, mlp_multiple_of {rounded}"
        raise BadRequest(f"{sizes}: expected numbers") from None
    if words.get("activation", [""])[0] in _GATED or words.get("mlp-type") == ["llama"]:
        width = int(width * 2 / 3) // 2
    return multiple * -(-width // multiple)


READERS: Final = (DocumentReader("gpt-neox", "a configuration of GPT-NeoX", "", _recognises, _read),)


_SET_BY: Final = re.compile(r"\.{2,}(?:updated|default)\s*$", re.MULTILINE)
"""What stands behind a value: whether the user set it."""


def _of_log(findings: Findings, _: JobFile, context: Context) -> ImportedJob:
    """The job of what the user set, by the reader of its files; where that makes none, why."""
    given = findings.start.said
    said = {name: _SET_BY.sub("", value).strip() for name, value in given.items()}
    updated = {name: literal(said[name]) for name, value in given.items() if value.rstrip().endswith("updated")}
    sizes = sizes_alone(said)
    job = made_job(lambda: neox_job(updated, context), "settings that it prints do", sizes)
    return replace(job, fields={**job.fields, **sizes.fields}, pins={**job.pins, **sizes.pins}, length=None)


LOG: Final = log_reader("neox", _of_log)
