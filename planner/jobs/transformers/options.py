"""What Transformers' TrainingArguments and the scripts around them say, as of Transformers 5; older names are read.

Trainers that are built on them have these options too, with a few of their own added or in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.jobs.data import data, words
from planner.jobs.options import Option, Options, rows

_SAID: Final = data("transformers/words")


def training_options(*own: Option) -> Options:
    """TrainingArguments with a trainer's own options, each in the place of the one of its field if there is one."""
    return Options(*({row.field: row for row in rows(_SAID["options"], {})} | {row.field: row for row in own}).values())


OPTIONS: Final = training_options()
RANKED: Final[Mapping[str, str]] = _SAID["ranked"]
"""By the beginning of its name, what an optimizer is priced as whose states are fewer than any bytes per parameter."""
PAGED: Final = "paged_"
"""Begins the names of optimizers whose states move to the host where the device runs out."""
ATTENTION: Final = {
    **dict.fromkeys(("eager", "off", "disabled"), ("unfused",)),
    **dict.fromkeys(("flash_attention_2", "fa2", "flash_attn", "true", "1", "yes", "kernels-community/flash-attn2"),
                    ("flash-2", "flash-1")),
    **dict.fromkeys(("flash_attention_3", "fa3", "flash_attention_4", "kernels-community/flash-attn3",
                     "kernels-community/vllm-flash-attn3"), ("flash-3", "flash-2")),
    **dict.fromkeys(("sdpa", "auto", "false", "0", "no", "none", ""), None),
}  # fmt: skip
"""Kernels by what ``attn_implementation`` says; None: as PyTorch's scaled_dot_product_attention chooses."""
FORMATS: Final = {word: meant for meant, names in _SAID["formats"].items() for word in words(names)}
"""Formats by what ``dtype`` says."""
TARGETS: Final = {name: meant for meant, names in _SAID["targets"].items() for name in words(names)}
"""Modules of Transformers' models by the names of Megatron's."""
EVERYWHERE: Final = frozenset(words(_SAID["everywhere"]))
EFFECTS: Final[Mapping[str, str]] = _SAID["unpriced"]
"""What options do that are read and not priced."""
HARMLESS: Final = words(_SAID["harmless"])
"""Options that change neither time nor memory of an iteration."""
