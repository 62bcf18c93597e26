"""What options of Megatron-LM do to time and memory where that is not priced, and those of the run around the model.

What stands in neither table nor in ``OPTIONS`` is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.jobs.data import data, pattern, words

_SAID: Final = data("megatron/effects")
OF_VISION: Final[Mapping[str, str]] = _SAID["vision"]
"""Options of multimodal programs, by which these are known."""
UNPRICED: Final[Mapping[str, str]] = {**OF_VISION, **_SAID["unpriced"]}
"""By option, what it does."""
OF_THE_RUN: Final = pattern(words(_SAID["harmless"]))
"""Pattern of options that change no price: rates, checkpoints, data, logs, launchers."""
