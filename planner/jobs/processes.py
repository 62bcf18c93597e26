"""How many processes, one a device, a launch starts: torchrun's options, and those of Slurm around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from planner.jobs.reader import Launch

_SHORT: Final = {"-N": "nodes", "-n": "ntasks"}
_RUN: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Options of a command line by name, with underscores, and their first word; empty where they have none."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
        elif word in _SHORT:
            name, sign, value = _SHORT[word], "", ""
        else:
            continue
        after = words[place + 1] if place + 1 < len(words) else ""
        found[name.replace("-", "_")] = value if sign else "" if after.startswith("-") else after
    return found


def processes(launch: Launch) -> int | None:
    """Devices of a launch; None where it does not say."""
    own = options_of(launch.words)
    around = {name: value for words in launch.outer for name, value in options_of(words).items()}
    if any(word.rpartition("/")[2] in _RUN for word in launch.words):
        each = _count(own.get("nproc_per_node", "1")) or _each(around)
        nodes = _count(own["nnodes"].rpartition(":")[2]) if "nnodes" in own else 1
        return nodes * each if nodes and each else None
    tasks, nodes = _count(around.get("ntasks", "")), _count(around.get("nodes", ""))
    if tasks or not nodes:
        return tasks
    each = _count(around.get("ntasks_per_node", "")) or _each(around)
    return nodes * each if each else None


def _each(around: Mapping[str, str]) -> int | None:
    """Devices of a node, as Slurm is asked for them."""
    said = around.get("gpus_per_node") or around.get("gres", "").partition("gpu")[2]
    return _count(said.rpartition(":")[2])


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and int(text) else None
