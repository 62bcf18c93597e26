"""What a framework's kernels, launches, experts, exchanges and overlap cost within a layer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costmodels.stack.fields import AttentionKernels, Count, Kept
from hardware.kernels import Record
from hardware.units import TimeQuantity

Relative = Annotated[float, Field(gt=0, le=1)]
"""A speed over that of a usual kernel."""


class KernelCosts(Record):
    """Kernels of a layer: which are fused, what copies around them move, what they save for the backward pass."""

    blackwell_attention: AttentionKernels = ()
    """Attention kernels on Blackwell in order of preference, where they differ from ``attention_backend``."""
    recent_cudnn: bool = True
    """Attention of cuDNN is that of release 9.18 (January 2026) or later, where that was measured; else of earlier."""
    fused_norms: bool = True
    """Norms are fused kernels; False: PyTorch's own, or written out where it has none."""
    pytorch_rms_norm: bool = False
    """PyTorch has a kernel for RMSNorm, and a layer whose norms are not fused uses it: ``torch.nn.RMSNorm`` since
    PyTorch 2.9 (GitHub pytorch/pytorch, pull request 153666). Models with a norm of their own write it out."""
    separate_branches: bool = False
    """Branches of a parallel block are added to the residual one by one; each sums its input's gradient alone
    [GPT-NeoX]."""
    attention_copy_bytes: tuple[float, float] = (0.0, 0.0)
    """Bytes that copies of queries, keys, values and output around a fused attention kernel other than cuDNN's move,
    forward and backward, per value of queries, where keys and values have as many heads."""
    activation_copy_bytes: tuple[float, float] = (0.0, 0.0)
    """Bytes that an activation moves beyond one fused kernel, forward and backward, per value of a dense feed-forward
    network's width."""
    rotary_traffic: float = Field(1.0, ge=1, le=10)
    """Bytes that rotary positions move over those of one fused kernel; 5 as complex products, which Inductor leaves to
    PyTorch."""
    fused_scaled_rotary: bool = True
    """The fused kernel of rotary positions also takes scaled sines and cosines (YaRN); False: they are written out."""
    longest_fused_softmax: int = Field(0, ge=0)
    """Longest rows that the fused softmax takes, four attention maps at a time [FusedSoftmax]; 0: of any length."""
    attention_block: float = Field(0.0, ge=0)
    """Queries, and keys, of the causal blocks in which unfused attention runs, keeping no scores; 0: one block."""
    chunked_windows: bool = False
    """Unfused attention multiplies only the chunks that a sliding window reaches into, not all pairs under a mask
    [Beltagy20]."""
    transposed_cast_speed: Relative = 1.0
    """Bandwidth of casts that write a transposed copy, over that of other memory-bound kernels."""
    transposed_fp8_copies: bool = False
    """Inputs of 8-bit products are copied transposed, also on devices that multiply them as they are [TorchAO]."""
    saved_tensors: tuple[Kept, ...] = ()
    """Tensors that a layer saves for its backward pass beyond those of fused operations."""
    split_projections: tuple[Literal["qkv", "gate"], ...] = ()
    """Projections of one input that are layers of their own (wq, wk, wv), whether or not their traffic is separate."""
    fused_casts: bool = True
    """NVFP4's rows and transposed columns are written by one kernel (Transformer Engine from 2.14 on)."""
    scale_kernels: int = Field(0, ge=0)
    """Small kernels that a module runs in either pass to find its own scales from those of earlier steps
    [TE-scales]."""


class HostCosts(Record):
    """Time of the host: kernels that it launches, what calls around them cost, what a micro-batch takes."""

    launch_time: TimeQuantity = 6e-6
    """Time per kernel on an x86 host of 2022; a layer is never faster than its launches."""
    interleaved_launches: float = Field(1.0, ge=1, le=10)
    """Launches of a layer that interleaves two micro-batches to hide experts' traffic, over those of one that does
    not."""
    kernels_per_layer: Count = 24
    """Kernels that one layer's forward pass launches."""
    calls_per_layer: float | None = Field(None, ge=0)
    """What these kernels and the modules around them cost the host, in launches; None: as many as kernels."""
    calls_per_latent_attention: float = Field(0.0, ge=0)
    """Further launches' worth of latent attention, beyond that of any attention."""
    calls_per_ring: float = Field(0.0, ge=0)
    """Further launches' worth of attention that context ranks share, beyond that of one rank."""
    calls_to_cast: float = Field(0.0, ge=0)
    """Further launches' worth of products in 8 bits or fewer, beyond those in 16."""
    kernels_per_expert_layer: Count = 40
    """Kernels that routing, dispatch, experts and combine of one layer launch beside its attention."""
    kernels_per_local_expert: Count = 0
    """Further kernels for each expert of the rank, in formats whose scales are found anew."""
    micro_batch_overhead: TimeQuantity = 0.0
    """Time per micro-batch and stage."""


class ExpertCosts(Record):
    """Experts: how evenly they are loaded, and in what their tokens travel."""

    expert_imbalance: float = Field(1.05, ge=1)
    """Tokens of the busiest expert rank over the mean."""
    dispatch_bytes: float = Field(2.0, gt=0, le=4)
    """Bytes of a value on its way to the experts, and of its gradient; what they return has two [DeepSeek24]."""
    dispatch_masks: bool = False
    """Tokens reach their places in front of the experts, and come back, by products of a sequence's tokens with a mask
    of tokens by places, as many as the capacity leaves [Lepikhin20]."""
    bias_gradient_slowdown: float = Field(1.0, ge=1, le=20)
    """Time of the fused experts' kernel for the activation's gradient where experts have biases, whose gradients it
    sums too, over its time where its compiler keeps these in registers."""


class ExchangeCosts(Record):
    """What tensor and context ranks exchange, and what of it each keeps."""

    batch_first: bool = False
    """Activations lie by sequence, then by token, so that what tensor ranks gather or scatter is copied into place."""
    separate_reductions: tuple[Literal["qkv", "gate"], ...] = ()
    """Projections of one input that each sum its gradient over the tensor ranks: of attention, or of a gated
    network."""
    norm_gathers: bool = False
    """Under sequence parallelism a norm gathers its output once for all products behind it; likewise backward."""
    keeps_gathered_inputs: bool = False
    """What sequence parallelism gathers in front of a product is kept whole for its backward pass."""
    whole_vocabulary: tuple[Literal["embedding", "head"], ...] = ()
    """Matrices of the vocabulary that every tensor rank holds whole."""
    fp8_tensor_gather: bool = False
    """Under an 8-bit recipe tensor ranks gather activations in 8 bits."""
    amax_group: Literal["none", "tensor", "data"] = "none"
    """Ranks that share the largest magnitudes of a chunk after either pass: those of tensors and context, or of data
    too [TE]."""
    repeats_key_values: bool = False
    """All-to-alls between tokens and heads repeat keys and values where there are more ranks than heads of them."""


class RecomputeCosts(Record):
    """What recomputation repeats and what it keeps."""

    saves_cudnn: bool = True
    """Per-operator recomputation keeps what cuDNN's attention returns; a list of operators that lacks it repeats it."""
    saves_exchanges: bool = True
    """Per-operator recomputation keeps what exchanges of tokens with experts return."""
    skips_unread: bool = False
    """Full recomputation leaves out what no gradient reads, as compilers do, and PyTorch's checkpoints since 2.1, which
    end once all is there that was kept (``early_stop``): the last product of a dense layer, both last ones of a
    parallel block, the sum of what they return over the tensor ranks and its addition to the residual."""
    partitioned_inputs: bool = False
    """Inputs of recomputed layers are split over the tensor ranks, with or without sequence parallelism."""
