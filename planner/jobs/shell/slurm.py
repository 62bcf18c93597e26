"""What the head of a Slurm script says: its directives, and the variables that Slurm sets for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from planner.jobs.data import data
from planner.jobs.data import words as names_in

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
