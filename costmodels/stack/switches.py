"""Switches: what a user sets in a framework's own configuration, and what changes the price.

One table: each field has its type, its usual value, a sentence, and the frameworks' own words for it. A request's
``changes``, a study and ``--set`` take the names as they stand here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from costmodels.stack.adapters import Adapters
from costmodels.stack.fields import AttentionKernels, Dispatcher
from costmodels.stack.finetune import BasePrecision, ReferenceModel, TaskName
from hardware.kernels import Record
from hardware.units import ByteQuantity

LARGEST_CAPACITY = 1000.0
Graphed = Literal["attn", "mamba", "moe_router", "moe_preprocess", "moe"]
OptimizerName = Literal[
    "adam",
    "adam-bf16",
    "adam-8bit",
    "adam-4bit",
    "adam-mini",
    "ademamix",
    "ademamix-8bit",
    "schedule-free-adam",
    "lamb",
    "sgd",
    "sgd-plain",
    "adagrad",
    "rmsprop",
    "adafactor",
    "came",
    "lion",
    "lion-8bit",
    "sophia",
    "muon",
]
RecomputePolicy = Literal[
    "attention", "operators", "products", "projections", "attention-products", "feed-forward", "up-projections"
]
"""What selective recomputation repeats: "attention" its core [Korthikanti22]; "operators" every cheap operator and
every second matrix product (per-operator checkpointing of compiled models); "products" all but the input and what
products with weights return (JAX's checkpoint_dots_with_no_batch_dims, MaxText's "minimal"); "projections" all but the
input and the query, key and value projections of a layer (MaxText's usual policy); "attention-products" keeps what
attention's output projection returns as well ("save_dot_except_mlp"), "feed-forward" what its core does too
("save_dot_with_context_except_mlp"), so that of products only the feed-forward network's repeat; "up-projections"
repeats norms, activations and the projections out of latent vectors, and keeps what an activation reads as narrow as
products do [DeepSeek24, sections 3.2.3 and 3.3.3]."""


def _switch(value: Any, sentence: str, *words: str, **bounds: Any) -> Any:
    """A switch: its usual value, what it does, and what frameworks call it."""
    return Field(value, description=sentence, json_schema_extra={"words": list(words)}, **bounds)


class Switches(Record):
    """What a user can set; values here are those of a framework that says nothing of them."""

    attention_backend: Annotated[AttentionKernels, Field(min_length=1)] = _switch(
        ("unfused",),
        "Attention kernels, the best first; the first that the accelerator has runs",
        "Megatron --attention-backend",
        "Transformers attn_implementation",
    )
    fp8_attention: bool = _switch(
        False, "cuDNN attends in 8 bits in 8-bit recipes", "Megatron fp8_dot_product_attention"
    )
    fused_elementwise: bool = _switch(
        True,
        "Bias, dropout, residual, activation fused; one kernel each",
        "torchtitan --compile.enable",
        "Megatron --no-bias-gelu-fusion, --no-bias-dropout-fusion",
    )
    fused_softmax: bool = _switch(
        True,
        "Unfused attention has a fused softmax; scale, mask and softmax run as one kernel",
        "Megatron --no-masked-softmax-fusion",
    )
    dropout: bool = _switch(
        False, "Attention and residual dropout are on", "Megatron --attention-dropout, --hidden-dropout"
    )
    deterministic: bool = _switch(
        False, "Runs repeat to the bit; sums in a fixed order, memory filled", "Megatron --deterministic-mode"
    )
    launch_blocking: bool = _switch(
        False, "The host waits for every kernel; only then it launches the next", "CUDA_LAUNCH_BLOCKING=1"
    )
    bind_processes: bool = _switch(True, "Processes are bound to cores near their GPU", "numactl, NCCL before 2.30")
    cuda_graphs: bool = _switch(
        False, "The GPU replays launches; the host bounds no layer", "Megatron --enable-cuda-graph"
    )
    cuda_graph_scope: tuple[Graphed, ...] = _switch(
        (), "Parts of a layer captured in CUDA graphs", "Megatron --cuda-graph-scope"
    )
    dispatcher: Dispatcher = _switch(
        "alltoall",
        "How tokens reach experts; all to all ranks, a copy per expert, or once per domain (HybridEP: routes first)",
        "Megatron --moe-token-dispatcher-type, --moe-flex-dispatcher-backend",
    )
    expert_capacity: float | None = _switch(
        None,
        "Tokens per expert over the mean; more are dropped and fewer padded, none drops none",
        "Megatron --moe-expert-capacity-factor",
        gt=0,
        le=LARGEST_CAPACITY,
    )
    shared_expert_overlap: bool = _switch(
        False, "Shared experts run while tokens travel", "Megatron --moe-shared-expert-overlap"
    )
    fused_experts: bool = _switch(
        False,
        "An expert's layer is one fused operation; products, biases, activation and quantisation",
        "Megatron --use-transformer-engine-op-fuser",
    )
    tp_overlap_rings: bool = _switch(
        False,
        "8-bit products exchange in rings; what they take and return is counted piece by piece",
        "Megatron tp_comm_overlap_cfg",
    )
    overlap_grad_reduce: bool = _switch(
        False,
        "Gradients are reduced behind backward; that of the last micro-batch",
        "Megatron --overlap-grad-reduce",
        "DeepSpeed overlap_comm",
    )
    overlap_param_gather: bool = _switch(
        False,
        "Parameters are gathered behind forward; that of the first micro-batch",
        "Megatron --overlap-param-gather",
    )
    overlap_zero3: bool = _switch(
        False, "Both overlap under ZeRO stage 3; whatever is true of lower stages", "DeepSpeed overlap_comm at stage 3"
    )
    recompute_policy: RecomputePolicy = _switch(
        "attention",
        "What selective recomputation repeats",
        "MaxText remat_policy",
        "torchtitan --activation_checkpoint.selective_ac_option",
    )
    loss: Literal["plain", "fused"] = _switch(
        "plain",
        "Cross-entropy: plain, or fused with the head; with its product, block by block [Liger]",
        "Liger fused_linear_cross_entropy",
    )
    loss_block: int = _switch(
        0,
        "Tokens whose logits exist at once; 0: all, or a fused loss's own choice",
        "Yuan 2.0 block-wise loss",
        ge=0,
        le=2**31,
    )
    optimizer: OptimizerName = _switch("adam", "What updates the weights", "Megatron --optimizer")
    main_params: Literal["fp32", "fp16"] = _switch(
        "fp32", "Format of the master weights", "Megatron --main-params-dtype"
    )
    fp8_param_gather: bool = _switch(
        False,
        "8-bit recipes keep weights in 8 bits; and gather them so where they allow that",
        "Megatron --fp8-param-gather",
    )
    adapters: Adapters | None = _switch(
        None, "What trains on frozen weights; none: all weights", "PEFT LoraConfig", "Megatron-Bridge LoRA"
    )
    base_precision: BasePrecision | None = _switch(
        None,
        "Format of frozen weights; 8 and 4 bits are unpacked for every pass",
        "bitsandbytes bnb_4bit_quant_type, bnb_4bit_use_double_quant, load_in_8bit",
    )
    frozen_layers: int = _switch(
        0,
        "First layers that do not train, nor does the embedding; no backward pass reaches them",
        "LLaMA-Factory freeze_trainable_layers",
        ge=0,
        le=2**20,
    )
    frozen_embeddings: bool = _switch(
        False, "The embedding does not train, nor does a head tied to it", "axolotl unfrozen_parameters"
    )
    task: TaskName = _switch(
        "pretrain", "What is learnt; where from pairs, a sample is two sequences", "LLaMA-Factory stage", "axolotl rl"
    )
    reference_model: ReferenceModel = _switch(
        "none",
        "What says how likely a reference holds a sample; a frozen copy, or the same weights with adapters off",
        "TRL ref_model, precompute_ref_log_probs",
    )
    document_length: int = _switch(
        0,
        "Tokens of a packed document, to which attention keeps; 0: it spans the sequence",
        "Megatron --reset-attention-mask",
        "TRL packing, padding_free",
        ge=0,
        le=2**31,
    )
    images_per_sample: int = _switch(
        0,
        "Images of a sample; for a vision tower",
        "images in a data set of LLaMA-Factory, ms-swift or TRL",
        ge=0,
        le=2**20,
    )
    image_tokens: int = _switch(
        0,
        "Tokens of a sequence that stand for an image; 0: as its tower has it, or 1,024",
        "LLaMA-Factory image_max_pixels",
        "ms-swift --max_pixels",
        ge=0,
        le=2**20,
    )
    train_tower: bool = _switch(
        False,
        "A vision tower trains; else it is frozen, and runs forward only",
        "LLaMA-Factory freeze_vision_tower",
        "ms-swift --freeze_vit",
    )
    offload_fraction: float = _switch(
        1.0,
        "Share of optimizer states offloaded; where they are at all",
        "Megatron --optimizer-offload-fraction",
        "DeepSpeed offload_optimizer.ratio",
        gt=0,
        le=1,
    )
    offloaded_layers: float = _switch(
        1.0,
        "Share of layers with offloaded activations; where they are at all",
        "Megatron --cpu-offloading-num-layers",
        gt=0,
        le=1,
    )
    bucket_size: float = _switch(
        0.0, "Parameters whose gradients travel together; 0: not known", "Megatron --ddp-bucket-size", ge=0
    )
    reduce_bucket_size: ByteQuantity = _switch(
        0.0,
        "Buffer that gradients are copied into; held through the backward pass, two where they travel behind it",
        "DeepSpeed reduce_bucket_size (values of 2 bytes)",
    )
    record_streams: bool = _switch(
        False,
        "Collectives' memory is freed late; blocks wait for the host to see these end",
        "PyTorch until 2.8, unless TORCH_NCCL_AVOID_RECORD_STREAMS=1",
    )
    expandable_segments: bool = _switch(
        True,
        "The allocator grows its segments; else logits cannot use freed blocks [Segments]",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )
    nccl_ub: bool = _switch(
        False,
        "NCCL uses registered user buffers; collectives of sharded states then slow no computation",
        "Megatron --use-nccl-ub",
    )
    zero_hpz: bool = _switch(
        False,
        "Each node holds a second copy (ZeRO-3); backward gathers from it [Wang23]",
        "DeepSpeed zero_hpz_partition_size",
    )
