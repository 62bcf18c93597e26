"""Software stacks: which kernels, which overlap, which optimizer semantics a training framework brings."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError

from costmodels.stack.adapters import Adapters
from costmodels.stack.fields import (
    AttentionKernels,
    Count,
    Dispatch,
    Kept,
    Offloads,
    OtherFormat,
    RecomputeModules,
    Schedules,
    ZeroStages,
)
from costmodels.stack.overlap import Overlap
from hardware.errors import BadFile, UnknownName, flatten
from hardware.files import part, read
from hardware.kernels import Label, Record
from hardware.units import ByteQuantity, TimeQuantity

_HOME = Path(__file__).parent / "stacks"
LARGEST_CAPACITY = 1000.0
CpKind = Literal["p2p", "a2a", "all-gather", "a2a+p2p"]
RankOrder = Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-ep-sharding-pp-dp"]


class Stack(Record):
    """A training framework at a point in time."""

    name: Label
    title: Label
    source: str
    attention: Annotated[AttentionKernels, Field(min_length=1)] = ("unfused",)
    """Attention kernels in order of preference; the first that the accelerator has is used."""
    blackwell_attention: AttentionKernels = ()
    """The same on Blackwell, where it differs."""
    recent_cudnn: bool = True
    """Its attention is that of cuDNN 9.18 (January 2026) or later, where that was measured; else of releases before."""
    fp8_attention: bool = False
    """Under 8-bit recipes cuDNN attends in 8 bits too (Megatron-Core's ``fp8_dot_product_attention``)."""
    fused_elementwise: bool = True
    """Bias, dropout, residual and activation run as one kernel each."""
    fused_norms: bool = True
    """Norms are fused kernels too; False: PyTorch's own, or written out where it has none."""
    branches_apart: bool = False
    """Branches of a parallel block join the residual one by one; each sums its input's gradient alone [GPT-NeoX]."""
    around_attention: tuple[float, float] = (0.0, 0.0)
    """Bytes that copies of queries, keys, values and output around a fused kernel other than cuDNN's move, forward and
    backward, per value of queries where keys and values have as many heads."""
    around_activation: tuple[float, float] = (0.0, 0.0)
    """What an activation moves beyond one fused kernel, per value of a dense feed-forward network's width, likewise."""
    rotary_passes: float = Field(1.0, ge=1, le=10)
    """Traffic of rotary positions over one fused kernel's; 5 as complex products, which Inductor leaves to PyTorch."""
    scaled_rotary: bool = True
    """That kernel also takes sines and cosines with a factor (YaRN); otherwise these are written out."""
    fused_softmax: bool = True
    """Scale, mask and softmax run as one kernel where attention is unfused."""
    softmax_keys: int = Field(0, ge=0)
    """Longest rows that this kernel takes, four attention maps at a time [FusedSoftmax]; 0: it takes all."""
    attention_block: float = Field(0.0, ge=0)
    """Queries, and keys, of the causal blocks that unfused attention takes in turn, keeping no scores; 0: of one."""
    chunked_windows: bool = False
    """Unfused attention multiplies the chunks that a window reaches into, not all pairs under a mask [Beltagy20]."""
    dropout: bool = False
    """Attention and residual dropout are on (2019-2022 recipes)."""
    deterministic: bool = False
    """Runs repeat themselves to the bit: sums in a fixed order, memory filled as it is allocated."""
    kernel_efficiency: float = Field(1.0, gt=0, le=1.5)
    """Achieved over table speed of matrix kernels; calibrated per stack and accelerator family."""
    elementwise_efficiency: float = Field(1.0, gt=0, le=1.5)
    """Achieved over table speed of memory-bound kernels."""
    batch_first: bool = False
    """Activations lie by sequence, then by token, so that what tensor ranks gather or scatter is copied into place."""
    transposing: float = Field(1.0, gt=0, le=1)
    """Bandwidth of casts that write columns out of rows, over that of other memory-bound kernels."""
    along_depth: bool = False
    """8-bit products take both inputs along the depth, also on devices that take them either way [TorchAO]."""
    launch: TimeQuantity = 6e-6
    """Host time per kernel beside an x86 host of 2022; the layer is never faster than its launches."""
    blocking_launches: bool = False
    """The host waits for every kernel before it launches the next (CUDA_LAUNCH_BLOCKING=1)."""
    bound_processes: bool = True
    """Each process runs on the processors beside its device: bound there by its launcher, or by NCCL before 2.30."""
    combined_launches: float = Field(1.0, ge=1, le=10)
    """Launches of a layer over those of one by itself, where two micro-batches interleave to hide experts' traffic."""
    kernels_per_layer: Count = 24
    """Kernels that one layer's forward pass launches."""
    calls_per_layer: float | None = Field(None, ge=0)
    """What they and the modules around them cost the host, in launches; as many as kernels where unsaid."""
    calls_per_latent_attention: float = Field(0.0, ge=0)
    """The same of latent attention, beyond that of any attention."""
    calls_per_ring: float = Field(0.0, ge=0)
    """The same of attention that context ranks share, beyond that of one rank."""
    calls_to_cast: float = Field(0.0, ge=0)
    """The same of products in 8 bits or fewer, beyond those in 16."""
    kernels_per_expert_layer: Count = 40
    """Kernels that routing, dispatch, experts and combine of one layer launch beside its attention."""
    kernels_per_local_expert: Count = 0
    """Further ones for each expert of the rank, in formats whose scales are found anew."""
    graphs: tuple[Literal["attn", "mamba", "moe_router", "moe_preprocess", "moe"], ...] = ()
    """Parts of a layer that are captured in CUDA graphs, in Megatron-Core's words; the host launches the rest."""
    fused_experts: bool = False
    """Grouped products, their biases, activation and quantisation run as one operation."""
    bias_gradient_slowdown: float = Field(1.0, ge=1, le=20)
    """Time of that operation's kernel for the activation's gradient, where experts have biases whose gradients it sums
    on its way, over the same where its compiler keeps them in registers."""
    expert_efficiency: float = Field(1.0, gt=0)
    """Share of the tables' rates that the experts' products and streams reach."""
    dispatch: Dispatch = "every-copy"
    """How tokens reach their experts: every rank gathers all ("allgather"), a token travels once per expert of its own
    ("every-copy", "alltoall"), or once per domain and is copied inside ("once-per-domain", "deepep", "hybridep")."""
    dispatch_bytes: float = Field(2.0, gt=0, le=4)
    """Bytes of a value on its way to the experts, and of its gradient; what they return has two [DeepSeek24]."""
    gathered_routes: bool = False
    """Which experts every token of a layer goes to is gathered by all expert ranks, a byte per token and expert, before
    tokens travel once per domain (HybridEP); backward that is known."""
    shared_expert_overlap: bool = False
    """Shared experts run while routed tokens travel."""
    expert_imbalance: float = Field(1.05, ge=1)
    """Tokens of the busiest expert rank over the mean."""
    expert_capacity: float | None = Field(None, gt=0, le=LARGEST_CAPACITY)
    """Tokens that every expert computes over the mean, more dropped and fewer padded; None drops none."""
    expert_masks: bool = False
    """Tokens reach their places in front of the experts, and come back, by products of a sequence's tokens with a mask
    of tokens by places, as many as the capacity leaves [Lepikhin20]."""
    communication_units: int = Field(0, ge=0)
    """Compute units set aside for communication all the time; kernels run on the others."""
    cuda_graphs: bool = False
    """Launches are replayed by the device, so that the host does not bound the layer."""
    overlap: Overlap = Overlap()
    selective: Literal[
        "attention", "operators", "products", "projections", "attention-products", "feed-forward", "up-projections"
    ] = "attention"
    """What selective recomputation does: repeat the attention core [Korthikanti22]; repeat every cheap operator and
    every second matrix product (per-operator checkpointing of compiled stacks); or keep the input and what products
    with weights return, and repeat the rest (JAX's checkpoint_dots_with_no_batch_dims, MaxText's "minimal"); or keep
    only the input and the query, key and value projections of a layer (its usual policy), or what attention's output
    projection returns as well ("save_dot_except_mlp"), or what its core does too
    ("save_dot_with_context_except_mlp"), so that of products only the feed-forward network's repeat; or repeat norms,
    activations and the projections out of latent vectors, and keep what an activation reads as narrow as products do
    [DeepSeek24, sections 3.2.3 and 3.3.3]."""
    saves_cudnn: bool = True
    """Per-operator recomputation keeps what cuDNN's attention returns; a list of operators that lacks it repeats it."""
    saves_exchanges: bool = True
    """The same of exchanges of tokens with experts."""
    lean_recompute: bool = False
    """Full recomputation leaves out what no gradient reads, as compilers do, and PyTorch's checkpoints since 2.1, which
    end once all is there that was kept (``early_stop``): the last product of a dense layer, both last ones of a
    parallel block, the sum of what they return over the tensor ranks and its addition to the residual."""
    overlap_slowdown: float = Field(0.126, ge=0, le=1)
    """How much computation slows while a collective runs beside it [Galvatron]."""
    bucket_exposed: float = Field(0.05, ge=0, le=1)
    """Share of a hidden gradient or parameter collective that stays exposed, where no size of a bucket is known."""
    bucket_parameters: float = Field(0.0, ge=0)
    """Parameters whose gradients travel together once an iteration; 0: not known."""
    bucket_per_rank: float = Field(0.0, ge=0)
    """A bucket has at least so many parameters for every data and context rank [Megatron-Core]."""
    communication_efficiency: float = Field(1.0, gt=0, le=1.5)
    """Achieved over table speed of collectives inside a training step."""
    scatter_gather: bool = True
    """Pipeline messages are split over the tensor ranks and gathered on arrival."""
    zero_stages: ZeroStages = (0, 1)
    schedules: Schedules = ("none", "gpipe", "1f1b", "interleaved-1f1b")
    post_validation: bool = False
    """Stages step their optimizer without waiting for a global norm, which is checked afterwards [Qi23]."""
    uneven_stages: bool = False
    """Stages may hold different numbers of layers."""
    sequence_parallel: bool = True
    cp_kinds: Annotated[tuple[CpKind, ...], Field(min_length=1)] = ("p2p",)
    """Forms of context parallelism, the usual one first."""
    repeats_key_values: bool = False
    """All-to-alls between tokens and heads repeat keys and values where there are more ranks than heads of them."""
    rank_orders: Annotated[tuple[RankOrder, ...], Field(min_length=1)] = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
    """Orders of ranks that a launcher can ask for, the usual one first."""
    gathers_per_micro_batch: bool = True
    """Under ZeRO stage 3 parameters are gathered again for every micro-batch."""
    gathers: Literal["layer", "matrix"] = "layer"
    """What ZeRO stage 3 gathers at once: a layer's parameters, or, under a compiler, those of one product [Xu21]."""
    per_shard: TimeQuantity = 0.0
    """Time per rank for every tensor that ZeRO gathers or scatters in parts copied one after the other [DeepSpeed]."""
    fully_sharded: bool = False
    """ZeRO stage 2 is full sharding that keeps parameters from the forward to the backward pass, once gathered
    (``reshard_after_forward=False`` of FSDP2), in place of gathering them once an iteration."""
    pipeline_holds: bool = False
    """Under a pipeline, what full sharding gathered stays until the last micro-batch has gone back, and gradients are
    added up whole until then (torch.distributed.pipelining, ``backward_maybe_with_nosync``)."""
    pipeline_gathers_again: bool = False
    """But forward passes give it back, and backward passes gather it (``reshard_after_forward=True`` of FSDP2)."""
    whole_vocabulary: tuple[Literal["embedding", "head"], ...] = ()
    """Matrices of the vocabulary that every tensor rank holds whole."""
    root_unit: bool = False
    """Full sharding gathers embedding, last norm and head as one unit, in front of the first layer, keeps it through
    both passes and scatters its gradients behind the last, as where only blocks are wrapped [Zhao23]."""
    second_shard: bool = False
    """Under ZeRO stage 3 every innermost domain holds a second copy, sharded, to gather from backward [Wang23]."""
    sharded_stages: bool = False
    """Stages of a pipeline shard parameters too (ZeRO stage 3): gathered for both passes of every micro-batch, and
    gradients scattered behind its backward pass [Paddle21]."""
    replicas_once: bool = False
    """From ZeRO stage 2 on, copies of the model reduce shards of gradients once an iteration, no more [Zhang22]."""
    gradient_bytes: Count = 4
    """Bytes per parameter of the gradient buffer that is accumulated and kept."""
    passed_gradient_bytes: Count = 0
    """Bytes per parameter of a micro-batch's own gradients that stay beside the buffer until the next backward pass."""
    lingering_gradients: bool = False
    """16-bit gradients of a step, and their copies in fp32, stay until the next step replaces them [Megatron21]."""
    reduce_bytes: Count = 4
    """Bytes per parameter on the wire when gradients are reduced."""
    accumulate_traffic: Count = 0
    """Bytes moved per parameter and micro-batch to add its gradient to the buffer; 0 where the product itself does."""
    collectives_per_layer: Count = 0
    """Collectives in which the gradients of one layer travel once per iteration; 0: a few large ones for all layers."""
    gradient_exchange: Literal["scatter", "all-reduce"] = "scatter"
    """How gradients are added up under ZeRO stage 1: each part at its owner, or all of them everywhere."""
    parameter_exchange: Literal["gather", "listed", "broadcast"] = "gather"
    """How stepped parameters come back: gathered, or into a list and copied part by part, or broadcast by owners."""
    bf16: OtherFormat | None = None
    """What is different in bf16; None: nothing."""
    fp16: OtherFormat | None = None
    """What is different in fp16, in which gradients can be added up as they are; None: nothing."""
    optimizer_bytes: Count = 12
    """Bytes per parameter of master weights and moments."""
    optimizer_traffic: Count = 38
    """Bytes moved per parameter by clip, step and cast."""
    cross_entropy_traffic: Count = 66
    """Bytes moved per logit, forward and backward."""
    cross_entropy_bytes: Count = 6
    """Bytes held per logit at the loss: the logit in 16 bits, and in fp32 what becomes its softmax in place."""
    keeps: tuple[Kept, ...] = ()
    """Tensors that a layer keeps for its backward pass beyond those of fused operations."""
    fresh_gradients: bool = False
    """An iteration's first forward pass finds no gradients: the backward pass makes them anew (PyTorch's ``.grad``)."""
    gradients_sharded: bool = True
    """From ZeRO stage 2 on gradients are scattered in every micro-batch, and not kept whole until the last."""
    flattened_gradients: bool = False
    """Gradients are copied into one flat tensor for their reduction, all at once."""
    joint_gather: bool = False
    """New parameters of ZeRO stages 1 and 2 are gathered by one collective, the old ones beside them [Alpa]."""
    partitioned_checkpoints: bool = False
    """Inputs of recomputed layers are split over the tensor ranks, with or without sequence parallelism."""
    gathered_inputs: bool = False
    """What sequence parallelism gathers in front of a product is kept whole for its backward pass."""
    replica_buckets: Count = 0
    """Bytes per parameter of the buckets that PyTorch's DDP, at ZeRO stage 0, keeps beside the gradients."""
    gathered_logits: bool = False
    """Every tensor rank gathers the logits of the whole vocabulary for the loss."""
    apart: tuple[Literal["qkv", "gate"], ...] = ()
    """Products of one input that each sum its gradient over the tensor ranks: of attention, or of a gated network."""
    split_projections: tuple[Literal["qkv", "gate"], ...] = ()
    """Products of one input that are layers of their own, whether or not their traffic is too (``apart``)."""
    norm_gathers: bool = False
    """Under sequence parallelism the norm gathers its output once for all products behind it; likewise backward."""
    idle_gradients: bool = False
    """Products add gradients to the framework's own buffer, and a gradient of each shape of weight is kept beside."""
    loss_block: int = Field(0, ge=0, le=2**31)
    """Tokens whose logits exist at once (block-wise cross-entropy); 0 = all, or with the fused loss its own choice."""
    loss: Literal["plain", "fused"] = "plain"
    """Cross-entropy of stored logits, which a block-wise one multiplies again in the backward pass; or fused with the
    head's product, block by block, so that logits become gradients before the next block is multiplied [Liger]."""
    vocabulary: Annotated[tuple[Literal["ends", "spread"], ...], Field(min_length=1)] = ("ends",)
    """Where embedding and head can be: at the ends of the model, or split over all stages [Yeung24]."""
    vocabulary_in_flight: float = Field(1.0, ge=0)
    """Further micro-batches held where it is spread: one for every wait between the head and its gradient [Yeung24]."""
    empty_ends: bool = False
    """The first and the last stage may hold the embedding and the head alone, without a layer."""
    ends_as_layers: bool = False
    """The embedding may take a layer's place in the first chunk, the head in the last, for equal chunks [Megatron]."""
    iteration_overhead: TimeQuantity = 0.0
    """Host time per iteration outside the passes: data, timers, logging, step bookkeeping."""
    micro_batch_overhead: TimeQuantity = 0.0
    """Host time per micro-batch and stage."""
    straggler: float = Field(0.0, ge=0)
    """Relative standard deviation of a node's step time; the slowest of N costs sqrt(2 ln N) of it."""
    reserved: ByteQuantity = 2.0 * 2**30
    """Memory outside the allocator: context, communicators, workspaces."""
    slack: float = Field(0.04, ge=0, le=0.5)
    """What fragments take that the allocator cannot use even where it must, over what it hands out."""
    tensor_slack: float | None = Field(None, ge=0, le=0.5)
    """The same with tensor parallelism, where what a collective on a stream of its own was given may not be used again
    until the host has seen it end (``records_streams`` [Carilli22]); None: no more. Calibrated."""
    records_streams: bool = False
    """Blocks that collectives of the tensor ranks were given wait for the host to see these end, before they are used
    again (PyTorch until 2.8, unless ``TORCH_NCCL_AVOID_RECORD_STREAMS`` is set)."""
    unread_batches: bool = False
    """The host reads nothing from the device for a batch, so that it launches pass behind pass without waiting."""
    fixed_segments: bool = False
    """The allocator never joins what it took from the device block by block (PyTorch, unless ``expandable_segments`` is
    set), so that logits, larger than any block, are put beside what the forward pass of a layer let go [Segments]."""
    idle_logits: bool = False
    """The logits' block is let go before their gradients come, in fp32, which do not fit it (eager loss in 16 bits)."""
    gather_pool: bool = False
    """What full sharding gathers arrives in buffers of a stream of its own, and is copied out of them (FSDP2)."""
    state_copies: Literal["both", "gradients", "none"] = "both"
    """What sharded parameters and gradients are copied on the stream that computes, out of and into the buffers of
    their collectives: neither where these are the parameters' own; gradients alone, in their own format, where those of
    one flat parameter are joined and cast elsewhere."""
    packing: float = Field(1.0, gt=0, le=1)
    """Bandwidth of the kernel that casts gradients into the buffer of their reduction, over that of a plain copy."""
    registered_buffers: bool = False
    """Collectives of sharded states run in a few units, out of NCCL's user buffers, and slow no computation more."""
    flat_step: float = Field(0.0, ge=0)
    """Bytes per parameter of its own shard in two flat copies of 16-bit gradients, which fit no block [DeepSpeed]."""
    checked_gradients: bool = False
    """From ZeRO stage 1 on a step looks for overflow in an fp32 copy of every gradient, and takes its norm of one in 64
    bits, one after the other; the flat copies come after [DeepSpeed]."""
    flat_bucket: ByteQuantity = 0.0
    """Likewise of the bucket that gradients are copied into for their reduction, from ZeRO stage 1 on."""
    reduce_bucket: ByteQuantity = 0.0
    """Likewise, held through the backward pass; two of them where gradients travel behind it, below stage 3."""
    cache: float = Field(0.04, ge=0, le=0.5)
    """What the allocator takes at its peak beyond what it hands out, where there is room; calibrated."""
    reduced_weight_bytes: float = Field(0.0, ge=0)
    """Extra bytes per parameter for reduced-precision copies of the weights."""
    weight_bytes: Count = 2
    """Bytes per parameter of weights that ZeRO stage 3 shards; 4 where 16-bit copies of fp32 masters are gathered."""
    fp8_param_gather: bool = False
    """Under an 8-bit recipe weights are kept, and gathered where the recipe allows it, in 8 bits."""
    fused_casts: bool = True
    """NVFP4's rows and turned columns are written by one kernel (Transformer Engine from 2.14 on)."""
    fp8_tensor_gather: bool = False
    """Under an 8-bit recipe tensor ranks gather activations in 8 bits."""
    scale_kernels: int = Field(0, ge=0)
    """Small kernels that a module runs in either pass to find its own scales of earlier steps [TE-scales]."""
    shared_magnitudes: Literal["none", "tensor", "data"] = "none"
    """Ranks that share a chunk's largest magnitudes behind either pass: of tensors and context, or of data too [TE]."""
    optimizer: Literal["adam", "adam-bf16", "adam-8bit", "lamb", "sgd", "adafactor", "muon"] = "adam"
    """What updates the weights; ``optimizer_bytes`` and ``optimizer_traffic`` are those of Adam."""
    main_params: Literal["fp32", "fp16"] = "fp32"
    """Format of the master weights."""
    frozen_bytes: float = Field(0.0, ge=0, le=4)
    """Bytes per parameter of a layer whose weights are frozen; 0: as of others. Products take them in 16 bits."""
    adapters: Adapters | None = None
    """What trains beside frozen weights; None: all weights."""
    recompute_groups: bool = False
    """Layers that are recomputed can share one stored input, several at a time (Megatron's uniform method)."""
    recompute_modules: RecomputeModules = ()
    """Modules that selective recomputation can name, of ``costmodels.strategy.MODULES``."""
    offloads: Offloads = ()
    """What can be moved to the memory of the host, of ``costmodels.strategy.OFFLOADS``."""
    gradients_offloaded: bool = False
    """Gradients that are scattered follow offloaded optimizer states to the host as they are made [Ren21]."""
    host_gradient_traffic: float = Field(4.0, ge=4, le=40)
    """Bytes per parameter that the CPUs move of gradients in fp32 in a step on the host: read once, or scaled first."""
    copied_weights: int = Field(4, ge=1, le=4)
    """ZeRO stage from which new weights are cast and copied behind a step on the host [DeepSpeed]; 4: under none."""
    offload_fraction: float = Field(1.0, gt=0, le=1)
    """Share of the optimizer states that is offloaded where they are."""
    offloaded_layers: float = Field(1.0, gt=0, le=1)
    """Share of the layers whose activations are offloaded where activations are."""
    calibration: str = "not calibrated"
    """What the calibrated constants rest on, and the error that remained."""
    own_runs: int = Field(0, ge=0)
    """Strategies of one's own runs that its constants were fitted to."""

    def at(self, precision: str) -> Self:
        """The stack as it is where it trains in that precision."""
        other = {"bf16": self.bf16, "fp16": self.fp16}.get(precision)
        return self if other is None else self.model_copy(update=other.model_dump(exclude_none=True))


def stack(name: str) -> Stack:
    """A stack by catalogue name, or from a user's TOML or JSON file.

    Raises:
        UnknownName: no such stack, with the nearest names.
        BadFile: the file cannot be read, or a field is wrong.
    """
    if name.endswith((".toml", ".json")) or "/" in name:
        return _from_file(Path(name))
    lowered = name.strip().lower()
    if lowered not in stack_names():
        raise UnknownName("stack", name, stack_names())
    return _shipped(lowered)


@cache
def _shipped(name: str) -> Stack:
    return _from_file(_HOME / f"{name}.toml")


def _from_file(path: Path) -> Stack:
    try:
        return Stack.model_validate(part(read(path), "stack", path))
    except ValidationError as error:
        raise BadFile(path, flatten(error)) from None


@cache
def stack_names() -> tuple[str, ...]:
    """Names of the shipped stacks."""
    return tuple(sorted(path.stem for path in _HOME.glob("*.toml")))
