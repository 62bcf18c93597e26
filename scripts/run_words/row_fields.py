"""The fields of a measured run, so that a misspelt one is reported and not lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model.model import Model
from costmodels.model.shape import EXPERT_SPELLINGS
from hardware.errors import meant

Row = Mapping[str, Any]

_SAID: Final = {
    "cluster": """
    accelerator accelerator_note gpus_per_node inter_node intra_node memory_gb
    """,
    "stack": """
    attention flags framework notes overlap
    """,
    "model": """
    activation attention dense_layers dropped_capacity_factor expert_ffn experts ffn_hidden_size
    full_model_layers gated_ffn head_dim hidden_size kind linear_bias mamba mla moe_every moe_latent
    mtp_layers name norm notes num_heads num_layers num_query_groups padded_vocab_size parallel_block
    params_b params_reduced_model position qk_layernorm qkv_bias router_groups seq_length shared_expert_ffn
    shared_expert_ffn_total shared_experts sliding_window sliding_window_every sliding_window_pattern tie
    tied_embeddings top_k vocab_size
    """,
    "strategy": """
    adapters cp cp_kind dp ep etp expert_dp global_batch_size gpus layers_per_stage micro_batch_size num_microbatches
    offload pp precision precision_note recompute recompute_detail schedule sequence_parallel
    sharding_degree sharding_note tokens_per_iteration tp vpp zero_stage
    """,
    "measured": """
    breakdown_ms flops_convention gpu_hours hfu iteration_time_rule iteration_time_s memory
    memory_allocated_by_rank_mib memory_allocated_gib_candidates memory_allocated_gib_max memory_kind
    memory_measured_in_case memory_reserved_by_rank_mib memory_reserved_gib_max mfu mfu_peak_tflops notes
    oom samples_per_s samples_per_s_per_gpu tflops_per_gpu throughput_tflops_per_gpu_read_from_chart
    throughput_tflops_per_gpu_reported tokens_per_s tokens_per_s_per_gpu training_days training_tokens_b
    """,
}
_FILES: Final = {"model": frozenset(Model.model_fields) | frozenset(EXPERT_SPELLINGS)}
FIELDS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(text.split()) | _FILES.get(name, frozenset()) for name, text in _SAID.items()
}
"""By section: what is read, what published runs note besides, and of a model what files of models say."""


def unknown_fields(row: Row) -> tuple[str, ...]:
    """A note for every field of a run that nothing reads, with where it belongs or the nearest one that is read."""
    strange = [(section, name) for section, known in FIELDS.items() for name in row[section] if name not in known]
    return tuple(f"{section}.{name} is not read{_near(section, name)}" for section, name in strange)


def _near(section: str, name: str) -> str:
    elsewhere = [f"{other}.{name}" for other, known in FIELDS.items() if name in known]
    near = f"{elsewhere[0]} is" if elsewhere else meant(name, FIELDS[section], otherwise="")
    return f"; {near}" if near else ""
