"""How many nodes a launch takes and how many processes, one a device, it starts on each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from planner.jobs.reader import Launch
from planner.jobs.shell.slurm import gpus_of, slurm_options


@dataclass(frozen=True, slots=True)
class Processes:
    """What a launch says of its processes; None where it does not say.

    Attributes:
        nodes: machines.
        per_node: processes of each, one a device.
    """

    nodes: int | None = None
    per_node: int | None = None

    @property
    def total(self) -> int | None:
        """Processes of all nodes."""
        return self.nodes * self.per_node if self.nodes and self.per_node else None


def processes(launch: Launch) -> int | None:
    """Devices of a launch; None where it does not say."""
    return processes_of(launch).total


def processes_of(launch: Launch) -> Processes:
    """Nodes and processes of a launch, by its own program, else by the commands around it."""
    name = PurePath(launch.words[0]).name
    module = next((word for word in launch.words[1:4] if word in _MODULES), "")
    read = _PROGRAMS.get(_MODULES.get(module, name))
    around = _around(launch)
    return read(launch, around) if read else around


def _torchrun(launch: Launch, around: Processes) -> Processes:
    """torchrun: a node with a process unless words or variables say otherwise; "gpu" and "auto" are all of a node."""
    said, given = _options(launch.words), launch.environment
    each = said.get("nproc-per-node", given.get("PET_NPROC_PER_NODE", "1"))
    per_node = visible(given) or around.per_node if each in {"gpu", "auto"} else _count(each)
    return Processes(_count(said.get("nnodes", given.get("PET_NNODES", "1")).rpartition(":")[2]), per_node)


def _deepspeed(launch: Launch, around: Processes) -> Processes:
    """DeepSpeed's launcher: devices that it names, else all of the nodes of its hosts' file, or of this one."""
    said = _options(launch.words)
    included = said.get("include", "") or said.get("i", "")
    if included:
        hosts = [one.partition(":")[2] for one in included.split("@")]
        devices = {len(one.split(",")) for one in hosts if one}
        return Processes(len(hosts), devices.pop() if len(devices) == 1 and all(hosts) else None)
    slots = _slots(launch.written.get(said.get("hostfile", "") or said.get("H", ""), ""))
    nodes = _count(said.get("num-nodes", "")) or (len(slots) or (None if {"hostfile", "H"} & set(said) else 1))
    return Processes(nodes, _count(said.get("num-gpus", "")) or (slots[0] if slots else visible(launch.environment)))


def _oumi(launch: Launch, around: Processes) -> Processes:
    """oumi: under ``distributed`` all devices of all nodes that SkyPilot or Slurm has, else one."""
    said, given = _options(launch.words), launch.environment
    if "distributed" not in launch.words:
        return Processes(1, 1)
    nodes = _count(said.get("nnodes", given.get("SKYPILOT_NUM_NODES", ""))) or around.nodes or 1
    each = _count(said.get("nproc-per-node", given.get("SKYPILOT_NUM_GPUS_PER_NODE", "")))
    return Processes(nodes, each or visible(given) or around.per_node)


def _slots(text: str) -> list[int]:
    """Devices of each host of a hosts' file."""
    return [int(found[1]) for found in re.finditer(r"^[ \t]*[^#\s]\S*\s+slots=(\d+)", text, re.MULTILINE)]


def _accelerate(launch: Launch, around: Processes) -> Processes:
    """Accelerate: processes of all machines together."""
    said = _options(launch.words)
    nodes = _count(said.get("num-machines", "")) if "num-machines" in said else 1
    total = _count(said.get("num-processes", "")) or _count(said.get("n", ""))
    return Processes(nodes, total // nodes if total and nodes and total % nodes == 0 else None)


def _by_environment(launch: Launch, around: Processes) -> Processes:
    """ms-swift and LLaMA-Factory start torchrun themselves, by variables."""
    given = launch.environment
    nodes = _count(given["NNODES"]) if "NNODES" in given else around.nodes or 1
    return Processes(nodes, _count(given.get("NPROC_PER_NODE", "")) or visible(given) or around.per_node)


_MODULES: Final = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "paddle.distributed.launch": "torchrun", "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate",
}  # fmt: skip
"""Modules of Python that are programs."""
_PROGRAMS: Final[Mapping[str, Callable[[Launch, Processes], Processes]]] = {
    **dict.fromkeys(("torchrun", "tune"), _torchrun), "oumi": _oumi, **dict.fromkeys(("deepspeed", "ds"), _deepspeed),
    **dict.fromkeys(("swift", "megatron", "llamafactory-cli"), _by_environment), "accelerate": _accelerate,
}  # fmt: skip
_DEVICES: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


def visible(environment: Mapping[str, str]) -> int | None:
    """Devices that a variable lets processes see; None where there is no such variable."""
    said = next((environment[name] for name in _DEVICES if environment.get(name)), "")
    return len(said.split(",")) if re.fullmatch(r"[\w-]+(,[\w-]+)*", said) else None


def _around(launch: Launch) -> Processes:
    """What the commands around a launch say: the innermost of each option."""
    slurm: dict[str, str] = {}
    found = Processes()
    for words in launch.outer:
        name = PurePath(words[0]).name
        if name in {"sbatch", "srun", "salloc"}:
            slurm |= slurm_options(words[1:])
            found = _slurm(slurm)
        elif name.startswith(("mpi", "orterun", "horovodrun", "prun")):
            found = _mpi(words, found)
    return found if found.per_node else Processes(found.nodes, visible(launch.environment))


def _slurm(said: dict[str, str]) -> Processes:
    """Slurm: a task is a process where there are several on a node, else devices are what is asked for."""
    nodes = _count(said.get("nodes", "").rpartition("-")[2])
    tasks, each = _count(said.get("ntasks", "")), _count(said.get("ntasks-per-node", ""))
    if not each and tasks and nodes and tasks % nodes == 0:
        each = tasks // nodes
    devices = gpus_of(said)
    return Processes(nodes, each if each and each > 1 else devices or each)


def _mpi(words: Sequence[str], around: Processes) -> Processes:
    """MPI's launchers: processes of all hosts, and of each where they say it."""
    said = _options(words)
    total = next((_count(said[name]) for name in ("np", "n", "c") if name in said), None)
    mapped = re.search(r"ppr:(\d+):node", said.get("map-by", ""))
    each = next((_count(said[name]) for name in ("npernode", "N", "ppn", "perhost") if name in said), None)
    each = int(mapped[1]) if mapped else each
    hosts = said.get("H") or said.get("host") or said.get("hosts") or ""
    nodes = len(hosts.split(",")) if hosts else around.nodes
    if total and each:
        return Processes(total // each, each) if total % each == 0 else Processes()
    if total and nodes and total % nodes == 0:
        return Processes(nodes, total // nodes)
    return Processes(nodes or (1 if total else None), total if total and not nodes else each)


def _options(words: Sequence[str]) -> dict[str, str]:
    """Options of a command line by name, with hyphens, each with its first value; of the program's own come later."""
    found: dict[str, str] = {}
    for place, word in enumerate(words[1:], 1):
        if re.match(r"-{1,2}[A-Za-z]", word):
            name, sign, value = word.lstrip("-").partition("=")
            after = words[place + 1] if place + 1 < len(words) else ""
            found.setdefault(name.replace("_", "-"), value if sign else "" if after.startswith("-") else after)
    return found


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and int(text) else None
