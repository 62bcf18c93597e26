"""The launches of a shell script."""

from __future__ import annotations

from planner.jobs.megatron.options import script_words
from planner.jobs.reader import Context, JobFile, Launch


def launches(file: JobFile, context: Context) -> tuple[Launch, ...]:
    """The command lines that a script runs; its words are taken as one until it is evaluated.

    Raises:
        BadRequest: it is no script.
    """
    return (Launch(tuple(script_words(file.text)), environment=context.environment),)
