"""The strategy of a saved answer that is given as a configuration, so that ``plan predict`` prices that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.cli.answer_files import text_in
from planner.request.axes import PIN_AXES

if TYPE_CHECKING:
    from planner.request.request import PlanRequest
    from planner.runs.schema import Run


@dataclass(frozen=True)
class Answered:
    """A request with an answer's strategy as its pins, and the layers of its stages."""

    request: PlanRequest
    layers: list[int] | None
    recomputed: list[int] | None


def answered(request: PlanRequest, config: str | None, origins: Mapping[str, str]) -> Answered:
    """The request with the strategy of the answer in ``config``; pins that were given beside it win.

    What the answer's question had pinned, such as a range, does not: its strategy keeps to that. ``origins`` says who
    gave each value.

    Stages keep their layers where nothing beside says otherwise.

    Raises:
        BadRequest: the answer was changed to what no plan says.
    """
    found = _strategy(config)
    if found is None:
        return Answered(request, None, None)
    pins = {axis: value for axis, value in found.items() if axis in PIN_AXES}
    pins["recompute_modules"] = ",".join(pins["recompute_modules"]) or None
    layers, again = ([stage[name] for stage in found["stages"]] for name in ("layers", "recompute_layers"))
    if any(0 < repeated < held for repeated, held in zip(again, layers, strict=True)):
        pins["recompute"] = "partial"
    beside = {axis: value for axis, value in request.pins.items() if origins.get(f"pins.{axis}") != config}
    same = all(value in (None, pins[axis]) for axis, value in beside.items())
    asked = request.model_copy(update={"pins": pins | beside})
    partial = asked.pins["recompute"] == "partial"
    return Answered(asked, layers if same else None, again if same and partial else None)


def measured(config: str | None) -> Run | None:
    """The measured run that is given as a configuration, None where it is none.

    Raises:
        BadFile: it is no document of a run.
    """
    if config is None:
        return None
    from hardware.files import expanded, parsed
    from planner.cli.ask import is_run
    from planner.runs.files import run_in

    document = parsed(text_in(config), expanded(config))
    return run_in(expanded(config), "the document", document) if is_run(document) else None


def _strategy(config: str | None) -> dict[str, Any] | None:
    """The strategy's record, None where the configuration is no answer or has none."""
    if config is None:
        return None
    from hardware.files import expanded, parsed
    from planner.answer.load import REPLANNED, SCHEMA, read

    text = text_in(config)
    if parsed(text, expanded(config)).get("schema") not in {SCHEMA, REPLANNED}:
        return None
    plan = read(text, config)
    return plan.strategy.model_dump(mode="json") if plan.strategy else None
