"""What every command line of verl has: overrides as ``path=value``, and the paths that both engines read."""

from __future__ import annotations

from typing import Final

from planner.jobs.reader import Launch

ACTOR: Final = "actor_rollout_ref.actor."
MODEL: Final = "actor_rollout_ref.model."
LENGTHS: Final = ("data.max_prompt_length", "data.max_response_length")
SAMPLES: Final = "actor_rollout_ref.rollout.n"
"""Responses to every prompt, each of them a sequence of the actor's batch."""


def pairs_of(launch: Launch) -> dict[str, str]:
    """The overrides of a command line."""
    pairs = (word.lstrip("+~").partition("=") for word in launch.words if "=" in word and not word.startswith("--"))
    return {name: value.strip("'\"") for name, _, value in pairs}
