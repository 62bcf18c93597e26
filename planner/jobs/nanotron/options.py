"""The keys of nanotron's YAML, as of commit 2411b02 and of release 0.4."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import options_of
from planner.jobs.values import words

RELEASE: Final = "0.4"
ADAM: Final = {"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "torch_adam_is_fused": True}

OPTIONS: Final = options_of("nanotron")
"""Keys by field, in the order in which they are written."""
SIZES: Final = words("""
hidden_size ffn_hidden_size num_layers num_heads num_query_groups tied_embeddings vocab_size
""")
CARRIED: Final = ("optimizer", *(f"model.{name}" for name in SIZES))
"""Choices and paths of changes that its file has."""
