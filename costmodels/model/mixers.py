"""What mixers of tokens other than attention hold, multiply, move and keep, in one form for all of them.

A mixer is projections around kernels of its own (a convolution, a scan). Chunked scans count whole blocks, the causal
half is not left out, as the kernels compute them.

[Gu23]: A. Gu, T. Dao, "Mamba", arXiv 2312.00752.
[Yang24]: S. Yang et al., "Gated Delta Networks", arXiv 2412.06464; chunks as in "Parallelizing linear transformers with
    the delta rule", arXiv 2406.06484.
[FLA]: S. Yang, Y. Zhang, flash-linear-attention, GitHub fla-org/flash-linear-attention, ops/gated_delta_rule, ops/kda.
[Kimi25]: Kimi team, "Kimi Linear", arXiv 2510.26692, section 3.
[MiniMax25]: MiniMax, "MiniMax-01", arXiv 2501.08313, section 2.2.
[LFM2]: Liquid AI, "LFM2 technical report", arXiv 2511.23404.
[De24]: S. De et al., "Griffin", arXiv 2402.19427, section 2.4.
[Peng23]: B. Peng et al., "RWKV", arXiv 2305.13048, section 3; its WKV kernel keeps a running sum in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from costmodels.model.mamba import ScanKernel, mamba_of, mamba_vectors, scan_flops, scan_kernels

if TYPE_CHECKING:
    from costmodels.model.model import Model


class Projection(NamedTuple):
    """One matrix that multiplies every token, and who holds it."""

    name: str
    inputs: int
    outputs: int
    sharded: bool = True
    """Split over the tensor-parallel ranks; the down-projections of latent attention are replicated."""
    rowwise: bool = False
    """Its inputs are what tensor ranks split, not its outputs."""

    @property
    def weights(self) -> int:
        """Weights of the whole matrix."""
        return self.inputs * self.outputs


class Mixer(NamedTuple):
    """One mixer of a layer; kernels and kept values are per token."""

    projections: tuple[Projection, ...]
    vectors: int
    """Parameters other than the projections', which tensor ranks split by heads."""
    forward: tuple[ScanKernel, ...]
    backward: tuple[ScanKernel, ...]
    flops: float
    """Forward FLOP between the projections."""
    kept: float
    """Values kept for the backward pass, in the layers' format."""
    multiplied: int
    """Values that the output projection takes, kept as they are multiplied."""
    kept_32bit: float
    """Values kept in 32 bits."""
    exchanged: float
    """Values that context ranks exchange for heads and back."""
    grouped: float
    """Of those that heads share, values, copied where there are fewer groups than ranks."""
    heads: int
    """Heads, or channels, that tensor and context ranks share out."""
    groups: int
    """Groups that tensor ranks share out."""

    @property
    def matmul_weights(self) -> int:
        """Weights that multiply a token."""
        return sum(projection.weights for projection in self.projections)


def mixer_of(model: Model, name: str) -> Mixer:
    """The mixer of that name; only asked of models that have it."""
    return MIXERS[name](model)


def mixer_parameters(mixer: Mixer) -> tuple[int, int]:
    """Parameters that tensor ranks split, and that each of them holds whole."""
    sharded = sum(projection.weights for projection in mixer.projections if projection.sharded)
    return sharded + mixer.vectors, mixer.matmul_weights - sharded


def _mamba(model: Model) -> Mixer:
    mamba, h = mamba_of(model), model.hidden_size
    into, out = Projection("in", h, mamba.in_width), Projection("out", mamba.inner_width, h, rowwise=True)
    forward, backward = scan_kernels(model)
    return Mixer(
        projections=(into, out),
        vectors=mamba_vectors(model),
        forward=forward,
        backward=backward,
        flops=scan_flops(model),
        kept=float(mamba.in_width + mamba.inner_width),
        multiplied=mamba.inner_width,
        kept_32bit=float(mamba.num_heads),
        exchanged=3.0 * mamba.inner_width + mamba.num_heads,
        grouped=2.0 * mamba.group_width,
        heads=mamba.num_heads,
        groups=mamba.num_groups,
    )


def _selective(model: Model) -> Mixer:
    """A state of N values for each of d channels, step by step: 9 d N operations outside of matrix units [Gu23].

    The kernel reads values, steps and gate and writes the output; backward it scans again. States are never written.
    """
    scan, h = _described(model.selective), model.hidden_size
    d, n, rank = scan.inner_width, scan.state_size, scan.step_rank
    conv = ScanKernel(4.0 * d)
    once = ScanKernel(8.0 * d + 4.0 * n, vector=9.0 * d * n)
    again = ScanKernel(20.0 * d + 8.0 * n, vector=27.0 * d * n)
    biases = d * int(scan.conv_bias) + d + (2 * d + h) * int(scan.projection_bias)
    return Mixer(
        projections=(
            Projection("in", h, 2 * d),
            Projection("steps", d, rank + 2 * n, rowwise=True),
            Projection("step", rank, d),
            Projection("out", d, h, rowwise=True),
        ),
        vectors=d * (n + 1 + scan.conv_kernel) + biases + (rank + 2 * n) * int(scan.inner_norms),
        forward=(conv, once),
        backward=(conv, again, ScanKernel(6.0 * d)),
        flops=2.0 * scan.conv_kernel * d + 9.0 * d * n,
        kept=4.0 * d + rank + 2.0 * n,
        multiplied=d,
        kept_32bit=0.0,
        exchanged=4.0 * d,
        grouped=2.0 * n,
        heads=d,
        groups=d,
    )


def _delta(model: Model) -> Mixer:
    """Chunks of C tokens in the WY form [Yang24], for each of H heads of states, d keys and v values wide.

    Per token: 2Cd for the products of keys, 2C^2/3 to invert their triangle, 2Cd and 2Cv for the corrected keys and
    values, 2dv each for what the state holds of them, for its update and for what queries read of it, 2Cd and 2Cv
    within the chunk. Kernels as in [FLA]: convolution, norms of queries and keys, products of keys, their inverse,
    corrected keys and values, states, output, gated norm; backward the middle ones run again. Decays of every channel
    [Kimi25] are a further 32-bit value for every key.
    """
    delta = _described(model.delta)
    C, heads, d = float(delta.chunk_size), float(delta.num_value_heads), float(delta.key_head_dim)
    v, keys, values = float(delta.value_head_dim), heads * delta.key_head_dim, float(delta.value_width)
    decays = keys if delta.decay == "channel" else heads
    states, triangle = 2.0 * heads * d * v / C, 2.0 * heads * C
    conv, norms = ScanKernel(4.0 * delta.conv_width), ScanKernel(8.0 * delta.key_width)
    decay = ScanKernel(8.0 * decays + 6.0 * heads)
    pairs = ScanKernel(2.0 * keys + 4.0 * decays + 2.0 * triangle, heads * 2.0 * C * d)
    inverse = ScanKernel(3.0 * triangle, heads * 2.0 * C * C / 3.0)
    corrected = ScanKernel(4.0 * (keys + values) + triangle, heads * 2.0 * C * (d + v))
    carried = ScanKernel(4.0 * keys + 4.0 * values + states, heads * 4.0 * d * v)
    read = ScanKernel(4.0 * keys + 4.0 * values + states, heads * (2.0 * d * v + 2.0 * C * (d + v)))
    gate = ScanKernel(6.0 * values)
    again = (corrected, carried)
    gradients = (
        ScanKernel(10.0 * values),
        ScanKernel(4.0 * keys + 4.0 * values, heads * 2.0 * C * (d + v)),
        ScanKernel(4.0 * keys + 6.0 * values + states, heads * 8.0 * d * v),
        ScanKernel(12.0 * keys + 8.0 * values + 4.0 * decays + 2.0 * states, heads * (4.0 * d * v + 6.0 * C * (d + v))),
        ScanKernel(8.0 * keys + 6.0 * values + 4.0 * decays + triangle, heads * (4.0 * C * (d + v) + 4.0 * C * C)),
        ScanKernel(2.0 * norms.traffic),
        ScanKernel(1.5 * conv.traffic),
    )
    forward = (conv, norms, decay, pairs, inverse, corrected, carried, read, gate)
    return Mixer(
        projections=_delta_projections(model),
        vectors=_delta_vectors(model),
        forward=forward,
        backward=(*again, *gradients),
        flops=2.0 * delta.conv_kernel * delta.conv_width + sum(kernel.flops for kernel in forward),
        kept=2.0 * delta.conv_width + 2.0 * values + 2.0 * keys + heads * C,
        multiplied=delta.value_width,
        kept_32bit=decays + 3.0 * heads,
        exchanged=3.0 * values + 2.0 * heads,
        grouped=2.0 * delta.key_width,
        heads=delta.num_value_heads,
        groups=delta.num_key_heads,
    )


def _delta_projections(model: Model) -> tuple[Projection, ...]:
    """Queries, keys, values, the strength of corrections, decays and the gate: fused where nothing is latent."""
    delta, h = _described(model.delta), model.hidden_size
    heads, values = delta.num_value_heads, delta.value_width
    decays = heads * delta.key_head_dim if delta.decay == "channel" else heads
    latent = (("decay", delta.decay_rank, decays), ("gate", delta.gate_rank, values))
    whole = delta.conv_width + heads + sum(width for _, rank, width in latent if rank is None)
    narrow = [
        part
        for name, rank, width in latent
        if rank is not None
        for part in (Projection(f"{name}_down", h, rank, sharded=False), Projection(f"{name}_up", rank, width))
    ]
    return Projection("in", h, whole), *narrow, Projection("out", values, h, rowwise=True)


def _delta_vectors(model: Model) -> int:
    """The convolution, A of every head, a bias per decay, and the scale of the norm, one head wide."""
    delta = _described(model.delta)
    heads = delta.num_value_heads
    decays = heads * delta.key_head_dim if delta.decay == "channel" else heads
    return int(delta.conv_width * delta.conv_kernel + heads + decays + delta.value_head_dim)


def _linear(model: Model) -> Mixer:
    """Blocks of C tokens: 4Cd per head within the block, 4d^2 for the state and what is read of it [MiniMax25]."""
    linear, h = _described(model.linear), model.hidden_size
    w, C, d = float(linear.width), float(linear.chunk_size), float(linear.head_dim)
    activation, states = ScanKernel(12.0 * w), 2.0 * w * d / C
    within, across = ScanKernel(8.0 * w, w * 4.0 * C), ScanKernel(6.0 * w + 2.0 * states, w * 4.0 * d)
    norm = ScanKernel(10.0 * w)
    return Mixer(
        projections=(
            Projection("qkv", h, 3 * linear.width),
            Projection("gate", h, linear.width),
            Projection("out", linear.width, h, rowwise=True),
        ),
        vectors=linear.width,
        forward=(activation, within, across, norm),
        backward=(
            *(ScanKernel(2.0 * kernel.traffic, 2.0 * kernel.flops) for kernel in (within, across)),
            ScanKernel(18.0 * w),
            ScanKernel(18.0 * w),
        ),
        flops=w * (4.0 * C + 4.0 * d),
        kept=8.0 * w,
        multiplied=linear.width,
        kept_32bit=float(linear.num_heads),
        exchanged=5.0 * w,
        grouped=0.0,
        heads=linear.num_heads,
        groups=linear.num_heads,
    )


def _convolution(model: Model) -> Mixer:
    """A gate, a depthwise convolution and a gate, each read and written once [LFM2]."""
    conv, h = _described(model.convolution), model.hidden_size
    gate, once = ScanKernel(6.0 * h), ScanKernel(4.0 * h)
    return Mixer(
        projections=(Projection("in", h, 3 * h), Projection("out", h, h, rowwise=True)),
        vectors=h * conv.kernel + 5 * h * int(conv.bias),
        forward=(gate, once, gate),
        backward=(ScanKernel(10.0 * h), ScanKernel(6.0 * h), ScanKernel(10.0 * h)),
        flops=2.0 * conv.kernel * h,
        kept=5.0 * h,
        multiplied=h,
        kept_32bit=0.0,
        exchanged=4.0 * h,
        grouped=0.0,
        heads=h,
        groups=h,
    )


def _recurrent(model: Model) -> Mixer:
    """Two gates out of block-diagonal matrices and a first-order recurrence of each channel [De24]."""
    unit, h = _described(model.recurrent), model.hidden_size
    w, block = unit.width, unit.width // unit.num_blocks
    conv, gates = ScanKernel(4.0 * w), ScanKernel(10.0 * w, 4.0 * w * block)
    scan, product = ScanKernel(12.0 * w, vector=12.0 * w), ScanKernel(6.0 * w)
    matrices = 2 * w * block
    return Mixer(
        projections=(Projection("in", h, 2 * w), Projection("out", w, h, rowwise=True)),
        vectors=matrices + 3 * w + w * (unit.conv_kernel + 1) + 2 * w + h,
        forward=(conv, gates, scan, product),
        backward=(
            ScanKernel(6.0 * w),
            ScanKernel(20.0 * w, 8.0 * w * block),
            ScanKernel(24.0 * w, vector=24.0 * w),
            ScanKernel(10.0 * w),
        ),
        flops=2.0 * unit.conv_kernel * w + 4.0 * w * block + 12.0 * w,
        kept=6.0 * w,
        multiplied=w,
        kept_32bit=2.0 * w,
        exchanged=3.0 * w,
        grouped=0.0,
        heads=w,
        groups=unit.num_blocks,
    )


def _receptance(model: Model) -> Mixer:
    """Tokens mixed with those before them, a decaying sum of values a channel, gates of it and of the network [Peng23].

    The network's own receptance, a square matrix, is counted here; its two others are those of a dense network. Mixing
    reads a token and writes three, of the network two; the sum takes some 14 operations a channel, outside of matrix
    units.
    """
    w, h = _described(model.receptance).width, model.hidden_size
    mix, gate, again = ScanKernel(8.0 * h), ScanKernel(6.0 * w), ScanKernel(6.0 * h)
    decay, gated = ScanKernel(6.0 * w, vector=14.0 * w), ScanKernel(6.0 * h)
    forward = (mix, decay, gate, again, gated)
    return Mixer(
        projections=(
            Projection("in", h, 3 * w),
            Projection("out", w, h, rowwise=True),
            Projection("network_receptance", h, h),
        ),
        vectors=2 * w + 5 * h,
        forward=forward,
        backward=tuple(ScanKernel(2.0 * kernel.traffic, vector=2.0 * kernel.vector) for kernel in forward),
        flops=14.0 * w,
        kept=4.0 * h + 4.0 * w,
        multiplied=w,
        kept_32bit=0.0,
        exchanged=4.0 * w,
        grouped=0.0,
        heads=w,
        groups=w,
    )


def _described(part: Any) -> Any:
    """A part of a model that has it."""
    assert part is not None
    return part


MIXERS: Final[dict[str, Callable[[Model], Mixer]]] = {
    "mamba": _mamba,
    "selective": _selective,
    "delta": _delta,
    "linear": _linear,
    "convolution": _convolution,
    "recurrent": _recurrent,
    "receptance": _receptance,
}
"""Name to what it costs."""
