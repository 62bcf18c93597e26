"""The launches of a shell script, and which of them is meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.errors import BadRequest
from planner.jobs.megatron.options import script_words
from planner.jobs.reader import CommandReader, Context, JobFile, Launch, Reader

_SHOWN: Final = 60
"""Characters of a command line in a list of several."""


@dataclass(frozen=True)
class Started:
    """A launch, and the reader of its program."""

    launch: Launch
    reader: CommandReader


def launches(file: JobFile, context: Context) -> tuple[Launch, ...]:
    """The command lines that a script runs; its words are taken as one until it is evaluated.

    Raises:
        BadRequest: it is no script.
    """
    return (Launch(tuple(script_words(file.text)), environment=context.environment),)


def started(file: JobFile, context: Context, readers: Sequence[Reader]) -> tuple[Started, ...]:
    """The launches of a script that start a training that is known here, each once.

    Raises:
        BadRequest: it is no script.
    """
    of_lines = [one for one in readers if isinstance(one, CommandReader)]
    found = {
        launch.words: Started(launch, reader)
        for launch in reversed(launches(file, context))
        if (reader := next((one for one in of_lines if one.recognises(launch)), None))
    }
    return tuple(sorted(found.values(), key=lambda one: one.launch.line))


def chosen(file: JobFile, found: Sequence[Started], number: int | None) -> Started:
    """The launch that is meant.

    Args:
        file: the script.
        found: its launches; at least one.
        number: of the one that is meant, from 1; None where nobody said.

    Raises:
        BadRequest: there are several and none is named, or there is none of that number.
    """
    if number is None and len(found) == 1:
        return found[0]
    if number is None or number > len(found):
        lines = "; ".join(
            f"{place}: line {one.launch.line} {shlex.join(one.launch.words):.{_SHOWN}}"
            for place, one in enumerate(found, 1)
        )
        asked = f"no launch {number}; " if number else ""
        raise BadRequest(f"{file.path}: {asked}it starts {len(found)} trainings, --launch N says which ({lines})")
    return found[number - 1]
