"""Slurm: a batch script with the nodes, their order and the launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from planner.jobs.job import Export, Job
from planner.jobs.launchers import shell
from planner.jobs.launchers.torchrun import BINDING, launch_words, locality, program_files, program_words

FILE: Final = "job.sbatch"
_BLOCKS: Final = "24.05"


def slurm(job: Job, version: str, program: Export) -> Export:
    """A batch script; from Slurm 24.05 on with ``--segment``, the nodes to keep in one block.

    ``SLURM_HOSTFILE`` with ``--distribution=arbitrary`` starts one launcher a node in the order of the file: the
    order that Slurm granted, sorted by name, so that neighbours in the plan are neighbours in the rack.
    """
    return Export(
        files={FILE: _script(job, version, program)} | program_files(program),
        remarks=(*program.remarks, "give partition, account and time limit to sbatch"),
    )


def _script(job: Job, version: str, program: Export) -> str:
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
