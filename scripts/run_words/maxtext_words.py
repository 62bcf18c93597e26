"""What MaxText was when Google's tables of 2023 were measured with it, by its own code at their commits.

Its README and scripts tell the run; the model is that of the code beside them, which was replaced by Llama's in
February 2024 (base.yml at 80e650a90) [MaxText].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

Row = Mapping[str, Any]

TABLES: Final = r"MaxText (tpu configuration READMEs|TPU v5p configuration README)"
"""Sources whose runs are of those tables: TPU v5e and v5p first at commit 76bd53b, TPU v4 at 281e04bf3."""
VOCABULARY: Final = 32_768
HEAD: Final = 256


def as_programmed(row: Row) -> Row:
    """The run with the model, the attention and the counted FLOP of the code that it ran; other runs as they are.

    Every layer adds up attention and a feed-forward network without gate, both of one norm's output (``layers.py``
    and ``layers/models.py``, ``DecoderLayer``), heads are 256 wide, the embedding is the head as well, and between
    layers the hidden states are split over the tensor ranks (``activation_embed``). TPU v4's table is of April 2023,
    before there was a fused attention. A policy of MaxText's by its name keeps what it keeps, not Megatron's modules.
    """
    if policy := re.search(r"policy (save_dot_\w+)", f"{row.get('filled')} {row.get('notes')}"):
        return {**row, "strategy": {**row["strategy"], "recompute_detail": policy[1]}}
    if not _tabled(row):
        return row
    early = _early(row)
    model, plan = _model(row), dict(row["strategy"])
    plan["sequence_parallel"] = int(plan.get("tp") or 1) > 1
    if plan["recompute"] == "selective" and "v5e" in str(row["cluster"].get("accelerator")):
        plan |= {"recompute": "full", "recompute_detail": None}  # v5e/128b.sh: remat_policy=full
    return {
        **row,
        "model": model,
        "strategy": plan,
        "stack": {**row["stack"], "attention": not early},
    }


def counted(row: Row) -> str | None:
    """The definition of ``costmodels.model.flops`` that the tables' TFLOP/s count by; None for other runs.

    ``train.py`` counts 6 N tokens beside TPU v4's table, and causal attention as well beside the others.
    """
    if not _tabled(row):
        return None
    return "6N" if _early(row) else "model-causal"


POLICIES: Final = (
    (r"minimal_flash|minimal_with_context", "up-projections"),
    (r"minimal", "products"),
    (r"save_dot_with_context_except_mlp", "feed-forward"),
    (r"save_dot_except_mlp|qkv and attention output offloaded", "attention-products"),
    (r"dgxc-benchmarking v24\.11\.1\b.* custom remat", "attention-products"),
)
"""Words on the source and on what a policy keeps, and the kind of selective recomputation that does.

The custom policy of NVIDIA's recipe is ``query_proj``, ``value_proj``, ``key_proj``, ``qkv_proj`` and ``out_proj`` at
v24.11.1, ``save_qkv_proj`` at v25.02 (``maxtext/configure.sh``)."""


def kept(row: Row) -> str | None:
    """The kind of selective recomputation that a run's policy is, where it is not the usual one.

    Recipes name what they keep, or move to the host: "out_proj" beside the three projections, or every product but
    the feed-forward network's (``layers/decoders.py``, ``get_remat_policy``).
    """
    said = f"{row.get('source')} {row['strategy'].get('recompute_detail')}".lower()
    return next((kind for words, kind in POLICIES if re.search(words, said)), None)


UNFUSED: Final = r"gpt3|llama2|405b|gemma3|mixtral"
"""Models of Trillium's recipes that leave ``sa_use_fused_bwd_kernel`` off, as it is by default (``base.yml``)."""


def attention_kernels(row: Row) -> tuple[str, ...] | None:
    """Kernels that a recipe of MaxText's asks for; None where it leaves them to the stack."""
    recipe = re.search(r"tpu-recipes training/trillium", str(row.get("source"))) is not None
    split = recipe and re.search(UNFUSED, str(row["model"].get("name")).lower()) is not None
    return ("splash-two-pass",) if split else None


RECIPES: Final = ((r"tpu-recipes training/trillium", "mixtral", {"expert_capacity": 1.25, "expert_masks": True}),)
"""Words on the source and on the model, and what its recipe says of experts: "mixtral_8x7b_dropped" has
``capacity_factor`` 1.25, and ``megablox`` and ``sparse_matmul`` off (``maxtext_trillium_model_configs.py`` of MaxText's
benchmarks, and ``dense_matmul`` of its ``layers/linears.py``)."""


def expert_fields(row: Row) -> dict[str, Any]:
    """Fields of the stack that a recipe of MaxText's settles of experts, where they are not the dropless usual ones."""
    source, name = str(row.get("source")).lower(), str(row["model"].get("name")).lower()
    return next((dict(found) for words, model, found in RECIPES if re.search(words, source) and model in name), {})


def _tabled(row: Row) -> bool:
    return re.search(TABLES, str(row.get("source"))) is not None


def _early(row: Row) -> bool:
    return row["cluster"].get("accelerator") == "tpu-v4"


def _model(row: Row) -> dict[str, Any]:
    """Sizes of base.yml, doubled in turn by the scale: heads and feed-forward first, then width, then depth.

    TPU v4's scripts state theirs.
    """
    model = {
        **row["model"],
        "gated_ffn": False,
        "vocab_size": VOCABULARY,
        "head_dim": HEAD,
        "tied_embeddings": True,
        "notes": "parallel block",
    }
    if _early(row):
        return model
    depth, rest = divmod(int(_size(row)[:-1]).bit_length() - 1, 3)
    heads = 8 * 2 ** (depth + (rest > 0))
    return model | {
        "num_layers": 16 * 2**depth,
        "hidden_size": 2560 * 2 ** (depth + (rest > 1)),
        "num_heads": heads,
        "num_query_groups": heads,
        "ffn_hidden_size": 1024 * heads,
    }


def _size(row: Row) -> str:
    """The size in the name of the model, such as "32B"."""
    return str(row["model"]["name"]).removeprefix("MaxText ")
