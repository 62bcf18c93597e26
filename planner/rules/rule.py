"""A rule: one reason why a strategy may be refused, with the place it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from costmodels.layer.recompute_modules import module_names
from costmodels.model.model import Model
from costmodels.names import VALUE_NAMES
from costmodels.scenario import Scenario
from costmodels.stack.switches import Switches
from planner.rules.conditions import Columns, Mask


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason why a strategy may be refused."""

    name: str
    kind: Literal["must", "stack", "dominated", "framework"]
    """``must`` is arithmetic, ``stack`` what the software lacks, ``dominated`` never better than another row,
    ``framework`` what an exporter's target refuses to start."""
    reads: tuple[str, ...]
    sentence: str
    """Why a row fails, with ``{tp}``-like places for its numbers and the scenario's."""
    source: str
    passes: Callable[[Columns, Scenario], Mask]
    near: Callable[[Mapping[str, Any], Scenario], str] | None = None
    """The nearest that works, of what the places of the sentence stand for: "4 and 8 do"."""


def listed(values: Iterable[object]) -> str:
    """Values as a sentence names them: "1f1b, gpipe and zb-v"."""
    *others, last = [*map(str, values)] or [""]
    return f"{', '.join(others)} and {last}" if others else last


_OF_MODEL: Final = ("num_layers", "num_heads", "num_query_groups", "hidden_size", "ffn_hidden_size")
_OF_SWITCHES: Final = ("optimizer", "main_params", "adapters", "base_precision", "offload_fraction", "loss_block")


def words_of(row: Mapping[str, Any], model: Model, switches: Switches, **more: Any) -> dict[str, Any]:
    """What the places of a sentence stand for: a strategy's values, coded ones by name, and facts of the job."""
    named = {axis: names[int(row[axis])] for axis, names in VALUE_NAMES.items() if axis in row}
    if "recompute_modules" in row:
        named["recompute_modules"] = ",".join(module_names(int(row["recompute_modules"]))) or "none"
    sizes = {name: getattr(model, name) for name in _OF_MODEL}
    chosen = {name: getattr(switches, name) for name in _OF_SWITCHES}
    return {**row, **named, **sizes, **chosen, "model": model.name, **more}
