"""torchrun: the command of every node, and what starts it there: a script, Slurm, SkyPilot, Ray."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.options import present
from planner.jobs.values import data, template
from planner.jobs.yaml_text import yaml_text

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


_SBATCH: Final = "job.sbatch"
_BLOCKS: Final = "24.05"


def slurm(job: Job, version: str, program: Export) -> Export:
    """A batch script; from Slurm 24.05 on with ``--segment``, the nodes to keep in one block.

    ``SLURM_HOSTFILE`` with ``--distribution=arbitrary`` starts one launcher a node in the order of the file: the
    order that Slurm granted, sorted by name, so that neighbours in the plan are neighbours in the rack.
    """
    return Export(
        files={_SBATCH: _batch_script(job, version, program)} | program_files(program),
        remarks=(*program.remarks, "give partition, account and time limit to sbatch"),
    )


def _batch_script(job: Job, version: str, program: Export) -> str:
    words = launch_words(job, rank="\\$SLURM_PROCID", address="$MASTER_ADDR")
    placed = [
        'scontrol show hostnames "$SLURM_JOB_NODELIST" | sort -V > "hosts-$SLURM_JOB_ID.txt"',
        'export SLURM_HOSTFILE="$PWD/hosts-$SLURM_JOB_ID.txt"',
        'MASTER_ADDR=$(head -n 1 "$SLURM_HOSTFILE"); export MASTER_ADDR',
    ]
    started = [
        *shell.array("PROGRAM", program_words(program)),
        'command=$(printf "%q " "${PROGRAM[@]}" "$@")',
        f'srun --distribution=arbitrary --ntasks={job.node_count} bash -c "{words} $command"',
    ]
    head = ["#!/usr/bin/env bash", *_directives(job, version)]
    about = [*shell.header(f"Slurm {version}"), *shell.remarks((*program.remarks, BINDING))]
    body = ["set -euo pipefail", *shell.exports(program.environment)]
    return shell.text(head, about, body, placed, started)


def _directives(job: Job, version: str) -> Iterator[str]:
    near = locality(job)
    yield f"#SBATCH --job-name={job.name}"
    yield f"#SBATCH --nodes={job.node_count}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={job.gpus_per_node}"
    yield "#SBATCH --exclusive"
    if version >= _BLOCKS and near > 1:
        yield f"#SBATCH --segment={near}"


_ACCELERATORS: Final[Mapping[str, str]] = data("launchers/skypilot")["accelerators"]
"""Names of SkyPilot's catalogue."""


def skypilot(job: Job, version: str, program: Export) -> Export:
    """A task of equal nodes."""
    kinds = [part.accelerator for part in job.nodes]
    several = f"asks for one kind of accelerator, but the plan has {' and '.join(kinds)}"
    refuse("skypilot", [(len(set(kinds)) > 1, several)])
    name = _ACCELERATORS.get(kinds[0], re.sub(r"-(sxm|pcie).*", "", kinds[0]).upper())
    address = '$(echo "$SKYPILOT_NODE_IPS" | head -n1)'
    run = (
        f'torchrun --nnodes "$SKYPILOT_NUM_NODES" --nproc-per-node "$SKYPILOT_NUM_GPUS_PER_NODE" \\\n'
        f'  --node-rank "$SKYPILOT_NODE_RANK" --master-addr "{address}" --master-port {PORT} \\\n'
        f"  {shlex.join(program_words(program))}\n"
    )
    resources = {"accelerators": f"{name}:{job.gpus_per_node}", "network_tier": "best"}
    envs = dict(program.environment) or None
    document = present(name=job.name, num_nodes=job.node_count, resources=resources, envs=envs, run=run)
    text = shell.commented(f"SkyPilot {version}", program.remarks, yaml_text(document))
    return Export(files={"task.yaml": text} | program_files(program), remarks=program.remarks)


def ray(job: Job, version: str, program: Export) -> Export:
    """A driver that reserves whole nodes and starts torchrun on each, as of Ray 2."""
    started = {"environment": repr(dict(program.environment)), "program": repr(list(program_words(program)))}
    size = {"nodes": job.node_count, "each": job.gpus_per_node}
    body = template("launchers/ray_launch.txt").format(**size, port=PORT, **started, name=job.name)
    text = shell.commented(f"Ray {version}", program.remarks, body)
    return Export(files={"ray_launch.py": text} | program_files(program), remarks=program.remarks)
