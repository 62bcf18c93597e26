"""Floating-point operations of training, under the named definitions that publications use.

A multiplication and an addition count as two operations. An efficiency only means something together with
the definition of the operations it counts, so every count here has a name in `DEFINITIONS`.

Symbols of the papers: L layers, H hidden size, S sequence length, V vocabulary, N parameters (of experts,
those that a token meets).
"""

from collections import Counter
from collections.abc import Callable
from typing import Literal

from costmodels.model.layer_kinds import DENSE, EXPERTS, Kind, layer_kinds
from costmodels.model.mamba import mamba_projection_weights, scan_flops
from costmodels.model.model import Model
from costmodels.model.parameters import (
    active_parameters,
    attention_projections,
    embedding_projection_parameters,
    expert_projection_parameters,
    localized_filtering_parameters,
)
from costmodels.primitives.kernels import attention_flops as pair_flops
from hardware.errors import MeshwrightError

Recompute = Literal["none", "selective", "full"]


class UnknownDefinition(MeshwrightError):
    """A FLOP definition that does not exist."""


PETAFLOPS_DAY = 8.64e19
"""FLOP of one petaflop/s-day, 1e15 FLOP/s for 86,400 s."""

FORWARD_AND_BACKWARD = 3
"""The backward pass multiplies twice per forward multiplication: by the weight and by the input."""


def attention_matmul_weights(model: Model) -> int:
    """Weights of one layer's attention projections, and of localized filtering."""
    projections = sum(projection.weights for projection in attention_projections(model))
    return projections + localized_filtering_parameters(model)


def layer_matmul_weights(model: Model) -> int:
    """Weights of one dense layer that multiply every token, without biases and norms."""
    return kind_matmul_weights(model, DENSE)


def moe_layer_matmul_weights(model: Model) -> int:
    """Weights of one layer with experts that multiply a token: of the experts, those it is routed to.

    Attention, router, projections to and from the experts' width, `top_k` routed experts, shared experts and
    their gate; no token is dropped. 0 without experts.
    """
    return 0 if model.moe is None else kind_matmul_weights(model, EXPERTS)


def kind_matmul_weights(model: Model, kind: Kind) -> int:
    """Weights of one layer of a kind that multiply a token."""
    mixer = attention_matmul_weights(model) if kind.attends else 0
    mixer += mamba_projection_weights(model) if kind.mixer == "mamba" else 0
    dense = (model.fc1_width + model.ffn_hidden_size) * model.hidden_size
    return mixer + (dense if kind.ffn == "dense" else expert_matmul_weights(model) if kind.ffn == "experts" else 0)


def expert_matmul_weights(model: Model) -> int:
    """Weights of one layer's router and experts that multiply a token; 0 without experts."""
    moe = model.moe
    if moe is None:
        return 0
    matrices, h = model.ffn_branches + 1, model.hidden_size
    routed = moe.top_k * matrices * moe.expert_ffn_hidden_size * model.expert_hidden_size
    shared = matrices * moe.shared_expert_ffn_hidden_size * h + int(moe.shared_expert_gate) * h
    router = moe.num_experts * h + expert_projection_parameters(model)
    return router + routed + shared


def mtp_matmul_weights(model: Model) -> int:
    """Weights of all multi-token-prediction layers that multiply a token, without logits."""
    layer = layer_matmul_weights(model) if model.moe is None else moe_layer_matmul_weights(model)
    return model.mtp_layers * (layer + 2 * model.hidden_size**2)


def layers_matmul_weights(model: Model) -> int:
    """Weights of all layers together that multiply a token, multi-token-prediction layers included."""
    kinds = Counter(layer_kinds(model))
    return sum(count * kind_matmul_weights(model, kind) for kind, count in kinds.items()) + mtp_matmul_weights(model)


def logit_matmul_weights(model: Model) -> int:
    """Weights that multiply every token outside the layers: the output head, and embedding projections.

    Every multi-token-prediction layer passes the head once more.
    """
    width = model.embedding_width if model.tied_embeddings else model.hidden_size
    return (1 + model.mtp_layers) * model.vocab_size * width + embedding_projection_parameters(model)


def attended_tokens(model: Model, *, seq_length: int, causal: bool = False, windowed: bool = True) -> float:
    """Tokens that one token attends to, summed over all layers and averaged over the sequence.

    A global layer counts S, or S/2 when `causal`. A local layer with window w <= S counts w, or
    w - w^2 / 2S when `causal` (the first tokens have fewer predecessors), which meets S/2 at w = S; one that
    attends in chunks of w, w or w/2.
    Multi-token-prediction layers are global.

    Args:
        model: The architecture.
        seq_length: Sequence length S, tokens.
        causal: Leave out pairs with later tokens, as fused attention kernels do.
        windowed: Honour the sliding window; otherwise every layer is global.
    """
    every_layer = seq_length / 2 if causal else float(seq_length)
    if not windowed or model.sliding_window is None:
        return (model.num_attention_layers + model.mtp_layers) * every_layer
    window = min(model.sliding_window, seq_length)
    local = window - window**2 / (2 * seq_length) if causal else float(window)
    if model.chunked_attention:
        whole, rest = divmod(seq_length, window)
        local = (whole * window**2 + rest**2) / seq_length / (2 if causal else 1)
    global_layers = model.num_global_layers
    return (global_layers + model.mtp_layers) * every_layer + (model.num_attention_layers - global_layers) * local


def attention_flops(model: Model, *, seq_length: int, causal: bool = False, windowed: bool = True) -> float:
    """Forward FLOP per token of scores and weighted values in all layers.

    Per attended token, 2 for each element of a query (scores) and 2 for each of a value: 4 times the
    attention width where both are as wide.
    """
    span = attended_tokens(model, seq_length=seq_length, causal=causal, windowed=windowed)
    return float(pair_flops(pairs=span, key_width=model.attention_width, value_width=model.attention_output_width))


def forward_flops(
    model: Model, *, seq_length: int, causal: bool = False, windowed: bool = True, logits: bool = True
) -> float:
    """FLOP per token of one forward pass: 2 per weight that multiplies it, plus attention and Mamba-2 scans."""
    weights = layers_matmul_weights(model)
    weights += logit_matmul_weights(model) if logits else 0
    attention = attention_flops(model, seq_length=seq_length, causal=causal, windowed=windowed)
    scans = model.layer_pattern.count("M")
    return 2.0 * weights + attention + (scans * scan_flops(model) if scans else 0.0)


def model_flops(model: Model, *, seq_length: int, causal: bool = False, windowed: bool = False) -> float:
    """FLOP per token of training without recomputation: one forward and one backward pass with logits.

    For a plain GPT it is 72 L H^2 (1 + S/6H + V/12LH) (Narayanan et al. 2021, arXiv 2104.04473, without
    its recomputed forward pass), equally 6 x weights + 12 L S H (PaLM, arXiv 2204.02311, appendix B);
    here for any head width, grouped queries, gated feed-forward networks, latent attention, the experts that
    a token is routed to, and multi-token-prediction layers.

    Args:
        model: The architecture.
        seq_length: Sequence length S, tokens.
        causal: Count only the pairs that causal attention needs, about half.
        windowed: Count only the pairs inside the sliding window.

    Returns:
        FLOP per token.

    >>> from costmodels.model.catalogue import model
    >>> gpt, L, H, S = model("gpt3-175b"), 96, 12288, 2048
    >>> round(model_flops(gpt, seq_length=S) / (72 * L * H**2 * (1 + S / (6 * H) + gpt.vocab_size / (12 * L * H))), 9)
    1.0
    """
    return FORWARD_AND_BACKWARD * forward_flops(model, seq_length=seq_length, causal=causal, windowed=windowed)


def recomputed_flops(
    model: Model,
    *,
    seq_length: int,
    recompute: Recompute,
    num_layers: int | None = None,
    causal: bool = False,
    windowed: bool = False,
) -> float:
    """FLOP per token that the backward pass spends on repeating the forward pass.

    "selective" repeats scores and weighted values (Korthikanti et al. 2022, arXiv 2205.05198, section 5),
    "full" whole layers; logits are never repeated.

    Args:
        model: The architecture.
        seq_length: Sequence length, tokens.
        recompute: What is repeated.
        num_layers: Layers that are repeated; all when None.
        causal: As in `model_flops`.
        windowed: As in `model_flops`.
    """
    if recompute == "none":
        return 0.0
    share = 1.0 if num_layers is None else num_layers / model.num_layers
    if recompute == "selective":
        repeated = attention_flops(model, seq_length=seq_length, causal=causal, windowed=windowed)
    else:
        repeated = forward_flops(model, seq_length=seq_length, causal=causal, windowed=windowed, logits=False)
    return share * repeated


def module_flops(model: Model, *, seq_length: int, modules: tuple[str, ...], windowed: bool = False) -> float:
    """FLOP per token that repeating named modules of every layer adds; norms and activations multiply nothing.

    Args:
        model: The architecture.
        seq_length: Sequence length, tokens.
        modules: Names of ``costmodels.strategy.MODULES``.
        windowed: As in `model_flops`.
    """
    matrices, h, moe = model.ffn_branches + 1, model.hidden_size, model.moe
    shared = matrices * moe.shared_expert_ffn_hidden_size * h if moe else 0
    up = sum(p.weights for p in attention_projections(model) if p.name in {"q_up", "kv_up"})
    weights = {
        "mlp": model.num_dense_layers * (model.fc1_width + model.ffn_hidden_size) * h,
        "moe": model.num_moe_layers * (moe_layer_matmul_weights(model) - attention_matmul_weights(model) if moe else 0),
        "shared_experts": model.num_moe_layers * shared,
        "mla_up_proj": model.num_layers * up,
    }
    core = attention_flops(model, seq_length=seq_length, windowed=windowed) if "core_attn" in modules else 0.0
    return core + 2.0 * sum(weights.get(name, 0) for name in modules)


def hardware_flops(
    model: Model,
    *,
    seq_length: int,
    recompute: Recompute = "none",
    causal: bool = False,
    windowed: bool = False,
) -> float:
    """FLOP per token that the accelerators carry out: `model_flops` and what is recomputed.

    With "full" and a plain GPT it is 96 L H^2 (1 + S/6H + V/16LH) (Narayanan et al. 2021, equation 3).
    """
    return model_flops(model, seq_length=seq_length, causal=causal, windowed=windowed) + recomputed_flops(
        model, seq_length=seq_length, recompute=recompute, causal=causal, windowed=windowed
    )


def _six_n(model: Model, _seq_length: int, _recompute: Recompute) -> float:
    return 6.0 * active_parameters(model)


def _eight_n(model: Model, _seq_length: int, _recompute: Recompute) -> float:
    return 8.0 * active_parameters(model)


def _model(model: Model, seq_length: int, _recompute: Recompute) -> float:
    return model_flops(model, seq_length=seq_length)


def _model_window(model: Model, seq_length: int, _recompute: Recompute) -> float:
    return model_flops(model, seq_length=seq_length, windowed=True)


def _model_causal(model: Model, seq_length: int, _recompute: Recompute) -> float:
    return model_flops(model, seq_length=seq_length, causal=True, windowed=True)


def _hardware(model: Model, seq_length: int, recompute: Recompute) -> float:
    return hardware_flops(model, seq_length=seq_length, recompute=recompute)


def _hardware_no_logits(model: Model, seq_length: int, recompute: Recompute) -> float:
    logits = FORWARD_AND_BACKWARD * 2.0 * logit_matmul_weights(model)
    return _hardware(model, seq_length, recompute) - logits


def _yuan2_printed(model: Model, _seq_length: int, _recompute: Recompute) -> float:
    return 96.0 * model.num_layers * model.hidden_size**2 * (1 + 1 / (6 * model.hidden_size))


DEFINITIONS: dict[str, tuple[Callable[[Model, int, Recompute], float], str]] = {
    "6N": (_six_n, "6 per active parameter, attention left out (the GPT-3 paper's 3640 petaflop/s-days)"),
    "8N": (_eight_n, "8 per active parameter: 6N and a recomputed forward pass (Yuan 1.0's 4095 petaflop/s-days)"),
    "model": (_model, "weights, full attention and logits, nothing recomputed (Megatron-LM, PaLM MFU)"),
    "model-window": (_model_window, "as model, attention cut to the sliding window (MegaScale)"),
    "model-causal": (_model_causal, "as model-window, attention cut to the causal half"),
    "hardware": (_hardware, "as model, and what is recomputed (Megatron-LM 2021 with full recomputation)"),
    "hardware-no-logits": (_hardware_no_logits, "as hardware, logits left out (Yuan 1.0's 44.8 %)"),
    "yuan2-printed": (
        _yuan2_printed,
        "96 L H^2 (1 + 1/6H), the Yuan 2.0 paper's equation 1 as printed and evaluated there",
    ),
}
"""Name to function of (model, sequence length, recomputation) in FLOP per token, and what it counts."""


def flops_per_token(
    model: Model, *, seq_length: int, definition: str = "model", recompute: Recompute = "none"
) -> float:
    """Training FLOP per token under a named definition.

    Args:
        model: The architecture.
        seq_length: Sequence length, tokens.
        definition: A name in `DEFINITIONS`.
        recompute: What is recomputed; only the hardware definitions read it.

    Raises:
        UnknownDefinition: There is no such definition.
    """
    if definition not in DEFINITIONS:
        raise UnknownDefinition(f"FLOP definition {definition!r} is unknown; there are {', '.join(DEFINITIONS)}")
    function, _sentence = DEFINITIONS[definition]
    return function(model, seq_length, recompute)


def frozen_flops(model: Model) -> float:
    """FLOP per token of all weights' gradients: what a run with frozen weights leaves out."""
    return 2.0 * (layers_matmul_weights(model) + logit_matmul_weights(model))


def flops_per_iteration(
    model: Model,
    *,
    global_batch_size: int,
    seq_length: int,
    definition: str = "model",
    recompute: Recompute = "none",
) -> float:
    """Training FLOP of one iteration over `global_batch_size` sequences."""
    per_token = flops_per_token(model, seq_length=seq_length, definition=definition, recompute=recompute)
    return per_token * global_batch_size * seq_length


def petaflops_days(flops: float) -> float:
    """Petaflop/s-days of a number of FLOP: 1e15 FLOP/s for a day, 8.64e19 FLOP.

    >>> round(petaflops_days(6 * 175e9 * 300e9))  # 6 N D
    3646
    """
    return flops / PETAFLOPS_DAY


def utilization(*, flops: float, seconds: float, gpus: int, peak: float) -> float:
    """Share of the accelerators' peak that an iteration uses: of model FLOP MFU, of hardware FLOP HFU.

        F / (t n P)

    Args:
        flops: F, of the iteration, by one of `DEFINITIONS`.
        seconds: t, of the iteration.
        gpus: n, accelerators.
        peak: P, dense FLOP per second of one.

    Returns:
        A share.

    Source:
        [Chowdhery22], appendix B.

    >>> round(utilization(flops=4.5e18, seconds=30.0, gpus=1024, peak=312e12), 3)
    0.47
    """
    return flops / (seconds * gpus * peak)
