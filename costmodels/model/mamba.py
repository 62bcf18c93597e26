"""Parameters and FLOP of the Mamba-2 mixers of a model, and the bytes that their scan moves.

Formulas: [Dao24], sections 6 and 7; parameters as in Megatron-Core's MambaMixer and Hugging Face's
NemotronHMamba2Mixer.

[Dao24]: T. Dao, A. Gu, "Transformers are SSMs", arXiv 2405.21060.
[mamba-ssm]: T. Dao, A. Gu, mamba_ssm 2, GitHub state-spaces/mamba, ops/triton/ssd_combined.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from costmodels.model.parts import Mamba

if TYPE_CHECKING:
    from costmodels.model.model import Model


def mamba_of(model: Model) -> Mamba:
    """The model's mixers; only asked of models that have them."""
    assert model.mamba is not None
    return model.mamba


def mamba_vectors(model: Model) -> int:
    """Parameters of one mixer without its projections, all of which tensor parallelism shards by heads and groups.

    The convolution with its bias, three numbers per head (A, D, the bias of the time step), the scale of the gated norm
    and the biases of the projections.
    """
    mamba = mamba_of(model)
    conv = mamba.conv_width * (mamba.conv_kernel + int(mamba.conv_bias))
    biases = mamba.in_width * int(mamba.input_bias) + model.hidden_size * int(mamba.output_bias)
    return conv + 3 * mamba.num_heads + mamba.inner_width * int(mamba.gated_norm) + biases


def scan_flops(model: Model) -> float:
    """Forward FLOP per token of one mixer between its projections: convolution and chunked scan.

    With Q tokens a chunk, N states, P channels a head, H heads in G groups: G 2QN for the products of C and B
    within a chunk, H 2QP for what they weigh, H 2PN for a chunk's states and H 2PN for what earlier chunks'
    states give; the passing of states from chunk to chunk is H 2PN / Q (section 6, steps 1 to 4). The causal
    half is not left out, as the kernels compute whole blocks.
    """
    mamba = mamba_of(model)
    Q, N, P, H = mamba.chunk_size, mamba.state_size, mamba.head_dim, mamba.num_heads
    conv = 2.0 * mamba.conv_kernel * mamba.conv_width
    return conv + mamba.num_groups * 2.0 * Q * N + H * (2.0 * Q * P + 4.0 * P * N + 2.0 * P * N / Q)


class ScanKernel(NamedTuple):
    """One kernel between a mixer's projections, per token."""

    traffic: float
    """Bytes through memory."""
    flops: float = 0.0
    """Products."""
    vector: float = 0.0
    """Operations outside of matrix units."""


def scan_kernels(model: Model) -> tuple[tuple[ScanKernel, ...], tuple[ScanKernel, ...]]:
    """The kernels of one mixer between its projections, forward and backward.

    Counted tensor by tensor over the kernels of ``mamba_split_conv1d_scan_combined`` [mamba-ssm]: convolution,
    time steps, chunk states, passing of states, products of C and B, scan, gated norm. Values are 16-bit, states
    and products within a chunk 32-bit. Backward, the convolution, the chunk states and the products are computed
    again, since only the mixer's input and the scan's output are kept. Widths: d channels, g of B and of C,
    s of a chunk's states per token, q of the products per token, H heads; Q tokens a chunk, N states. Of products
    within a chunk the scan's kernels leave out the blocks that the causal mask would.
    """
    mamba = mamba_of(model)
    d, g, heads = float(mamba.inner_width), float(mamba.group_width), float(mamba.num_heads)
    Q, N = float(mamba.chunk_size), float(mamba.state_size)
    s, q = d * N / Q, float(mamba.num_groups * mamba.chunk_size)
    across, within, pairs = 2.0 * d * N, d * Q, 2.0 * g * Q
    conv, steps = ScanKernel(4.0 * (d + 2.0 * g)), ScanKernel(10.0 * heads)
    states = ScanKernel(2.0 * (d + g) + 4.0 * s, across)
    passing, products = ScanKernel(8.0 * s), ScanKernel(4.0 * (g + q), pairs)
    scan = ScanKernel(4.0 * d + 2.0 * g + 4.0 * (q + s), within + across)
    norm, gate = ScanKernel(6.0 * d), ScanKernel(10.0 * d)  # without a norm the gate is the same pass
    again = (conv, steps, states, passing, products)
    of_groups = ScanKernel(2.0 * d + 4.0 * g + 4.0 * s, across)
    of_products = ScanKernel(4.0 * d + 4.0 * q, within)
    backward = (
        ScanKernel(20.0 * heads),
        ScanKernel(1.5 * conv.traffic),
        gate,
        ScanKernel(2.0 * (d + g) + 4.0 * s, across),  # of the states
        ScanKernel(12.0 * s),
        ScanKernel(6.0 * d + 2.0 * g + 4.0 * (q + s), within + across),  # of the values
        of_groups,
        of_groups,
        of_products,
        of_products,
        ScanKernel(2.0 * (4.0 * q + 4.0 * g), 2.0 * pairs),
    )
    return (*again, scan, norm), (*again, *backward)
