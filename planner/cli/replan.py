"""The command that plans a job again for more or fewer devices: replan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from planner.cli.command import Command, option
from planner.cli.input import answer_in
from planner.cli.live import working
from planner.cli.options import field_option, output_options
from planner.cli.output import deliver, end_infeasible, talk, write
from planner.cli.values import Count, Text, Word, read_as
from planner.errors import BadRequest, MeshwrightError

if TYPE_CHECKING:
    from planner.answer.plan import Plan

_CHANGES = ("global_batch_size", "cluster", "stack", "time_limit")
"""What may differ from the answer's question."""


@click.command("replan", cls=Command, short_help="Plan a running job again when nodes fail or join.")
@click.argument("result", type=Text(), metavar="PLAN.json")
@option("--gpus", "-g", type=Count(), required=True, help="Accelerators that there are now.")
@option("--tolerance", type=read_as("share"), default="5%", metavar="SHARE", help="How much slower may move less.")
@field_option("global_batch_size", help="Sequences per iteration (default: as before).")
@field_option("cluster", help="Where the answer names none.")
@field_option("stack", help="Where the answer names none.")
@field_option("time_limit")
@option(
    "--pick", heading="Answer", type=Word(("nearest", "fastest")), default="nearest", help="Which to launch or export."
)
@output_options("table", "json", "env", "args")
def replan(result: str, gpus: int, tolerance: float, pick: str, **params: Any) -> None:
    """Find the fastest plan on that many accelerators, and of those nearly as fast the one that moves least.

    PLAN.json is what `plan --format json` wrote (- for stdin). The global batch stays; where the accelerators left
    divide it badly, some may stay idle.
    """
    from planner.analyses.replan import replan as plan_again

    old = answer_in(result, quiet=params["quiet"])
    _named_once(old, params)
    changes = {name: params[name] for name in _CHANGES if params[name] is not None}
    with working("searching", params) as watched:
        answer = plan_again(old, gpus, tolerance=tolerance, **changes, **watched)
    chosen = getattr(answer, pick)
    if params["form"] in {"table", "json"}:
        from planner.render.terminal.replan import render

        deliver(answer.model_copy(update={"picked": pick}), render, params)
    elif chosen is not None:
        from planner.render.terminal.formats import written

        text, remarks = written(chosen.plan, params["form"])
        write(text, params["output"])
        talk(params, *remarks)
    if answer.status == "infeasible":
        end_infeasible(answer.statement, params)


def _named_once(old: Plan, params: dict[str, Any]) -> None:
    """The answer's own cluster and stack stand; others would price what runs on machines that it does not use."""
    from costmodels.stack.stack import stack as find_stack
    from hardware.catalogue import cluster as find_cluster

    for name, find in (("cluster", find_cluster), ("stack", find_stack)):
        given, said = params[name], old.request.get(name)
        said = said.get("name") if isinstance(said, dict) else said
        if given is None or not isinstance(said, str) or not _known(find, said):
            continue
        source = click.get_current_context().get_parameter_source(name)
        if given != said and source is ParameterSource.COMMANDLINE:
            raise BadRequest(f"--{name} {given}: the answer names {said}; leave it out, `plan` answers for another one")
        params[name] = None


def _known(find: Callable[[str], object], name: str) -> bool:
    try:
        find(name)
    except MeshwrightError:
        return False
    return True
