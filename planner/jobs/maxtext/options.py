"""The keys of MaxText's configuration, as of MaxText 0.2.5, with the values of its base.yml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.frameworks.maxtext import MAXTEXT
from planner.jobs.options import options_of
from planner.jobs.values import data, words

AXES: Final = ("data", "pipeline", "fsdp", "context", "tensor", "tensor_sequence", "expert")
"""Axes of its mesh that a plan may use, as they lie between slices and inside one."""

NEARLY: Final[Mapping[str, str]] = data("maxtext/words")["nearly"]
"""Policies that are priced as the nearest of the three: what they keep lies between them, or on the host."""
NARROW_STATES: Final[Mapping[str, Any]] = {"stack.states.weight_bytes": 2, "stack.states.optimizer_bytes": 8}
"""Weights in bfloat16, which have no copy in fp32, and whose moments are of their format."""
CALLED: Final[Mapping[str, str]] = {theirs: ours for ours, theirs in MAXTEXT.items()}
"""The catalogue's names of models by MaxText's."""

OPTIONS: Final = options_of("maxtext")
"""Keys by field, in the order in which they are written.

Recomputation names what is kept: every product and the attention's output, the products in front of attention, a
layer's input. Recipes are AQT's integers and Transformer Engine's; without one the products are in ``dtype``.
"""
SIZES: Final = words("""
hidden_size num_heads num_query_groups ffn_hidden_size num_layers head_dim vocab_size tied_embeddings
""")
"""What it says of the shape of a decoder of Llama's kind."""
