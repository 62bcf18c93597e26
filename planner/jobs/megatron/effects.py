"""What options of Megatron-LM do to time and memory where that is not priced, and those of the run around the model.

As of Megatron-Core 0.19 (``megatron.training.arguments``); what stands in neither table nor in ``OPTIONS`` is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_DOCUMENTS: Final = "attention stays inside documents: the iteration is shorter, the more so the longer the sequence"
_EXPERTS_SLOWER: Final = "expert layers take longer"
_LITTLE: Final = "the iteration differs by a percent or two at most"

_TOWER: Final = "it belongs to the vision tower, which is not priced"
OF_VISION: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("vision-model-type", "use-tiling", "max-num-tiles", "use-thumbnail", "pixel-shuffle", "use-tile-tags",
         "disable-vision-class-token", "image-tag-type"),
        _TOWER),
    "freeze-ViT": "the vision tower is frozen: it has no gradients and no optimizer states",
    "freeze-LM": "the language model is frozen: it has no gradients and no optimizer states, but they are priced",
}  # fmt: skip
"""Options of multimodal programs, by which these are known."""

UNPRICED: Final[Mapping[str, str]] = {
    **OF_VISION,
    # Overlap.
    "delay-wgrad-compute": "more expert communication hides behind weight gradients: the iteration is shorter",
    "overlap-dispatch-backward-with-experts-wgrad": "more expert communication is hidden: the iteration is shorter",
    "ep-overlap-early-attn-memory-release": "less memory with overlapped experts, a little more time",
    "overlap-param-gather-with-optimizer-step": "parameters are gathered behind the optimizer: slightly shorter",
    "overlap-p2p-communication-warmup-flush": "sends of warm-up and flush are hidden too: slightly shorter",
    "defer-embedding-wgrad-compute": "the head of the last stage runs in the bubble: the iteration is shorter, with "
                                     "more memory there",
    "wgrad-deferral-limit": "it limits the memory of the head's deferred gradients",
    "high-priority-a2a-comm-stream": _LITTLE,
    "use-ring-exchange-p2p": "stages send one after another: the iteration is longer",
    "tp-comm-overlap-cfg": "its file sets the user buffers; the usual ones are priced",
    **dict.fromkeys(
        ("no-tp-comm-bulk-wgrad", "no-tp-comm-bulk-dgrad", "no-tp-comm-overlap-ag", "no-tp-comm-overlap-rs",
         "no-tp-comm-split-ag", "no-tp-comm-split-rs", "disable-tp-comm-bulk-wgrad", "disable-tp-comm-bulk-dgrad",
         "disable-tp-comm-overlap-ag", "disable-tp-comm-overlap-rs", "disable-tp-comm-split-ag",
         "disable-tp-comm-split-rs"),
        "some tensor-parallel communication is not hidden: the iteration is longer"),
    "tp-comm-overlap-rs-dgrad": "more tensor-parallel communication of the backward pass is hidden: the iteration is "
                                "shorter",
    "pipeline-model-parallel-comm-backend": "stages send through UCC if it says so; NCCL is priced",
    "symmetric-ar-type": "one-shot or two-shot all-reduces over tensor ranks: tensor-parallel communication is shorter",
    # Experts.
    "moe-use-legacy-grouped-gemm": "the older grouped GEMM: " + _EXPERTS_SLOWER,
    "moe-router-padding-for-fp8": "experts' tokens are padded to a multiple of 16 or 32: " + _LITTLE,
    "moe-router-padding-for-quantization": "experts' tokens are padded to a multiple of 16 or 32: " + _LITTLE,
    "moe-apply-probs-on-input": _LITTLE,
    "moe-extended-tp": "experts are split over more ranks than priced",
    "moe-permute-fusion-into-hybridep": "tokens are sorted while they travel: expert layers are shorter",
    "moe-router-force-biased": "the router's load is made uneven: the busiest expert rank sets the pace",
    "moe-paged-stash": "experts' activations are kept in pages, in part on the host: less memory, more time",
    "moe-expert-rank-capacity-factor": "tokens beyond a rank's capacity are dropped: memory has a bound",
    **dict.fromkeys(("moe-flex-dispatcher-num-sms", "moe-deepep-num-sms", "moe-hybridep-num-sms"),
        "SMs for the dispatch: more of them shorten it and slow the matrix products meanwhile"),
    "use-grouped-gemm-for-shared-expert": _LITTLE,
    "use-grouped-gemm-for-dense-mlp": _LITTLE,
    "moe-single-grouped-weight": "fewer, larger tensors for the optimizer and the buckets: " + _LITTLE,
    # Kernels of a layer.
    "no-persist-layer-norm": "a slower norm kernel: " + _LITTLE,
    "fp32-residual-connection": "residuals are in fp32: activations, sends and norms take up to twice as much",
    "apply-query-key-layer-scaling": "unfused attention computes its softmax in fp32",
    "attention-softmax-in-fp32": "unfused attention keeps its scores in fp32: more memory and time there",
    "apply-residual-connection-post-layernorm": _LITTLE,
    "attention-output-gate": "a further projection, as wide as the queries: parameters, memory and time grow",
    "disable-jit-fuser": "small operations run one by one: layers take longer",
    "disable-bf16-reduced-precision-matmul": _LITTLE,
    "fused-residual-rmsnorm": "residual and norm in one kernel: slightly shorter",
    "use-fused-weighted-squared-relu": "slightly shorter",
    "use-te-activation-func": "activation and bias run apart: slightly longer",
    "qk-l2-norm": "a norm without weights on queries and keys: slightly longer",
    "qk-clip": "the largest logit of every head is reduced over all ranks: slightly longer",
    "no-rope-freq": "some layers have no rotary positions: slightly shorter",
    "rotary-interleaved": "the fused kernel of rotary positions is left out: " + _LITTLE,
    "mla-down-proj-fusion": "two projections in one: slightly shorter",
    "batch-invariant-mode": "slower matrix products and norms: the iteration is longer",
    "mlp-chunks-for-training": "feed-forward networks run in pieces: less memory, a little more time",
    "disable-mamba-mem-eff-path": "Mamba layers keep more for their backward pass: more memory",
    "mamba-training-ssm-states-dtype": "states of Mamba layers in another format: memory differs a little",
    "use-kitchen-attention": "another attention library than the priced one",
    # Formats.
    "first-last-layers-bf16": "the first and last layers run in bf16, but are priced in 8 bits: the iteration is "
                              "longer",
    "num-layers-at-start-in-bf16": "these layers run in bf16 if --first-last-layers-bf16 is given",
    "num-layers-at-end-in-bf16": "these layers run in bf16 if --first-last-layers-bf16 is given",
    "te-precision-config-file": "its file sets the formats; one format for all matrix products is priced",
    "no-fp8-wgrad": "weight gradients in 16 bits: the iteration is longer",
    "disable-fp8-wgrad": "weight gradients in 16 bits: the iteration is longer",
    "fp8-output-proj": "the head in 8 bits too: slightly shorter",
    "reuse-grad-buf-for-mxfp8-param-ag": "gathered parameters share the buffer of gradients: less memory",
    "fp16-lm-cross-entropy": "the loss in 16 bits: less memory on the last stage",
    "keep-fp8-transpose-cache": "transposed weights are kept: more memory, less time",
    "megatron-fsdp-main-params-dtype": "master weights of Megatron-FSDP in another format: memory differs",
    "megatron-fsdp-main-grads-dtype": "gradients of Megatron-FSDP in another format: memory and traffic differ",
    "megatron-fsdp-grad-comm-dtype": "gradients of Megatron-FSDP travel in another format: traffic differs",
    # Data ranks and memory.
    "ddp-num-buckets": "it sets the number of gradient buckets; buckets of the usual size are priced",
    "ddp-reduce-scatter-with-fp32-accumulation": "gradients are exchanged and summed separately: " + _LITTLE,
    "outer-dp-sharding-strategy": "optimizer states are sharded over all copies too: less memory than priced",
    "enable-full-sharding-in-hsdp": "states are sharded over all copies too: less memory than priced",
    "tensor-parallel-num-weight-shards": "weights are sharded and gathered over more ranks: less memory, more time",
    "expert-tensor-parallel-num-weight-shards": "expert weights are sharded further: less memory, more time",
    "fsdp-double-buffer": "two buffers for gathered parameters: fixed memory in place of many allocations",
    "megatron-fsdp-max-pool-double-buffer": "two buffers for gathered parameters: fixed memory",
    "torch-fsdp2-no-reshard-after-forward": "gathered parameters stay for the backward pass: more memory, less time",
    "suggested-communication-unit-size": "it sets what Megatron-FSDP gathers at a time; the usual units are priced",
    "empty-unused-memory-level": "the allocator's cache is emptied every iteration: longer, with less memory held",
    "use-sharp": "network switches sum gradients: data-parallel communication is shorter",
    "cpu-offloading-weights": "weights go to the host too: less memory, more time",
    "cpu-offloading-retain-pinned-cpu-buffers": "host memory stays pinned: " + _LITTLE,
    "activation-offload-fraction": "only some activations go to the host",
    "min-offloaded-tensor-size": "small activations stay: a little more memory",
    "delta-offload-bytes-across-pp-ranks": "later stages offload less",
    "use-torch-optimizer-for-cpu-offload": "PyTorch's optimizer on the host: the step is longer",
    "optimizer-cuda-graph": "the optimizer replays a graph: the step is slightly shorter",
    "mtp-standalone": "the MTP layers have their own stage",
    "mtp-hybrid-override-pattern": "the MTP layers are others than those priced",
    "heterogeneous-layers-config-path": "layers differ as its file says; they are priced as equal",
    "heterogeneous-layers-config-encoded-json": "layers differ as it says; they are priced as equal",
    "moe-use-upcycling": "a dense checkpoint becomes experts before the first iteration; later iterations are "
                         "unchanged",
    # Data.
    "reset-attention-mask": _DOCUMENTS,
    "dataloader-inter-document-masking": _DOCUMENTS,
    "sft": "sequences are packed: attention stays inside conversations, and the iteration is shorter",
    "hybrid-context-parallel": "context ranks vary with the length of a sequence",
    "max-seqlen-per-dp-cp-rank": "context ranks vary with the length of a sequence",
    "perform-rl-step": "rollouts run between steps: only the training step is priced",
    "freeze-all-layers": "nothing trains: there are no gradients and no optimizer states, but they are priced",
    # What is watched.
    "log-max-attention-logit": "the largest logit of attention is kept too: slightly longer",
    "log-num-zeros-in-grad": "gradients are read once more: slightly longer",
    "log-params-norm": "parameters are read once more where it is logged: slightly longer",
    "check-for-large-grads": "gradients are read once more: slightly longer",
    "profile": "the iterations that are profiled take longer",
    "use-pytorch-profiler": "the iterations that are profiled take longer",
    "record-memory-history": "the allocator records every block: longer if the GPU waits for the host",
    "logits-save-dir": "logits are written out: the iteration is longer",
    "logits-load-dir": "a teacher's logits are read for a second loss: longer, with more memory at the head",
    "spec": "its own module builds the layers; Megatron-Core's usual ones are priced",
}  # fmt: skip
"""By option, what it does."""

OF_THE_RUN: Final = (
    r"(lr|min-lr|warmup|decoupled|weight-decay|start-weight-decay|end-weight-decay|adam|sgd|muon|lion|clip-grad"
    r"|init-method|embedding-init-method|override-opt.param|use-checkpoint-opt.param|loss-scale|initial-loss-scale"
    r"|min-loss-scale|no-weight-decay|apply-wd|use-mup|mup|attention-scale)(-[\w-]+)?"
    r"|(save|load|ckpt|dist-ckpt|no-save|no-load|async|non-persistent|use-dist-ckpt|verify|replication|exit|rerun|result"
    r"|inprocess|ft|fault-injector|error-injection|straggler|log|wandb|tensorboard|one-logger|no-one-logger|app-tag|timing"
    r"|profile|pytorch-profiler|nvtx|memory-snapshot|flight-recorder|no-flight-recorder|nccl-communicator|manual-gc"
    r"|no-manual-gc|disable-manual-gc|eval|valid|validation|test|tokenizer|no-tokenizer|tiktoken|null-tokenizer|chat|fim"
    r"|data-cache|data-args|dataloader|inference|adlr|ict|bert|biencoder|retriever|indexer|dino|img|swin|logits|rl|grpo"
    r"|langrl|dsa|yarn|no-yarn|rope|mrope|relative-attention|no-strict|no-ckpt|disable-ckpt|no-log|distrib-optim)-[\w-]+"
    r"|save|load|wandb|seed|split|finetune|pretrained-checkpoint|lr|clip-grad|weight-decay|hysteresis|exit-signal"
    r"|train-(data-path|sync-interval)|valid-data-path|test-data-path|data-path|per-split-data-args-path"
    r"|per-dataset-sequences-path|phase-transition-iterations|num-workers|num-dataset-builder-threads|mock-data"
    r"|no-mmap-bin-files|object-storage-cache-path|mid-level-dataset-surplus|allow-ambiguous-pad-tokens|eod-mask-loss"
    r"|reset-position-ids|no-create-attention-mask-in-dataloader|sample-rate|mask-prob|short-seq-prob|vocab-file"
    r"|merge-file|vocab-extra-ids|trust-remote-code|no-pad-vocab-size|disable-pad-vocab-size|use-checkpoint-args"
    r"|use-mp-args-from-checkpoint-args|no-use-tokenizer-model-from-checkpoint-args|auto-detect-ckpt-format"
    r"|override-ckpt-iteration|no-initialization|use-cpu-initialization|init-model-with-meta-device|data-parallel-random"
    r"-init|te-rng-tracker|enable-ft-package|calc-ft-timeouts|enable-msc|disable-msc|skip-train|full-validation"
    r"|multiple-validation-sets|iterations-to-skip|no-check-for-nan-in-loss-and-grad|check-for-nan-in-loss-and-grad"
    r"|check-for-spiky-loss|check-weight-hash-across-dp-replicas-interval|gpu-sniff-test-interval|config-logger-dir"
    r"|distributed-(backend|timeout-[\w-]+)|local-rank|lazy-mpu-init|disable-gloo-process-groups"
    r"|enable-gloo-process-groups|fake-process-group|high-priority-stream-groups|sharp-enabled-group|yaml-cfg"
    r"|use-mcore-models|use-legacy-models|enable-experimental|calculate-per-token-loss|no-barrier-with-level-1-timing"
    r"|run-workload-inspector-server|export-[\w-]+|dump-param-to-param-group-map|decrease-batch-size-if-needed"
    r"|norm-epsilon|layernorm-epsilon|apply-layernorm-1p|no-bias-in-norm|onnx-safe|openai-gelu|bert-no-binary-head|dist-ckpt"
    r"|mtp-loss-scaling-factor|mtp-detach-heads|cache-mla-latents|rotary-seq-len-interpolation-factor"
    r"|moe-(aux-loss-coeff|z-loss-coeff|router-load-balancing-type|router-score-function|router-dtype|router-pre-softmax"
    r"|router-topk-scaling-factor|router-bias-update-rate|router-topk-limited-devices|input-jitter-eps|token-drop-policy"
    r"|per-layer-logging|router-quantile-balancing-ema|enable-routing-replay|routing-trace-[\w-]+|upcycling-granularity"
    r"|hybridep-num-sms-preprocessing|hybridep-num-blocks-[\w-]+|shared-expert-glu-interleave-size|mlp-glu-interleave-size"
    r"|single-grouped-bias|hybridep-pad-uneven-dispatch-inputs|pad-experts-for-cuda-graph-inference|ncclep-[\w-]+"
    r"|paged-stash-[\w-]+)|qk-clip-[\w-]+|no-dsa-[\w-]+|disable-dsa-[\w-]+|kitchen-attention-backend|flash-decode"
    r"|nccl-all-reduce-for-prefill|mlp-chunks-for-prefill|delay-offload-until-cuda-graph|fine-grained-offloading-[\w-]+"
    r"|record-shapes|manual-gc|no-rl-[\w-]+|refit-method|persistent-save-interval|use-persistent-ckpt-worker|replication"
    r"|use-dist-ckpt|no-stream-ckpt-dequant|disable-stream-ckpt-dequant|disable-flight-recorder-[\w-]+|start-eval-at-iter"
    r"|allow-missing-vision-projection-checkpoint"
    r"|logging-level|no-one-logger|sft-tokenizer-prompt-format|no-inference-[\w-]+|mamba-inference-[\w-]+"
    r"|megatron-fsdp-enable-fine-grained-param-gather|fsdp-db-use-persist-buf-on-alloc-fail|help"
    r"|fp8-(margin|interval|amax-history-len|amax-compute-algo|quantizer-factory)|fp4-quantizer-factory"
    r"|ddp-(average-in-collective|pad-buckets-for-high-nccl-busbw)|no-align-(param-gather|grad-reduce)"
    r"|disable-align-grad-reduce|no-gradient-reduce-div-fusion|no-use-layer-wise-param-layout|tp-comm-bootstrap-backend"
    r"|cuda-graph-warmup-steps|no-clone-scatter-output-in-embedding|disable-clone-scatter-output-in-embedding|no-pin-cpu-"
    r"(grads|params)|fsdp-manual-registration|create-all-gather-group|disable-symmetric-registration|is-hybrid-model"
    r"|pipeline-model-parallel-split-rank|standalone-embedding-stage|linear-(conv-kernel-dim|key-head-dim|value-head-dim"
    r"|num-key-heads|num-value-heads)|use-precision-aware-optimizer|max-tokens-to-oom|tensorboard-dir"
    # Launchers: torchrun, srun, ray.
    r"|node-rank|master-addr|master-port|rdzv-[\w-]+|standalone|max-restarts|monitor-interval|start-method|role|module|tee"
    r"|redirects|local-addr|address|runtime-env-json|working-dir|no-wait|container-[\w-]+|mpi|job-name|partition|account|time"
    r"|nodelist|exclusive|ntasks|ntasks-per-node|gpus-per-node|cpus-per-task|output|error|export|wait|kill-on-bad-exit|label"
    r"|hostfile|force-multi|launcher|include|exclude|no-local-rank|submission-id|bind-to|map-by|allow-run-as-root"
)
"""Pattern of options of the run around the model: rates, checkpoints, data, logs, launchers. They change no price."""
