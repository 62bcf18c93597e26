"""The options of Megatron-LM's command line, as of Megatron-Core 0.17 to 0.19 [Megatron]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model.model import Model
from planner.jobs.options import Options, choice, flag, number, text

_FORMATS: Final = ("fp32", "fp16", "bf16", "fp8")

OPTIONS: Final = Options(
    # The model.
    number("num-layers", older=("encoder-num-layers",)),
    number("hidden-size"),
    number("ffn-hidden-size"),
    number("seq-length", older=("encoder-seq-length",)),
    number("max-position-embeddings", "max_positions"),
    choice("position-embedding-type", "position",
           {"learned_absolute": "learned", "rope": "rotary", "mrope": "rotary", "yarn": "rotary", "none": "none",
            "alibi": "alibi", "absolute": "learned", "rotary": "rotary"},  # the last three of forks
           default="learned"),
    flag("use-rotary-position-embeddings"),
    flag("no-position-embedding"),
    text("rotary-percent", "rotary_fraction"),
    number("rotary-base"),
    flag("use-rope-scaling"),
    text("rope-scaling-factor"),
    text("rotary-scaling-factor"),
    text("mscale"),
    text("mscale-all-dim"),
    text("norm-epsilon"),
    number("make-vocab-size-divisible-by", "vocabulary_multiple"),
    text("tokenizer-type"),
    number("vocab-size"),
    number("padded-vocab-size"),
    flag("untie-embeddings-and-output-weights", "untied_embeddings"),
    number("num-attention-heads", "num_heads"),
    flag("group-query-attention"),
    number("num-query-groups", default=1),
    number("kv-channels", "head_dim"),
    flag("qk-layernorm", "qk_norm"),
    text("window-size", "sliding_window"),
    text("window-attn-skip-freq", "sliding_window_every"),
    choice("softmax-type", "attention_sinks", {"vanilla": False, "off-by-one": False, "learnable": True}, False),
    choice("normalization", "norm",
           {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm", "layernorm": "layernorm", "rmsnorm": "rmsnorm"},
           "layernorm"),
    flag("swiglu"),
    flag("quick-geglu"),
    text("glu-linear-offset"),
    text("activation-func-clamp-value"),
    flag("squared-relu"),
    flag("disable-bias-linear"),
    flag("add-qkv-bias"),
    number("num-experts"),
    number("moe-router-topk", "top_k", 2),
    number("moe-ffn-hidden-size", "expert_ffn_hidden_size"),
    flag("moe-grouped-gemm"),
    text("moe-layer-freq"),
    number("moe-shared-expert-intermediate-size", "shared_expert_ffn_hidden_size", 0, least=0),
    flag("moe-shared-expert-gate", "shared_expert_gate"),
    number("moe-router-num-groups", "router_groups", 1),
    number("moe-router-group-topk", "router_group_top_k", 1),
    number("moe-latent-size", "latent_size"),
    text("moe-router-score-function"),
    flag("moe-router-enable-expert-bias", "router_bias"),
    flag("multi-latent-attention"),
    number("q-lora-rank"),
    number("kv-lora-rank", default=32),
    number("qk-head-dim", "qk_nope_head_dim", 128),
    number("qk-pos-emb-head-dim", "qk_rope_head_dim", 64),
    number("v-head-dim", default=128),
    number("mamba-num-heads"),
    number("mamba-head-dim", default=64),
    number("mamba-state-dim", "mamba_state_size", 128),
    number("mamba-num-groups", default=8),
    number("mtp-num-layers", "mtp_layers", least=0),
    flag("mtp-use-repeated-layer", "mtp_repeated"),
    # The strategy.
    number("tensor-model-parallel-size", "tp", 1),
    number("pipeline-model-parallel-size", "pp", 1),
    number("context-parallel-size", "cp", 1),
    choice("cp-comm-type", "cp_kind",
           {"p2p": "p2p", "a2a": "a2a", "all_gather": "all-gather", "allgather": "all-gather", "a2a+p2p": "a2a+p2p"}),
    text("hierarchical-context-parallel-sizes"),
    number("data-parallel-size", "dp"),
    number("expert-model-parallel-size", "ep", 1),
    number("expert-tensor-parallel-size", "etp"),
    choice("moe-token-dispatcher-type", "dispatch",
           {"allgather": "allgather", "alltoall": "alltoall", "flex": "deepep", "alltoall_seq": "alltoall"},
           "allgather"),
    choice("moe-flex-dispatcher-backend", "flex_backend", ("deepep", "hybridep", "ncclep"), "deepep"),
    flag("moe-enable-deepep"),
    text("moe-expert-capacity-factor", "expert_capacity"),
    flag("moe-pad-expert-input-to-capacity"),
    text("hybrid-layer-pattern", "layer_pattern", older=("hybrid-override-pattern",)),
    number("num-layers-per-virtual-pipeline-stage", "layers_per_chunk"),
    number("num-virtual-stages-per-pipeline-rank", "vpp", 1),
    text("pipeline-model-parallel-layout", "layout"),
    number("decoder-first-pipeline-num-layers", "first_stage_layers"),
    number("decoder-last-pipeline-num-layers", "last_stage_layers"),
    flag("account-for-embedding-in-pipeline-split", "embedding_as_layer"),
    flag("account-for-loss-in-pipeline-split", "loss_as_layer"),
    flag("sequence-parallel"),
    number("micro-batch-size", default=1),
    number("global-batch-size"),
    flag("fp16"),
    flag("bf16"),
    choice("fp8-format", "fp8", ("e4m3", "hybrid")),
    flag("fp8", "fp8_flag"),
    choice("fp8-recipe", "fp8_recipe", ("delayed", "tensorwise", "blockwise", "mxfp8"), "delayed"),
    choice("fp4-format", "fp4", ("e2m1",)),
    choice("fp4-recipe", "fp4_recipe", ("nvfp4",)),
    flag("use-distributed-optimizer"),
    flag("overlap-grad-reduce"),
    flag("overlap-param-gather"),
    number("ddp-bucket-size", "bucket_size"),
    number("ddp-num-buckets"),
    flag("use-nccl-ub"),
    flag("use-torch-fsdp2"),
    number("zero-stage", "deepspeed_stage", least=0),  # Megatron-DeepSpeed's
    flag("use-megatron-fsdp", older=("use-custom-fsdp",)),
    choice("data-parallel-sharding-strategy", "zero_stage",
           {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}, 3),
    text("ckpt-format"),
    number("num-distributed-optimizer-instances", "copies", 1),
    choice("recompute-granularity", "recompute", ("full", "selective")),
    choice("recompute-method", "recompute_method", ("uniform", "block")),
    number("recompute-num-layers", least=0),
    flag("recompute-layers-of-ranks"),  # MindSpeed's, over all chunks of a rank
    text("recompute-modules"),
    flag("recompute-activations"),
    flag("moe-layer-recompute"),
    flag("distribute-saved-activations"),
    number("microbatch-group-size-per-virtual-pipeline-stage", "chunk_group"),
    flag("use-tp-pp-dp-mapping"),
    # The optimizer and the formats of its states.
    choice("optimizer", "optimizer", {"adam": "adam", "sgd": "sgd", "dist_muon": "muon", "muon": "muon"}, "adam"),
    flag("accumulate-allreduce-grads-in-fp32"),
    flag("grad-reduce-in-bf16"),
    flag("use-precision-aware-optimizer"),
    choice("main-params-dtype", "main_params", _FORMATS[:2]),
    choice("main-grads-dtype", "main_grads", ("fp32", "bf16")),
    choice("exp-avg-dtype", "moments", _FORMATS, "fp32"),
    choice("exp-avg-sq-dtype", "second_moments", _FORMATS, "fp32"),
    flag("optimizer-cpu-offload"),
    text("optimizer-offload-fraction", "offload_fraction"),
    flag("overlap-cpu-optimizer-d2h-h2d"),
    flag("fp8-param-gather"),
    flag("fp4-param-gather"),
    flag("fine-grained-activation-offloading"),
    text("offload-modules"),
    flag("cpu-offloading"),
    number("cpu-offloading-num-layers", "offloaded_layers", 0, least=0),
    # What a stack hides, fuses and captures.
    flag("tp-comm-overlap"),
    flag("no-overlap-p2p-communication"),
    flag("overlap-moe-expert-parallel-comm"),
    flag("moe-shared-expert-overlap"),
    flag("moe-router-force-load-balancing"),
    flag("moe-permute-fusion"),
    flag("moe-router-fusion"),
    flag("use-flash-attn"),
    flag("use-transformer-engine-op-fuser"),
    choice("cuda-graph-impl", "graphs", ("none", "local", "transformer_engine", "full_iteration")),
    flag("enable-cuda-graph"),
    flag("external-cuda-graph"),
    text("cuda-graph-scope", until="0.18"),
    text("cuda-graph-modules", since="0.19"),
    choice("cross-entropy-fusion-impl", "loss", ("native", "te", "linear"), "native"),
    flag("cross-entropy-loss-fusion"),
    choice("transformer-impl", "", ("local", "transformer_engine")),
    choice("attention-backend", "attention", ("flash", "fused", "unfused", "local", "auto")),
    choice("flash-attention-version", "flash_version", ("2", "3", "4")),
    flag("no-masked-softmax-fusion"),
    flag("no-bias-gelu-fusion"),
    flag("no-bias-swiglu-fusion"),
    flag("no-bias-dropout-fusion"),
    flag("no-rope-fusion"),
    flag("no-gradient-accumulation-fusion"),
    flag("deterministic-mode"),
    text("attention-dropout"),
    text("hidden-dropout"),
    # The run.
    text("rampup-batch-size"),
    text("step-batch-size-schedule"),
    text("nnodes"),
    text("nproc-per-node"),
    number("train-iters", least=0),
    number("train-samples", least=0),
    number("train-tokens", least=0),  # Megatron-DeepSpeed's
    # Words of dialects, and of recipes.
    text("model.name", "model_name"),
    text("tokenizer-model"),
    flag("peft"),
    number("peft.dim", "adapter_rank", 8),
    text("peft.target-modules", "adapter_modules"),
    flag("embed-layernorm", "embedding_norm"),
    choice("pipeline-schedule", "own_schedule", ("zb-1p", "zb-2p", "zb-v", "v-half", "v-min")),
    flag("gpt-j-residual", "parallel_block"),
    number("gradient-accumulation-steps", "accumulation"),
    text("hidden-dim-multiplier", "width_factor"),
    number("multiple-of", "width_multiple"),
    number("expert-interval"),
    number("n-shared-experts", "shared_experts", 0, least=0),
    text("first-k-dense-replace", "dense_layers"),
    flag("moe-tp-extend-ep", "experts_over_tensor_ranks"),
    text("noop-layers", "empty_layers"),
    text("num-layer-list", "layer_list"),
    number("ulysses-degree-in-cp", "ulysses"),
)  # fmt: skip
"""Options by field, in the order in which they are written; those that are never written say what others say."""

PRECISIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "fp32": {},
    "fp16": {"fp16": True},
    "bf16": {"bf16": True},
    "fp8": {"bf16": True, "fp8": "hybrid"},
    "fp8-current": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8-block": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "blockwise"},
    "mxfp8": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"bf16": True, "fp4": "e2m1"},
}
"""Megatron-LM trains in fp32 unless an option says otherwise; the narrow formats come on top of bf16."""
MOMENTS: Final = {"bf16": "adam-bf16", "fp16": "adam-bf16", "fp8": "adam-8bit"}
"""Formats of Adam's moments, and the optimizer that has them; the first of an optimizer is the one that is written."""

UNFUSED: Final = {"stack.attention_backend": "unfused", "stack.kernels.blackwell_attention": "unfused"}
FLASH: Final = {"2": "flash-2,flash-1", "3": "flash-3,flash-2", "4": "flash-3,flash-2"}
"""Attention kernels by the major version of FlashAttention."""
TE_LOSS: Final = 12
"""Bytes a logit that Transformer Engine's cross-entropy moves, as of stack nemo."""
NATIVE_LOSS: Final = 28
"""Bytes a logit of the cross-entropy in compiled pieces, counted from their code, not measured (Megatron-Core's
fused_cross_entropy.py): calculate_logits_max 2 + 4, calculate_predicted_logits 4 + 4, calculate_cross_entropy_loss
4 + 4, calculate_gradients 4 + 2."""
STANDS_FOR: Final[Mapping[str, Mapping[str, Any]]] = {
    "deterministic_mode": {"stack.deterministic": True},
    "use_nccl_ub": {"stack.nccl_ub": True},
    "use_transformer_engine_op_fuser": {"stack.fused_experts": True},
    "distribute_saved_activations": {"stack.recompute.partitioned_inputs": True},
    "no_overlap_p2p_communication": {"stack.overlap.pp_interleaved": 1.0},
    "no_masked_softmax_fusion": {"stack.fused_softmax": False},
    # products of complex numbers, as before the fused kernel (release 2023-11 of the stack)
    "no_rope_fusion": {"stack.kernels.rotary_traffic": 6},
    # a product's own gradient in 16 bits is written, then read and added to the buffer: 2 + 4 + 4 bytes
    "no_gradient_accumulation_fusion": {
        "stack.gradients.accumulate_traffic": 10,
        "stack.gradients.micro_batch_gradient_bytes": 2,
        "stack.gradients.dummy_gradients": False,
    },
}
"""Flags that stand for fields of the stack where they are there, by the flag's field."""
SWITCHED: Final = {
    "overlap_grad_reduce": "overlap_grad_reduce",
    "overlap_param_gather": "overlap_param_gather",
    "tp_comm_overlap": "tp_comm_overlap",
    "overlap_moe_expert_parallel_comm": "overlap_moe_expert_parallel_comm",
    "moe_shared_expert_overlap": "shared_expert_overlap",
}
"""Flags whose absence is off, and the switch of the stack for each."""

CARRIED: Final = (
    *("optimizer", "main_grads", "main_params", "fp8_param_gather", "expert_capacity", "dropout"),
    *("stack.overlap.tp_forward", "stack.tensor-parallel-overlap", "stack.overlap.ep"),
    *("stack.cuda_graphs", "stack.cuda_graph_scope", "stack.dispatcher", "stack.offload_fraction", "stack.loss"),
    *("stack.dropout", "stack.bucket_size", "stack.sharding.bucket_per_rank", "stack.logits.cross_entropy_traffic"),
    *(f"stack.{switch}" for switch in SWITCHED.values()),
    *(path for fields in (*STANDS_FOR.values(), UNFUSED) for path in fields),
    # Megatron-FSDP, which a strategy's own stage asks for
    *("stack.supports.zero_stages", "stack.sharding.state_copies"),
    *(f"model.{name}" for name in Model.model_fields),
)
"""Choices and paths of changes that its arguments have, or that their exporter remarks on."""
