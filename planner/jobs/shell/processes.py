"""How many nodes a launch takes and how many processes, one a device, it starts on each; what Slurm's options say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePath
from typing import Final

from planner.jobs.reader import Launch
from planner.jobs.values import data
from planner.jobs.values import words as names_in

_DIRECTIVE: Final = re.compile(r"#SBATCH[ \t]+(.*)")
_SHORT: Final[Mapping[str, str]] = data("shell/words")["slurm"]["short"]
_VARIABLES: Final = {one: names_in(names) for one, names in data("shell/words")["slurm"]["variables"].items()}


def directives(text: str) -> tuple[str, ...]:
    """The words of the ``#SBATCH`` lines of a script, which stand in front of its first command."""
    found: list[str] = []
    head = takewhile(lambda line: not line.strip() or line.startswith("#"), text.splitlines())
    for line in (said[1] for line in head if (said := _DIRECTIVE.match(line))):
        try:
            found += shlex.split(line, comments=True)
        except ValueError:
            found += line.split()
    return tuple(found)


def slurm_options(words: Sequence[str]) -> dict[str, str]:
    """Slurm's options by their long names, each with its last value; an option without one has an empty value."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        after = words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("-") else ""
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("_", "-")] = value if equals else after
        elif word[:2] in _SHORT:
            found[_SHORT[word[:2]]] = word[2:].lstrip("=") if len(word) > 2 else after
    return found


def slurm_variables(words: Sequence[str]) -> dict[str, str]:
    """What Slurm sets for directives, by the name of the variable."""
    said = slurm_options(words)
    found = {name: said[option] for option, names in _VARIABLES.items() if said.get(option) for name in names}
    nodes, each = said.get("nodes", ""), said.get("ntasks-per-node", "")
    if nodes.isdecimal() and each.isdecimal() and "ntasks" not in said:
        found |= dict.fromkeys(_VARIABLES["ntasks"], str(int(nodes) * int(each)))
    if (gpus := gpus_of(said)) and "gpus-per-node" not in said:
        found["SLURM_GPUS_ON_NODE"] = str(gpus)
    elif said.get("gpus-per-node"):
        found["SLURM_GPUS_ON_NODE"] = said["gpus-per-node"].rpartition(":")[2]
    return found


def gpus_of(said: dict[str, str]) -> int | None:
    """GPUs of a node that Slurm's options ask for."""
    for name in ("gpus-per-node", "gres"):
        found = re.search(r"(?:^|,)(?:gpu(?::[\w.-]+)?:|[\w.-]+:)?(\d+)", said.get(name, ""))
        if found and (name != "gres" or said[name].startswith("gpu") or ",gpu" in said[name]):
            return int(found[1])
    return None


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
    hosts_file = launch.written.get(said.get("hostfile", "") or said.get("H", ""), "")
    slots = [int(each) for each in re.findall(r"^[ \t]*[^#\s]\S*\s+slots=(\d+)", hosts_file, re.MULTILINE)]
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


_MODULES: Final[Mapping[str, str]] = data("shell/words")["modules"]
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
