"""The command for models with embedding tables on parameter servers: sparse."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from planner.cli.ask import quantity_in, seconds_in
from planner.cli.options import Command, Count, Word, option, output_options
from planner.cli.output import check_writable, deliver, end_infeasible, talk, working
from planner.errors import BadRequest

if TYPE_CHECKING:
    from costmodels.sparse.load import Mode

_Q = "Question"
_NODES = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9_-]*)\s*=\s*([0-9]{1,9})\s*")


@click.command("sparse", cls=Command, short_help="Parameter servers for a model with embedding tables.")
@option("--model", heading=_Q, metavar="FILE", help="Tables and dense layers: a TOML or JSON file.")
@option("--cluster", heading=_Q, metavar="NAME|FILE", help="Machines: `plan list servers`, or a file.")
@option("--min-throughput", heading=_Q, metavar="COUNT", help="Examples per second to reach, such as 2M: the cheapest.")
@option(
    "--max-cost",
    "--budget",
    "max_cost",
    heading=_Q,
    metavar="PRICE",
    help="Rent to keep to, such as '50 $/h'; alone it asks for the fastest.",
)
@option(
    "--mode",
    heading=_Q,
    type=Word(("any", "sync", "async", "geo")),
    metavar="NAME",
    help="sync, async, geo, or any: the best of them.",
)
@option(
    "--max-staleness",
    heading=_Q,
    type=Count(least=0),
    metavar="STEPS",
    help="Steps of other workers between a worker's pull and its push, at most.",
)
@option("--nodes", heading=_Q, metavar="GROUP=N,...", help="Nodes of some groups, at most; 0 leaves a group out.")
@option(
    "--time-limit",
    heading=_Q,
    metavar="TIME",
    help="Longest search: 30s, 2min or plain seconds (default: none, effort counts).",
)
@output_options("table", "json")
def sparse(**params: Any) -> None:
    """Find the cheapest nodes, modes and places for a sparse model, prove it, and say what else would do."""
    check_writable(params["output"])
    for name in ("model", "cluster"):
        if params[name] is None:
            raise BadRequest(f"--{name} is missing, as in `{_EXAMPLE}`")
    from planner.sparse.plan import plan_sparse

    with working("searching", quiet=params["quiet"]):
        answer = plan_sparse(
            params["model"],
            params["cluster"],
            min_throughput=_quantity(params, "min_throughput", "count", most=1e12),
            max_cost_per_hour=_dollars_per_hour(params),
            mode=_mode(params["mode"]),
            max_staleness=params["max_staleness"],
            nodes=_nodes(params["nodes"]),
            time_limit=None if params["time_limit"] is None else seconds_in("--time-limit", params["time_limit"]),
        )
    from planner.render.terminal.sparse import print_sparse

    document = partial(answer.model_dump_json, by_alias=True, exclude_none=True, indent=2)
    deliver(document, lambda console: print_sparse(answer, console), params)
    if params["verbose"]:
        talk(f"version {answer.version}, catalogue {answer.catalogue_hash}", params)
    if answer.status == "infeasible":
        near = f"; nearest: {answer.nearest.text}" if answer.nearest else ""
        end_infeasible(f"{answer.reason}{near}", params)


_EXAMPLE = "plan sparse --model examples/ctr-dnn.toml --cluster fleet-cpu --min-throughput 2M"


def _mode(word: str | None) -> Mode | None:
    from costmodels.sparse.load import MODES

    return next((mode for mode in MODES if mode == word), None)


def _quantity(params: dict[str, Any], name: str, dimension: Any, *, most: float) -> float | None:
    if params[name] is None:
        return None
    flag = f"--{name.replace('_', '-')}"
    value = quantity_in(flag, params[name], dimension)
    if not 0.0 < value <= most:
        raise BadRequest(f"{flag}: expected more than 0 and at most {most:g}, got {params[name]!r}")
    return value


def _dollars_per_hour(params: dict[str, Any]) -> float | None:
    price = _quantity(params, "max_cost", "price", most=1e9 / 3600.0)
    return None if price is None else price * 3600.0


def _nodes(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    found = [(part, _NODES.fullmatch(part)) for part in text.split(",")]
    for part, match in found:
        if match is None:
            raise BadRequest(f"--nodes: expected group=count pairs such as cpu=0,gpu=4, got {part!r:.60}")
    names = [match[1] for _, match in found if match is not None]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadRequest(f"--nodes: {twice} is given twice; leave one of them out")
    return {match[1]: int(match[2]) for _, match in found if match is not None}
