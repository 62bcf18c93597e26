"""What each part of a framework costs: one record for a part of a stack's mechanisms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costmodels.stack.fields import AttentionKernels, Count, Kept
from hardware.kernels import Record
from hardware.units import ByteQuantity, TimeQuantity

Relative = Annotated[float, Field(gt=0, le=1)]
"""A speed over that of a usual kernel."""
Exposed = Annotated[float, Field(ge=0, le=1)]
"""The part of a communication that still lengthens the iteration; 1 where nothing of it is hidden."""


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
    """Kernels that routing, dispatch, experts and combine of one layer launch besides its attention."""
    kernels_per_local_expert: Count = 0
    """Further kernels for each expert of the rank, in formats whose scales are found anew."""
    micro_batch_overhead: TimeQuantity = 0.0
    """Time per micro-batch and stage."""
    calls_per_step: float = Field(0.0, ge=0)
    """What an iteration costs the host besides its passes, in launches, while the device waits: the step reads the norm
    of the gradients, or whether they are finite, from the device, so that the host has lost its lead. Loops over the
    parameters, schedules, logging, the next batch. 0 where a step reads nothing."""


class ExpertCosts(Record):
    """Experts: how evenly they are loaded, and in what their tokens travel."""

    expert_imbalance: float = Field(1.05, ge=1)
    """Tokens of the busiest expert rank over the mean."""
    dispatch_bytes: float = Field(2.0, gt=0, le=4)
    """Bytes of a value on its way to the experts, and of its gradient; what they return has two [DeepSeek24]."""
    dispatch_masks: bool = False
    """Tokens reach their places in front of the experts, and come back, by products of a sequence's tokens with a mask
    of tokens by places, as many as the capacity leaves [Lepikhin20]."""
    scores_in_fp32: bool = False
    """What experts return is cast to fp32, multiplied by its scores and cast back, operation by operation, so that
    autograd keeps it in fp32; else one kernel weighs and adds up."""
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


class Overlap(Record):
    """The part of each communication that stays exposed, and what hiding the rest costs the computation."""

    tp_forward: Exposed = 1.0
    """Tensor-parallel collectives of the forward pass."""
    tp_backward: Exposed = 1.0
    """Tensor-parallel collectives of the backward pass (most frameworks run one behind the weight gradient)."""
    ep: Exposed = 1.0
    """Dispatch and combine of experts; where they overlap another micro-batch, the share of the units they take."""
    cp: Exposed = 0.3
    """Context-parallel exchange beyond what attention itself can hide."""
    cp_collective: Exposed = 1.0
    """Context-parallel gathers and all-to-alls; nothing is left to compute before they end (Llama 3, section 3.3.2)."""
    pp: Exposed = 1.0
    """Sends and receives between pipeline stages; 1 where both stages stop for them."""
    pp_interleaved: Exposed = 1.0
    """Sends and receives with several chunks per stage, where a framework may post them asynchronously."""
    paired_passes: bool = False
    """Where a schedule runs a forward alongside a backward pass (DualPipe), each hides the other's experts' traffic."""
    by_chunk: bool = False
    """With interleaved stages a chunk's gradients travel while the last micro-batches pass back through the chunks
    before it, and its parameters while the first ones pass through them, where both are overlapped [Jiang24, section
    3.2]."""
    compute_slowdown: float = Field(0.126, ge=0, le=1)
    """How much computation slows while a collective runs alongside it [Galvatron]."""
    communication_units: int = Field(0, ge=0)
    """Compute units set aside for communication all the time; kernels run on the others."""


class ShardingCosts(Record):
    """How parameters and gradients travel between data ranks, and what of them stays gathered."""

    bucket_exposed: float = Field(0.05, ge=0, le=1)
    """Share of a hidden gradient or parameter collective that stays exposed, where no size of a bucket is known."""
    bucket_per_rank: float = Field(0.0, ge=0)
    """Parameters that a bucket has at least for every data and context rank [Megatron-Core]."""
    collectives_per_layer: Count = 0
    """Collectives in which the gradients of one layer travel once per iteration; 0: a few large ones for all layers."""
    gradient_exchange: Literal["scatter", "all-reduce"] = "scatter"
    """How gradients are added up under ZeRO stage 1: each part at its owner, or all of them everywhere."""
    parameter_exchange: Literal["gather", "listed", "broadcast"] = "gather"
    """How stepped parameters come back: gathered, or into a list and copied part by part, or broadcast by owners."""
    joint_gather: bool = False
    """New parameters of ZeRO stages 1 and 2 are gathered by one collective, while the old ones are held [Alpa]."""
    scatters_each_micro_batch: bool = True
    """From ZeRO stage 2 on gradients are scattered in every micro-batch, and not kept whole until the last."""
    replicas_reduce_once: bool = False
    """From ZeRO stage 2 on, copies of the model reduce shards of gradients once an iteration, no more [Zhang22]."""
    gathers_per_micro_batch: bool = True
    """Under ZeRO stage 3 parameters are gathered again for every micro-batch."""
    gather_unit: Literal["layer", "matrix"] = "layer"
    """What ZeRO stage 3 gathers at once: a layer's parameters, or, under a compiler, those of one product [Xu21]."""
    copy_time_per_rank: TimeQuantity = 0.0
    """Time per rank for every tensor that ZeRO gathers or scatters in parts copied one after the other [DeepSpeed]."""
    fsdp_stage2: bool = False
    """ZeRO stage 2 is full sharding that keeps gathered parameters from the forward to the backward pass
    (``reshard_after_forward=False`` of FSDP2), in place of gathering them once an iteration."""
    pipeline_keeps_gathered: bool = False
    """Under a pipeline, what full sharding gathered stays until the last micro-batch has gone back, and gradients are
    added up whole until then (torch.distributed.pipelining, ``backward_maybe_with_nosync``)."""
    pipeline_reshards: bool = False
    """Where a pipeline keeps it, forward passes still give it back, and backward passes gather it again
    (``reshard_after_forward=True`` of FSDP2)."""
    root_unit: bool = False
    """Full sharding gathers embedding, last norm and head as one unit, in front of the first layer, keeps it through
    both passes and scatters its gradients behind the last, as where only blocks are wrapped [Zhao23]."""
    gather_pool: bool = False
    """What full sharding gathers arrives in buffers of a stream of its own, and is copied out of them (FSDP2)."""
    state_copies: Literal["both", "gradients", "none"] = "both"
    """Which of sharded parameters and gradients are copied on the stream that computes, out of and into the buffers of
    their collectives: none where these are the parameters' own; gradients alone, in their own format, where those of
    one flat parameter are joined and cast elsewhere."""
    gradient_copy_speed: float = Field(1.0, gt=0, le=1)
    """Bandwidth of the kernel that casts gradients into the buffer of their reduction, over that of a plain copy."""


class GradientCosts(Record):
    """Formats of gradients, how they are added up, and what is held with them."""

    gradient_bytes: Count = 4
    """Bytes per parameter of the gradient buffer that is accumulated and kept."""
    reduce_bytes: Count = 4
    """Bytes per parameter on the wire when gradients are reduced."""
    micro_batch_gradient_bytes: Count = 0
    """Bytes per parameter of a micro-batch's own gradients that stay besides the buffer until the next backward."""
    accumulate_traffic: Count = 0
    """Bytes moved per parameter and micro-batch to add its gradient to the buffer; 0 where the product itself does."""
    kept_until_next_step: bool = False
    """16-bit gradients of a step, and their copies in fp32, stay until the next step replaces them [Megatron21]."""
    set_to_none: bool = False
    """An iteration's first forward pass finds no gradients: the backward pass makes them anew (PyTorch's ``.grad``
    after ``zero_grad(set_to_none=True)``)."""
    dummy_gradients: bool = False
    """Products add gradients to the framework's own buffer, and an unused gradient of each shape of weight is kept
    with it (Transformer Engine's ``get_dummy_wgrad``)."""
    flattened_copy: bool = False
    """Gradients are copied into one flat tensor for their reduction, all at once."""
    ddp_bucket_bytes: Count = 0
    """Bytes per parameter of the buckets that PyTorch's DDP, at ZeRO stage 0, keeps besides the gradients."""
    flat_step_bytes: float = Field(0.0, ge=0)
    """Bytes per parameter of its own shard in two flat copies of 16-bit gradients, which fit no block of the allocator
    [DeepSpeed]."""
    overflow_check: bool = False
    """From ZeRO stage 1 on a step looks for overflow in an fp32 copy of every gradient, and takes its norm of one in 64
    bits, one after the other; the flat copies come after [DeepSpeed]."""
    flat_bucket: ByteQuantity = 0.0
    """Bucket that gradients are copied into for their reduction, from ZeRO stage 1 on, which fits no block either."""


class StateCosts(Record):
    """Bytes per parameter of weights and of Adam's states, and what a step moves."""

    weight_bytes: Count = 2
    """Bytes per parameter of weights that ZeRO stage 3 shards; 4 where 16-bit copies of fp32 masters are gathered."""
    reduced_weight_bytes: float = Field(0.0, ge=0)
    """Extra bytes per parameter for reduced-precision copies of the weights."""
    frozen_bytes: float = Field(0.0, ge=0, le=4)
    """Bytes per parameter of a layer whose weights are frozen; 0: as of others. Products take them in 16 bits."""
    autocast: Literal["whole", "unsplit", "never"] = "whole"
    """Where weights in fp32 that are whole on a rank are cast for every product: wherever they are, only without tensor
    and pipeline ranks, or nowhere, as full sharding over one rank casts them."""
    optimizer_bytes: Count = 12
    """Bytes per parameter of master weights and moments of Adam."""
    optimizer_traffic: Count = 38
    """Bytes moved per parameter by clip, step and cast of Adam."""


class OffloadCosts(Record):
    """What moving states to the host costs."""

    gradients_offloaded: bool = False
    """Gradients that are scattered follow offloaded optimizer states to the host as they are made [Ren21]."""
    host_gradient_traffic: float = Field(4.0, ge=4, le=40)
    """Bytes per parameter that the CPUs move of gradients in fp32 in a step on the host: read once, or scaled first."""
    copies_weights_from_stage: int = Field(4, ge=1, le=4)
    """ZeRO stage from which new weights are cast and copied behind a step on the host [DeepSpeed]; 4: under none."""


class LogitCosts(Record):
    """What a loss of stored logits holds and moves."""

    cross_entropy_traffic: Count = 66
    """Bytes moved per logit, forward and backward."""
    cross_entropy_bytes: Count = 6
    """Bytes held per logit at the loss: the logit in 16 bits, and in fp32 what becomes its softmax in place."""
    shared_loss_bytes: Count = 0
    """Further bytes per logit where tensor ranks share the loss, each with the logits that it has."""
    gathered_logits: bool = False
    """Every tensor rank gathers the logits of the whole vocabulary for the loss."""


class PipelineCosts(Record):
    """What stages of a pipeline send and wait for."""

    scatter_gather: bool = True
    """Pipeline messages are split over the tensor ranks and gathered on arrival."""
    post_validation: bool = False
    """Stages step their optimizer without waiting for a global norm, which is checked afterwards [Qi23]."""
    vocabulary_in_flight: float = Field(1.0, ge=0)
    """Further micro-batches held where the vocabulary is spread over all stages: one for every wait between the head
    and its gradient [Yeung24]."""


class AllocatorCosts(Record):
    """What an allocator, and what lies outside it, take of a device's memory."""

    reserved: ByteQuantity = 2.0 * 2**30
    """Memory outside the allocator: context, communicators, workspaces."""
    fragmentation: float = Field(0.04, ge=0, le=0.5)
    """What fragments take that the allocator cannot use even where it must, over what it hands out."""
    unread_batches: bool = False
    """The host reads nothing from the device for a batch, so that it launches pass after pass without waiting."""
    logits_freed_early: bool = False
    """The logits' block is let go before their gradients come, in fp32, which do not fit it (eager loss in 16 bits)."""


class Calibrated(Record):
    """Constants that are fitted to measured runs, and what they rest on."""

    kernel_efficiency: float = Field(1.0, gt=0, le=1.5)
    """Achieved over table speed of matrix kernels."""
    elementwise_efficiency: float = Field(1.0, gt=0, le=1.5)
    """Achieved over table speed of memory-bound kernels."""
    communication_efficiency: float = Field(1.0, gt=0, le=1.5)
    """Achieved over table speed of collectives inside a training step."""
    expert_efficiency: float = Field(1.0, gt=0)
    """Share of the tables' rates that the experts' products and streams reach."""
    straggler: float = Field(0.0, ge=0)
    """Relative standard deviation of a node's step time; the slowest of N costs sqrt(2 ln N) of it."""
    iteration_overhead: TimeQuantity = 0.0
    """Host time per iteration outside the passes: data, timers, logging, step bookkeeping."""
    cached_share: float = Field(0.04, ge=0, le=0.5)
    """What the allocator takes at its peak beyond what it hands out, where there is room."""
    tensor_fragmentation: float | None = Field(None, ge=0, le=0.5)
    """Fragmentation with tensor parallelism, where what a collective on a stream of its own was given may not be used
    again until the host has seen it end (``record_streams`` [Carilli22]); None: no more than without."""
    compute_time: float = Field(1.0, gt=0)
    """How many times as long computation takes on the user's machines as it is priced otherwise, by runs of their own;
    so too the next ones, each of one cause."""
    tensor_traffic_time: float = Field(1.0, gt=0)
    """Of collectives of tensor and context ranks."""
    expert_traffic_time: float = Field(1.0, gt=0)
    """Of experts' exchanges."""
    data_traffic_time: float = Field(1.0, gt=0)
    """Of gradients and parameters of data-parallel ranks."""
    pipeline_traffic_time: float = Field(1.0, gt=0)
    """Of sends between stages."""
    host_time: float = Field(1.0, gt=0)
    """Of launches, and of everything else that the host does."""
    optimizer_time: float = Field(1.0, gt=0)
    """Of the optimizer's step."""
    offload_time: float = Field(1.0, gt=0)
    """Of traffic to and from the host, and of its own step."""
    memory_needed: float = Field(1.0, gt=0)
    """How many times as much memory is needed as is predicted, by runs of the user's own. Prices leave it aside; the
    probability of fitting has it."""
    memory_uncertain: float = Field(0.0, ge=0)
    """Scale of its logarithm."""
    memory_margin: float | None = Field(None, ge=0, le=0.9)
    """Share of the memory that a search leaves alone so that it fits with a probability of 80 %; None where no run of
    one's own says it."""
    memory_runs: int = Field(0, ge=0)
    """Runs of one's own that this rests on."""
    basis: str = "not calibrated"
    """What these constants rest on, and the error that remained."""
    own_runs: int = Field(0, ge=0)
    """Strategies of one's own runs that they were fitted to."""
    uncorrected: tuple[float, ...] = ()
    """What these runs say beyond, and are too few to be followed in: logarithms of factors, by ``own_runs.FACTORS`` of
    the planner's trust."""
    covariance: tuple[tuple[float, ...], ...] = ()
    """Of all these logarithms, once the runs are known."""

    def reached(self, traffic: str) -> float:
        """Achieved over table speed of one kind of traffic: "tensor", "expert", "data" or "pipeline"."""
        longer: float = getattr(self, f"{traffic}_traffic_time")
        return self.communication_efficiency / longer
