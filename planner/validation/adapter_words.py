"""Which adapters a measured run trained, where it trained adapters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from costmodels.adapters import OF_ATTENTION, Adapters
from costmodels.model import Model
from planner.validation.machines import Unpriceable

Row = Mapping[str, Any]

TASKS: Final = ("pretrain", "sft", "lora", None)

USUAL: Final = (
    (r"mlperf|mlcommons", "16:linear_qkv,linear_proj"),
    (r"automodel", "8"),
    (r"nemo|bridge", "32:linear_qkv"),
)
"""What sources train that do not say: MLPerf's rules; performance recipes of NeMo (``nemo/collections/llm/recipes``,
``performance_mode``) and of Megatron-Bridge (``perf_recipes``, ``peft.target_modules``), with their default rank; NeMo
AutoModel's, all products whose names end in ``proj``."""
OTHERS: Final = "16"
QUANTISED: Final = r"\bq-?lora\b|\bnf4\b|\b4[ -]?bit (base|frozen|weights)"
"""Words for frozen weights of 4 bits."""


def adapters_of(row: Row, model: Model, notes: list[str]) -> Adapters | None:
    """The run's adapters, None where all weights train.

    ``strategy.adapters`` of a row says them, in the words of ``Adapters.read``.

    Raises:
        Unpriceable: words that say none.
    """
    said, task = row["strategy"].get("adapters"), row.get("task")
    words = (
        f"{task} {row['strategy'].get('precision_note')} {row['stack'].get('framework')} {row['stack'].get('notes')}"
    )
    quantised = re.search(QUANTISED, words.lower()) is not None
    task = "lora" if quantised else task
    if task not in TASKS:
        notes.append(f"task {task!r:.40} is none of {', '.join(filter(None, TASKS))}; training of all weights assumed")
    if said is None and task != "lora":
        return None
    words = str(said) if said is not None else _usual(row)
    try:
        found = Adapters.read(words, OF_ATTENTION) if model.moe else Adapters.read(words)
    except ValueError as error:
        raise Unpriceable(f"strategy.adapters: {error}") from None
    if model.moe and not set(found.modules) <= set(OF_ATTENTION):
        raise Unpriceable(f"strategy.adapters {found}: none are priced on experts, which {model.name} has")
    if quantised:
        notes.append("frozen weights of 4 bits are priced in 16: less memory is taken than predicted, and more time")
    if said is None:
        notes.append(f"adapters {found}: the run trains some and does not say which")
    return found


def _usual(row: Row) -> str:
    source = f"{row.get('source')} {row['stack'].get('framework')}".lower()
    return next((words for pattern, words in USUAL if re.search(pattern, source)), OTHERS)
