"""What a framework's sharding, gradients, states, loss and allocator cost, beyond the layers themselves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costmodels.stack.fields import Count
from hardware.kernels import Record
from hardware.units import ByteQuantity, TimeQuantity


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
    """New parameters of ZeRO stages 1 and 2 are gathered by one collective, the old ones beside them [Alpa]."""
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
    """Formats of gradients, how they are added up, and what is held beside them."""

    gradient_bytes: Count = 4
    """Bytes per parameter of the gradient buffer that is accumulated and kept."""
    reduce_bytes: Count = 4
    """Bytes per parameter on the wire when gradients are reduced."""
    micro_batch_gradient_bytes: Count = 0
    """Bytes per parameter of a micro-batch's own gradients that stay beside the buffer until the next backward pass."""
    accumulate_traffic: Count = 0
    """Bytes moved per parameter and micro-batch to add its gradient to the buffer; 0 where the product itself does."""
    kept_until_next_step: bool = False
    """16-bit gradients of a step, and their copies in fp32, stay until the next step replaces them [Megatron21]."""
    set_to_none: bool = False
    """An iteration's first forward pass finds no gradients: the backward pass makes them anew (PyTorch's ``.grad``
    after ``zero_grad(set_to_none=True)``)."""
    dummy_gradients: bool = False
    """Products add gradients to the framework's own buffer, and an unused gradient of each shape of weight is kept
    beside it (Transformer Engine's ``get_dummy_wgrad``)."""
    flattened_copy: bool = False
    """Gradients are copied into one flat tensor for their reduction, all at once."""
    ddp_bucket_bytes: Count = 0
    """Bytes per parameter of the buckets that PyTorch's DDP, at ZeRO stage 0, keeps beside the gradients."""
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
    basis: str = "not calibrated"
    """What these constants rest on, and the error that remained."""
    own_runs: int = Field(0, ge=0)
    """Strategies of one's own runs that they were fitted to."""
