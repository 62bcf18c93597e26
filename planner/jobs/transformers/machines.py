"""How many GPUs a command line starts a training on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.jobs.reader import Launch
from planner.jobs.shell.processes import processes
from planner.jobs.transformers.arguments import Started, whole_of


def gpus_of(launch: Launch, start: Started, accelerate: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """GPUs of a launch, None where nothing says them, and what was assumed for it.

    Args:
        launch: as the shell evaluated it.
        start: the same, taken apart.
        accelerate: the configuration of ``accelerate launch``, completed by its options.
    """
    count = (whole_of(accelerate, "num_processes") if accelerate is not None else None) or processes(launch)
    alone = Path(launch.words[0]).name.startswith("python") and "-m" not in start.launcher and not launch.outer
    if count is None and alone:
        return 1, "it starts without a launcher, so on one GPU; --gpus changes it"
    return count, ""
