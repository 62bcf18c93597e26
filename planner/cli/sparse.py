"""The command for models with embedding tables on parameter servers: sparse."""

from __future__ import annotations

import re
from typing import Any

import click

from planner.cli.command import Command, option
from planner.cli.live import working
from planner.cli.options import field_option, output_options
from planner.cli.output import deliver, end_infeasible, talk
from planner.cli.values import Count, Read, Word, quantity
from planner.errors import BadRequest

_NODES = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9_-]*)\s*=\s*([0-9]{1,9})\s*")


def _nodes(text: str) -> dict[str, int]:
    """Groups and numbers of ``group=count,...``."""
    nodes: dict[str, int] = {}
    for part in text.split(","):
        if (match := _NODES.fullmatch(part)) is None:
            raise BadRequest(f"expected group=count pairs such as cpu=0,gpu=4, got {part!r:.60}")
        if match[1] in nodes:
            raise BadRequest(f"{match[1]} is given twice; leave one of them out")
        nodes[match[1]] = int(match[2])
    return nodes


@click.command("sparse", cls=Command, short_help="Parameter servers for a model with embedding tables.")
@option("--model", "-m", metavar="FILE", help="Tables and dense layers: a TOML or JSON file.")
@option("--cluster", "-c", metavar="NAME|FILE", help="Machines: `plan list servers`, or a file.")
@option(
    "--min-throughput",
    type=quantity("count", most=1e12),
    metavar="COUNT",
    help="Examples per second to reach, such as 2M: the cheapest.",
)
@option(
    "--max-cost",
    "--budget",
    "max_cost",
    type=quantity("price", most=1e9 / 3600.0),
    metavar="PRICE",
    help="Rent to keep to, such as '50 $/h'; alone it asks for the fastest.",
)
@option(
    "--mode",
    type=Word(("any", "sync", "async", "geo")),
    metavar="NAME",
    help="sync, async, geo, or any: the best of them.",
)
@option(
    "--max-staleness",
    type=Count(least=0),
    metavar="STEPS",
    help="Steps of other workers between a worker's pull and its push, at most.",
)
@option(
    "--nodes", type=Read(_nodes), metavar="GROUP=N,...", help="Nodes of some groups, at most; 0 leaves a group out."
)
@field_option("time_limit")
@output_options("table", "json")
def sparse(**params: Any) -> None:
    """Find the cheapest nodes, modes and places for a sparse model, prove it, and say what else would do."""
    for name in ("model", "cluster"):
        if params[name] is None:
            raise BadRequest(f"--{name} is missing, as in `{_EXAMPLE}`")
    from planner.render.terminal.sparse import print_sparse
    from planner.sparse.plan import plan_sparse
    from planner.sparse.standing import HOUR

    with working("searching nodes, modes and places", params) as watched:
        answer = plan_sparse(
            params["model"],
            params["cluster"],
            min_throughput=params["min_throughput"],
            max_cost_per_hour=None if params["max_cost"] is None else params["max_cost"] * HOUR,
            mode=None if params["mode"] == "any" else params["mode"],
            max_staleness=params["max_staleness"],
            nodes=params["nodes"],
            time_limit=params["time_limit"],
            **watched,
        )
    deliver(answer, print_sparse, params, exclude_none=True)
    if params["verbose"]:
        talk(params, f"version {answer.version}, catalogue {answer.catalogue_hash}")
    if answer.status == "infeasible":
        near = f"; nearest: {answer.nearest.text}" if answer.nearest else ""
        end_infeasible(f"{answer.reason}{near}", params)


_EXAMPLE = "plan sparse --model examples/ctr-dnn.toml --cluster fleet-cpu --min-throughput 2M"
