"""What other frameworks call the sizes of a model, so that such a file gets the name used here in its error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pydantic import BaseModel

from costmodels.model.parts import BadModel, Experts, LatentAttention, Mamba
from costmodels.model.shape import EXPERT_SPELLINGS, LATENT_SPELLINGS, REMARKS
from hardware.errors import meant

PARTS: Final[Mapping[str, type[BaseModel]]] = {"moe": Experts, "mla": LatentAttention, "mamba": Mamba}
"""Tables within a model's."""
_SPELLINGS: Final = frozenset({*REMARKS, *EXPERT_SPELLINGS, "linear_bias", "qk_layernorm", "sliding_window_pattern"})
"""What descriptions may say in addition to the fields."""
_OTHERS: Final[Mapping[str, str]] = {
    "num_layers": "num_hidden_layers n_layer n_layers layers num_decoder_layers depth",
    "hidden_size": "hidden n_embd n_embed d_model dim model_dim embed_dim embedding_dim",
    "num_heads": "num_attention_heads n_head n_heads heads attention_heads",
    "num_query_groups": "num_kv_groups num_key_value_heads num_kv_heads n_kv_heads n_kv_head n_head_kv kv_heads"
    " multi_query_group_num num_key_value_groups kv_groups",
    "head_dim": "kv_channels d_head d_kv head_size dim_head",
    "ffn_hidden_size": "intermediate_size n_inner ffn_dim d_ff ffn ffn_size mlp_dim mlp_hidden_size feed_forward_size",
    "gated_ffn": "swiglu gated glu gated_linear_unit",
    "vocab_size": "vocabulary_size n_vocab vocab num_embeddings",
    "padded_vocab_size": "padded_vocabulary_size",
    "seq_length": "seq_len sequence_length max_seq_len max_seq_length context_length n_ctx block_size"
    " max_position_embeddings model_max_length",
    "max_positions": "n_positions max_positional_embeddings",
    "activation": "hidden_act hidden_activation activation_function act_fn",
    "norm": "normalization norm_type",
    "position": "position_embedding_type position_embedding pos_emb",
    "rotary_fraction": "rotary_percent rotary_pct partial_rotary_factor",
    "tied_embeddings": "tie_word_embeddings tie_embeddings share_embeddings",
    "qkv_bias": "attention_bias add_qkv_bias use_qkv_bias",
    "sliding_window": "window_size attention_window local_window",
    "mtp_layers": "num_nextn_predict_layers mtp_num_layers",
    "layer_pattern": "hybrid_override_pattern",
    "tokens": "train_tokens training_tokens num_tokens",
    "moe.num_experts": "num_local_experts n_routed_experts moe_num_experts num_moe_experts n_experts",
    "moe.top_k": "num_experts_per_tok num_experts_per_token moe_router_topk moe_topk topk experts_per_token moe_top_k",
    "moe.expert_ffn_hidden_size": "moe_ffn_hidden_size moe_intermediate_size expert_intermediate_size",
    "moe.num_shared_experts": "n_shared_experts",
    "moe.shared_expert_ffn_hidden_size": "shared_expert_intermediate_size moe_shared_expert_intermediate_size",
    "moe.dense_layers": "first_k_dense_replace n_dense_layers num_dense_layers",
    "moe.moe_every": "moe_layer_freq decoder_sparse_step moe_layer_interval",
    "mamba.num_heads": "mamba_num_heads",
    "mamba.head_dim": "mamba_head_dim",
    "mamba.state_size": "mamba_state_dim ssm_state_size d_state",
    "mamba.num_groups": "mamba_num_groups n_groups",
    "mamba.conv_kernel": "d_conv",
}
_MEANT: Final = {other: name for name, others in _OTHERS.items() for other in others.split()}


def check_names(shape: Mapping[str, object], fields: Iterable[str], label: str) -> None:
    """Refuse what is no field of a model, of its experts, its latent attention or its mixers, with the one meant.

    Raises:
        BadModel: one line.
    """
    _check(shape, fields, _SPELLINGS, "", label)
    for part, record in PARTS.items():
        table = shape.get(part)
        if isinstance(table, Mapping):
            _check(table, record.model_fields, LATENT_SPELLINGS if part == "mla" else (), part, label)


def _check(table: Mapping[str, object], fields: Iterable[str], also: Collection[str], part: str, label: str) -> None:
    known = tuple(fields)
    for name in table:
        if name not in known and name not in also:
            where = f"{part}.{name}" if part else name
            raise BadModel(f"model {label!r}: {where:.60}: there is no such field; {_hint(name, known, part)}")


def _hint(name: str, known: Iterable[str], part: str) -> str:
    plain = name.lower().strip("-").replace("-", "_")
    target = _MEANT.get(plain) or next(
        (f"{table}.{plain}" for table, record in PARTS.items() if plain in record.model_fields), ""
    )
    if not target:
        return meant(name, known)
    table, _, field = target.rpartition(".")
    where = "" if table == part else f" under [{table}]" if table else f" outside of [{part}]"
    return f"did you mean {field}{where}?"
