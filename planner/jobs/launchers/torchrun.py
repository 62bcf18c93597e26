"""torchrun: the command of every node, and the script that the launchers share."""

from __future__ import annotations

import math
import shlex
from typing import Final

from planner.jobs.job import Export, Job
from planner.jobs.launchers import shell

FILE: Final = "torchrun.sh"
PORT: Final = 29500
BINDING: Final = (
    "the times assume processes bound to the cores near their GPU; NCCL did that before 2.30, torchrun's "
    "--numa-binding node does it if numactl is installed"
)
"""Left to whoever knows the image, for without numactl torchrun fails with that option [Megatron-Bridge-0.5.1]."""


def torchrun(job: Job, version: str, program: Export) -> Export:
    """A script that every node runs with NODE_RANK and MASTER_ADDR set, as of PyTorch 2.13.

    The rendezvous is static: only with it is the node's rank the one given, and so the placement the planned one.
    """
    lines = [
        *shell.header(f"torchrun, PyTorch {version}"),
        *shell.remarks(
            (*program.remarks, "set NODE_RANK and MASTER_ADDR on each node; further arguments are passed on", BINDING)
        ),
    ]
    words = launch_words(job, rank='"${NODE_RANK:-0}"', address='"${MASTER_ADDR:-127.0.0.1}"')
    body = ["set -euo pipefail", *shell.exports(program.environment)]
    started = [*shell.array("PROGRAM", program_words(program)), f'exec {words} "${{PROGRAM[@]}}" "$@"']
    files = {FILE: "#!/usr/bin/env bash\n" + shell.text(lines, body, started)}
    return Export(files=files | program_files(program), remarks=program.remarks)


def launch_words(job: Job, *, rank: str, address: str) -> str:
    """Torchrun and its options as shell text; rank and address are shell text of their own."""
    return (
        f"torchrun --nnodes {job.node_count} --nproc-per-node {job.gpus_per_node} "
        f"--node-rank {rank} --master-addr {address} --master-port {PORT}"
    )


def program_words(program: Export) -> tuple[str, ...]:
    """The program for torchrun, which has an option of its own for a module."""
    return program.program or ("train.py",)


def program_files(program: Export) -> dict[str, str]:
    """Files of the framework that the program reads when it starts, modules that it imports among them.

    What is on the command line, or among the variables, needs none.
    """
    named = shlex.join(program.program)
    read = [name for name in program.files if name.endswith(".py") or name.rpartition(".")[0] in named]
    return {name: program.files[name] for name in read}


def locality(job: Job) -> int:
    """Nodes that hold one tightest group: the tensor, context and expert ranks that exchange in every layer.

    Ranks are dealt out tensor fastest, then context, then the data ranks that experts fold over. The number divides
    the nodes, as a scheduler's blocks must.
    """
    strategy, per_node = job.strategy, job.gpus_per_node
    ranks = math.lcm(strategy.tp * strategy.cp, strategy.ep * strategy.etp)
    nodes = -(-ranks // per_node)
    return next((n for n in range(nodes, job.node_count + 1) if job.node_count % n == 0), job.node_count)
