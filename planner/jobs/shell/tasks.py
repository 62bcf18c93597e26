"""Scripts that stand in files of schedulers: the commands of Kubernetes' containers, and what a SkyPilot task runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final

from planner.jobs.reader import JobFile
from planner.jobs.values import at_path, whole
from planner.jobs.yaml_text import parse_yaml

_KUBERNETES: Final = re.compile(r"^apiVersion:", re.MULTILINE)
_BETWEEN: Final = re.compile(r"^---.*$", re.MULTILINE)
_OF_CONTAINER: Final = re.compile(r"\$\((\w+)\)")
"""A variable as Kubernetes writes it in a command."""
_RESOURCES: Final = ("resources", "resourcesPerNode")
_OPTION: Final = re.compile(r"-\w*c\w*")
"""Of a shell, that the next word is a script."""


@dataclass(frozen=True)
class _Task:
    """What is run, as a shell would, the variables that are set for it, and the accelerators, any of them."""

    script: str
    environment: Mapping[str, str]
    devices: tuple[str, ...] = ()


def scripted(file: JobFile) -> JobFile:
    """The file; of a task the script that it runs, whose lines are where they were where it has lines."""
    several = file.document is None and _KUBERNETES.search(file.text) is not None
    documents = _documents(file.text) if several else [file.document or {}]
    found = next((task for document in documents for task in _tasks(document)), None)
    return replace(file, text=_text(found, file.text), devices=found.devices) if found else file


def _documents(text: str) -> Iterator[Mapping[str, Any]]:
    """The tables of a file that has several, one behind the other."""
    for part in _BETWEEN.split(text):
        with suppress(ValueError):
            if isinstance(found := parse_yaml(part), Mapping):
                yield found


def _tasks(document: Mapping[str, Any]) -> Iterator[_Task]:
    if isinstance(document.get("run"), str) and {"resources", "num_nodes"} & set(document):
        yield _of_skypilot(document)
    elif {"apiVersion", "kind"} <= set(document):
        yield from _of_kubernetes(document)


def _text(task: _Task, whole_text: str) -> str:
    exports = " ".join(f"export {name}={shlex.quote(value)};" for name, value in task.environment.items())
    first = next((line.strip() for line in task.script.splitlines() if line.strip()), "")
    at = next((place for place, line in enumerate(whole_text.splitlines(), 1) if line.strip() == first), 2)
    return f"#!/bin/bash\n{exports}" + "\n" * max(1, at - 2) + task.script.lstrip("\n")


def _of_skypilot(document: Mapping[str, Any]) -> _Task:
    kinds = at_path(document, "resources.accelerators")
    each = next(iter(kinds.values()), None) if isinstance(kinds, Mapping) else str(kinds or "").rpartition(":")[2]
    own = {"SKYPILOT_NUM_NODES": whole(document.get("num_nodes")) or 1, "SKYPILOT_NUM_GPUS_PER_NODE": whole(each)}
    envs = document.get("envs")
    said = {**(envs if isinstance(envs, Mapping) else {}), **own}
    environment = {str(name): str(value) for name, value in said.items() if value is not None}
    return _Task(document["run"], environment, tuple(_kinds_of_skypilot(document.get("resources"))))


def _kinds_of_skypilot(resources: Any) -> Iterator[str]:
    """Accelerators by name, of which SkyPilot takes one kind."""
    if not isinstance(resources, Mapping):
        return
    said = resources.get("accelerators")
    for one in said if isinstance(said, list | Mapping) else [said or ""]:
        if name := str(one).partition(":")[0].strip():
            yield name
    for other in (*(resources.get("any_of") or ()), *(resources.get("ordered") or ())):
        yield from _kinds_of_skypilot(other)


def _of_kubernetes(document: Mapping[str, Any]) -> Iterator[_Task]:
    """What the containers run that have accelerators, else all; every copy of a pod is a node."""
    every = [*_containers(document, 1)]
    containers = [one for one in every if _devices(one[0])] or every
    pods = sum(copies for _, copies in containers)
    for container, _ in containers:
        words = [str(word) for name in ("command", "args") for word in container.get(name) or ()]
        if words:
            own = {"WORLD_SIZE": str(pods), "PET_NNODES": str(pods)}
            own |= {"PET_NPROC_PER_NODE": devices} if (devices := _devices(container)).isdecimal() else {}
            said = {str(one["name"]): str(one["value"]) for one in container.get("env") or () if "value" in one}
            yield _Task(_script(words), {**own, **said})


def _containers(at: Any, copies: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Every container, with the copies of its pod."""
    if isinstance(at, Mapping):
        copies *= next((count for name in ("replicas", "parallelism", "numNodes") if (count := whole(at.get(name)))), 1)
        for name, inner in at.items():
            if name == "containers" and isinstance(inner, list):
                yield from ((one, copies) for one in inner if isinstance(one, Mapping))
            else:
                yield from _containers(inner, copies)
        if "numNodes" in at:  # Kubeflow's trainer is a container and its copies
            yield at, copies
    elif isinstance(at, list):
        for one in at:
            yield from _containers(one, copies)


def _devices(container: Mapping[str, Any]) -> str:
    """GPUs of a container, as it asks for them."""
    tables = [at_path(container, f"{place}.{kind}") for place in _RESOURCES for kind in ("limits", "requests")]
    counts = (count for table in tables for name, count in (table or {}).items() if str(name).endswith("/gpu"))
    return str(next(counts, ""))


def _script(words: Sequence[str]) -> str:
    """A command as a shell would take it; that of a shell is its script."""
    at = next((at for at, word in enumerate(words[:-1]) if at and _OPTION.fullmatch(word)), 0)
    if at and PurePath(words[0]).name.endswith("sh"):
        return _OF_CONTAINER.sub(r"${\1}", words[at + 1])
    filled = [_OF_CONTAINER.sub(r"${\1}", word) for word in words]  # in double quotes, so that variables are expanded
    escaped = [re.sub(r'(["\\`])', r"\\\1", word) for word in filled]
    return " ".join(
        f'"{inner}"' if "$" in word else shlex.quote(word) for word, inner in zip(filled, escaped, strict=True)
    )
