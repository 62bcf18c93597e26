"""The command that writes a cluster file: init."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.command import Command, option
from planner.cli.ending import say
from planner.cli.options import talk_options
from planner.cli.output import check_writable, talk, write
from planner.cli.values import Text
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.machines.describe import Question
    from planner.machines.findings import Node
    from planner.machines.readers import FileRead

_M, _A = "What the files leave open", "Answer"
OPTIONS = {
    "accelerator": "--accelerator",
    "gpus_per_node": "--gpus-per-node",
    "nodes": "--nodes",
    "network": "--network",
    "price": "--price",
}
"""The five questions, by the figure that answers each."""


@click.command("init", cls=Command, short_help="Write a cluster file, from outputs of nvidia-smi etc. or five answers.")
@click.argument("files", type=Text(), nargs=-1, metavar="[FILE]...")
@option(
    "--accelerator",
    heading=_M,
    metavar="NAME",
    help="GPU, by any name; of several kinds of nodes the one to take.",
)
@option("--gpus-per-node", heading=_M, metavar="N", help="GPUs in a node.")
@option("--nodes", heading=_M, metavar="N", help="How many nodes there are (default: as many as a plan asks for).")
@option("--network", heading=_M, metavar="RATE", help="Between nodes, of one GPU: 400 Gb/s, or a link's name.")
@option("--price", heading=_M, metavar="MONEY", help="Rent of one GPU and hour, such as 2.50.")
@option("--name", heading=_A, metavar="NAME", help="Name of the cluster (default: that of the file).")
@option("--output", "-o", heading=_A, metavar="PLACE", default="my-cluster.toml", help="File to write; - is stdout.")
@option("--force", heading=_A, is_flag=True, help="Overwrite an existing file.")
@option("--no-questions", heading=_A, is_flag=True, help="Ask nothing (default without a terminal).")
@talk_options
def init(files: tuple[str, ...], output: str | None, force: bool, no_questions: bool, **params: Any) -> None:
    """Write a cluster file for `plan --cluster`, with comments, prices, sources and what should be measured.

    FILEs are outputs of nvidia-smi -q, nvidia-smi topo -m, lscpu, ibstat, sinfo, scontrol show node or kubectl get
    nodes -o json, any number in any order. What they leave open is asked, or said by options; else it is assumed from
    the catalogue, and the file says so.

    \b
      plan init                                     five questions
      nvidia-smi -q > gpus.txt; ibstat > net.txt    on a node, then
      plan init gpus.txt net.txt --nodes 16
      sinfo -o "%P %G %D %m %N" > nodes.txt; plan init nodes.txt
    """  # noqa: D301 - click reads the backspace
    from hardware.files import expanded
    from planner.machines.describe import chosen_kinds, joined
    from planner.machines.document import cluster_file
    from planner.machines.readers import read_machines

    _check_place(output, force=force)
    outputs = read_machines([expanded(name) for name in files])
    nodes = chosen_kinds(joined(outputs), params["accelerator"])
    ask = _asked if at_terminal() and not (no_questions or params["quiet"]) else None
    for node in nodes:
        _complete(node, params, ask, alone=len(nodes) == 1)
    name = params["name"] or (Path(output).stem if output else "my-cluster")
    text = cluster_file(name, nodes, [f"{one.path.name} ({one.reader.title})" for one in outputs])
    write(text, output)
    _conclude(outputs, nodes, output, params)


def at_terminal() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin is not None and sys.stdin.isatty()


def _check_place(output: str | None, *, force: bool) -> None:
    from hardware.files import expanded

    if output is None:  # stdout
        return
    if not output.lower().endswith(".toml"):
        raise BadRequest(f"-o {output}: a cluster file ends in .toml, so that --cluster knows it for a file")
    if not force and expanded(output).exists():
        raise BadRequest(f"{output} is there already; --force writes over it, -o names another file")
    check_writable(output, "--output")


def _complete(node: Node, params: dict[str, Any], ask: Callable[[str, str | None], str] | None, *, alone: bool) -> None:
    """Settle every figure: as options say, as files tell, as somebody answers, as the catalogue has it."""
    from planner.machines.describe import answered, identify, open_questions, settle_network, settle_price

    for figure, said in ((figure, params[figure]) for figure in OPTIONS):
        if said is not None:
            answered(node, figure, said, OPTIONS[figure])
    for _ in range(2):  # what the accelerator is comes first, for the rest hangs on it
        identify(node)
        for question in open_questions(node):
            if ask:
                _ask_until_understood(node, question, ask)
    if "accelerator" not in node.figures:
        raise BadRequest("no accelerator is known; give --accelerator NAME (`plan list accelerators`) or nvidia-smi -q")
    if "gpus_per_node" not in node.figures:
        usual = next(one.suggested for one in open_questions(node) if one.figure == "gpus_per_node") or "8"
        answered(node, "gpus_per_node", usual, "assumed: as most nodes with it; --gpus-per-node says otherwise")
    if not alone and "nodes" not in node.figures:  # a plan may ask for as many as it likes of one kind only
        answered(node, "nodes", "1", "assumed: the one that the file tells of; of several kinds each needs its number")
    settle_network(node, alone=alone)
    settle_price(node)


def _ask_until_understood(node: Node, question: Question, ask: Callable[[str, str | None], str]) -> None:
    """Keep the answer; Enter leaves it to what is assumed, and what is no answer is asked again."""
    from planner.machines.describe import answered

    while (text := ask(question.text, question.suggested)) and text != question.suggested:
        try:
            answered(node, question.figure, text, "your answer")
        except BadRequest as error:
            say(str(error))
        else:
            return


def _asked(text: str, suggested: str | None) -> str:
    """A question on the terminal; Enter takes what is suggested."""
    said: str = click.prompt(text, default=suggested or "", err=True, show_default=bool(suggested))
    return said.strip()


def _conclude(outputs: Sequence[FileRead], nodes: Sequence[Node], output: str | None, params: dict[str, Any]) -> None:
    """What was read and is to be looked at, and what to do with the file."""
    for one in outputs:
        talk(params, f"{one.path}: {one.reader.title}")
    talk(params, *dict.fromkeys(remark for node in nodes for remark in node.remarks))
    assumed = [name for node in nodes for name, figure in node.figures.items() if figure.source.startswith("assumed")]
    if assumed:
        talk(params, f"assumed: {', '.join(dict.fromkeys(assumed))}; the file says why, and what to measure")
    if output:
        gpus = sum(node.value("gpus_per_node") * (node.value("nodes") or 1) for node in nodes)
        talk(params, f"{output} is written; plan --model llama3-8b --cluster {output} --gpus {gpus}")
