"""The axes that a request may pin or restrict, in the order of the command line; imports nothing, for a quick start."""

from __future__ import annotations

PIN_AXES = (
    "tp",
    "cp",
    "cp_kind",
    "pp",
    "vpp",
    "dp",
    "ep",
    "etp",
    "zero_stage",
    "sharding_degree",
    "micro_batch_size",
    "schedule",
    "sequence_parallel",
    "recompute",
    "rank_order",
    "recompute_modules",
    "offload",
    "vocabulary",
    "recompute_num_layers",
)
