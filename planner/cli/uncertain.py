"""What `plan --what-if` and `plan --robust` answer instead of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.cli.answer import shown, working, write
from planner.errors import BadRequest, NothingFits

if TYPE_CHECKING:
    from planner.request.request import PlanRequest


def wanted(params: dict[str, Any]) -> bool:
    """Whether one of them is asked for.

    Raises:
        BadRequest: both, or in a form that only a plan has.
    """
    asked = [name for name, given in (("--what-if", params["what_if"]), ("--robust", params["robust"])) if given]
    if len(asked) > 1:
        raise BadRequest("--what-if and --robust are two questions; ask one at a time")
    if asked and params["form"] not in {"table", "json"}:
        raise BadRequest(f"{asked[0]} is answered as table or json, not as {params['form']}")
    return bool(asked)


def deliver(request: PlanRequest, params: dict[str, Any]) -> bool:
    """Answer it and write the answer; False where nothing fits, which a plan says with its reasons."""
    try:
        _answer(request, params)
    except NothingFits:
        return False
    return True


def _answer(request: PlanRequest, params: dict[str, Any]) -> None:
    from planner.analyses.robust import robust, share_of
    from planner.analyses.what_if import sensitivity
    from planner.render.terminal.robust import print_robust
    from planner.render.terminal.sensitivity import print_sensitivity

    output = params["output"]
    if params["what_if"]:
        with working("turning levers", quiet=params["quiet"]):
            levers = sensitivity(request)
        text, draw = levers.model_dump_json(by_alias=True, indent=2), lambda console: print_sensitivity(levers, console)
    else:
        share = share_of(params["robust"])
        with working("searching every corner", quiet=params["quiet"]):
            found = robust(request, share)
        text, draw = found.model_dump_json(by_alias=True, indent=2), lambda console: print_robust(found, console)
    write(text + "\n" if params["form"] == "json" else shown(draw, output), output)
