"""InternEvo: a Python file of tables, read without running it: constants, names, sums, products and ``dict(...)``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.configurations import table_job, table_words
from planner.jobs.megatron.dialect import dialect
from planner.jobs.python_text import program_of, value_of
from planner.jobs.reader import Context, DocumentReader, JobFile

_ROUNDED: Final = 256
"""What the inner width is a multiple of (internlm/model: FeedForward, multiple_of)."""
_TABLES: Final = frozenset({"model", "parallel", "data"})
_DIALECT: Final = dialect("internevo")


@cache
def _tables(text: str) -> dict[str, Any]:
    """Variables of a file that are constants or tables of them; empty where it is no Python."""
    known: dict[str, Any] = {}
    for one in program_of(text).body:
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            known[one.targets[0].id] = value_of(one.value, known)
    return {name: _said(value) for name, value in known.items()}


def _said(value: Any) -> Any:
    """A value with None in the place of what is no constant."""
    if isinstance(value, dict):
        return {name: _said(inner) for name, inner in value.items()}
    return None if value is ... else value


def _recognises(file: JobFile) -> bool:
    if "parallel" not in file.text or "dict(" not in file.text:
        return False
    found = _tables(file.text)
    return all(isinstance(found.get(name), dict) for name in _TABLES) and "seq_len" in found["data"]


def _read(file: JobFile, context: Context) -> ImportedJob:
    tables = _tables(file.text)
    words = table_words(tables, {name: f"{name}." for name in ("data", "model", "parallel", "hybrid_zero_optimizer")})
    words = {name.replace("hybrid_zero_optimizer", "hybrid-zero-optimizer"): values for name, values in words.items()}
    model, parallel = tables["model"], tables["parallel"]
    if model.get("hidden_size") and model.get("mlp_ratio"):
        width = int(model["hidden_size"] * model["mlp_ratio"])
        words["ffn-hidden-size"] = [str(_ROUNDED * -(-width // _ROUNDED))]
    found = table_job(words, _DIALECT, context)
    size = _size(parallel, "weight") or 1
    said = f"parallel.weight {size} is not priced: weights are shared and gathered: less memory"
    unpriced = (*found.unpriced, said) if size > 1 else found.unpriced
    return replace(found, pins={**found.pins, **_sharded(parallel)}, unpriced=unpriced)


def _sharded(parallel: Mapping[str, Any]) -> dict[str, Any]:
    """Over which ranks optimizer states are shared: none for a size of 1, all for none, else groups of so many."""
    size = _size(parallel, "zero1")
    if size == 1:
        return {"zero_stage": 0}
    return {"zero_stage": 1} if size is None or size <= 0 else {"zero_stage": 1, "sharding_degree": size}


def _size(parallel: Mapping[str, Any], name: str) -> int | None:
    """Ranks along an axis, written as a number or as a table with one."""
    part = parallel.get(name)
    size = part.get("size") if isinstance(part, dict) else part
    return size if isinstance(size, int) else None


READERS: Final = (DocumentReader("internevo", "a configuration of InternEvo", "", _recognises, _read),)
