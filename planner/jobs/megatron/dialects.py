"""Programs on Megatron-LM's arguments with options of their own, one table each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Final

from planner.jobs.megatron.dialect import MEGATRON, Dialect
from planner.jobs.megatron.effects import OF_THE_RUN, UNPRICED
from planner.jobs.reader import Launch


def _names(launch: Launch) -> set[str]:
    return {word[2:].partition("=")[0].replace("_", "-") for word in launch.words if word.startswith("--")}


def _with_any(*options: str) -> Callable[[Launch], bool]:
    """Launches that have one of some options."""
    wanted = frozenset(options)
    return lambda launch: bool(wanted & _names(launch))


def _follows(launch: Launch, first: str, then: Collection[str]) -> bool:
    """Whether a program's name comes right before one of some commands."""
    words = [word.rpartition("/")[2] for word in launch.words]
    return any(one == first and other in then for one, other in pairwise(words))


_FULL: Final = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
_SHORTER: Final = "sequences have the lengths of the data; all are priced at the maximum length"
_REFERENCE: Final = "a second loss over pairs or samples, and a frozen reference model: more memory and time"

_CHECKPOINTS: Final = {
    "checkpoint-activations": _FULL,
    "checkpoint-num-layers": "--recompute-num-layers {}",
    "distribute-checkpointed-activations": "--distribute-saved-activations",
}

DEEPSPEED: Final = Dialect(
    name="Megatron-DeepSpeed",
    means={
        **_CHECKPOINTS,
        "partition-activations": "--distribute-saved-activations",
        "no-pipeline-parallel": "",
        "ds-sequence-parallel-size": "--context-parallel-size {} --cp-comm-type a2a",
        "moe-expert-parallel-size": "--expert-model-parallel-size {}",
        "topk": "--moe-router-topk {}",
        "mlp-type": {"standard": ""},
        "num-key-value-heads": "--group-query-attention --num-query-groups {}",
        "rotary-position-embeddings-theta": "--rotary-base {}",
        "use-flash-attn-v2": "--use-flash-attn",
        "use-flash-attn-triton": "--use-flash-attn",
        "use-flash-attn-builder": "--use-flash-attn",
        "cpu-optimizer": "--optimizer-cpu-offload",
        "pad-vocab-size-to": "--padded-vocab-size {}",
        "glu-activation": {"swiglu": "--swiglu", "geglu": "--quick-geglu"},
        "pp-partition-method": {
            "type:transformer|embedding": "--account-for-embedding-in-pipeline-split "
            "--account-for-loss-in-pipeline-split",
            "type:transformer": "",
            "uniform": "",
            "parameters": "",
        },
        "num-gpus": "--nproc-per-node {}",
        "num-nodes": "--nnodes {}",
        "moe-train-capacity-factor": "--moe-expert-capacity-factor {}",
    },
    usual="--transformer-impl local --expert-interval 2 --recompute-num-layers 1",
    refused={
        "enable-zbh1-pipeline": "--stack zero-bubble prices zero-bubble pipelines",
        "enable-zbh1-exact-semantics": "--stack zero-bubble prices zero-bubble pipelines",
    },
    unpriced={
        **UNPRICED,
        "curriculum-learning": "sequences are shorter at first: whole ones are priced",
        "data-efficiency-curriculum-learning": "sequences are shorter at first: whole ones are priced",
        "random-ltd": "layers skip some tokens: the iteration is shorter",
        "checkpoint-in-cpu": "inputs of recomputed layers go to the host: less memory, more time",
        "ds-sequence-parallel-fpdt": "sequences are cut into pieces that go to the host: less memory, more time",
        "use-bnb-optimizer": "Adam's moments in 8 bits: less memory; 32 bits are priced",
        "use-tutel": "a dispatcher that has no price",
        "disable-moe-token-dropping": "no token is dropped: experts may get more tokens than their capacity",
        "create-moe-param-group": "experts are a separate group of the optimizer: no more time",
        "no-async-tensor-model-parallel-allreduce": "all-reduces of the backward pass are not hidden: the iteration is "
        "longer",
        "kd": "a teacher model runs forward too: more memory and time",
        "mos": "a teacher model runs forward too: more memory and time",
    },
    harmless=OF_THE_RUN
    + r"|deepspeed|deepspeed-(mpi|config|activation-checkpointing)|deepscale|data-impl|kill-switch-(path|file)|log-path"
    r"|abort-on-unmet-fused-kernel-constraints|sync-tp-duplicated-parameters|(train|valid|test)-weighted-split-paths.*"
    r"|valid-num-workers|reset-(progress|iteration)|norm-target-loss|universal-checkpoint|codecarbon-dir"
    r"|no-query-key-.*"
    r"|moe-(loss-coeff|eval-capacity-factor|min-capacity)|skip-train-iteration-range|override-lr-scheduler|mmap-warmup"
    r"|enable-expert-tensor-parallelism|zero-(contigious-gradients|reduce-scatter)|remote-device|use-pin-memory"
    r"|synchronize-each-layer|contigious-checkpointing|profile-backward|(train-)?(idx|desc|doc-idx|sample-idx"
    r"|shuffle-idx)"
    r"-path|repeated-dataloader|return-data-index|train-data-exact-num-epochs|loss-on-targets-only|inference|DDP-impl"
    r"|hidden-size-teacher|num-(layers|experts|attention-heads)-teacher|kd-[\w-]+|load-teacher|no-scatter-gather.*",
    stack="megatron-deepspeed",
    knows=_with_any("deepspeed", "deepspeed-config", "zero-stage", "deepspeed-activation-checkpointing"),
    balanced=True,
)

OLDER: Final = Dialect(
    name="Megatron-LM before 2022",
    means=_CHECKPOINTS,
    usual="--transformer-impl local",
    harmless=OF_THE_RUN + r"|data-impl|DDP-impl|no-query-key-layer-scaling|no-scatter-gather-tensors-in-pipeline",
    stack="megatron-lm-2021",
    knows=_with_any("checkpoint-activations"),
)

SWIFT: Final = Dialect(
    name="ms-swift (megatron)",
    means={
        "max-length": "--seq-length {}",
        "model": "--model.name {}",
        "model-type": "",
        "train-type": {"lora": "--peft", "full": "", "lora_llm": "--peft"},
        "tuner-type": {"lora": "--peft", "full": "", "lora_llm": "--peft"},
        "lora-rank": "--peft.dim {}",
        "target-modules": "--peft.target-modules {}",
        "virtual-pipeline-model-parallel-size": "--num-virtual-stages-per-pipeline-rank {}",
        "recompute-granularity": {
            "none": "",
            "selective": "--recompute-granularity selective",
            "full": "--recompute-granularity full",
        },
    },
    usual=(
        "--bf16 --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 16 --recompute-granularity "
        "selective --moe-grouped-gemm --moe-token-dispatcher-type alltoall --cross-entropy-loss-fusion "
        "--attention-backend flash --attention-dropout 0.0 --hidden-dropout 0.0 --no-rope-fusion "
        "--expert-tensor-parallel-size 1"
    ),
    unpriced={
        **UNPRICED,
        "rlhf-type": _REFERENCE,
        "freeze-parameters-ratio": "some weights are frozen: less memory, less time",
        "freeze-llm": "the language model is frozen: less memory, less time",
        "teacher-model": "a teacher model runs forward too: more memory and time",
        "use-vllm": "rollouts run between steps: only the training step is priced",
    },
    harmless=OF_THE_RUN
    + r"|dataset|val-dataset|cached-dataset|load-from-cache-file|split-dataset-ratio|dataset-[\w-]+|system"
    r"|template|agent-"
    r"template|loss-scale|output-dir|save-[\w-]+|(num-train|max)-epochs|packing|padding-free|streaming|merge-lora|lora-"
    r"(alpha|dropout|bias|dtype)|use-rslora|modules-to-save|logging-steps|report-to|freeze-(vit|aligner)|vit-[\w-]+"
    r"|aligner-lr|use-hf|torch-dtype|truncation-strategy|strict|attn-impl|add-version|mcore-(model|adapter)"
    r"|adapters|new-"
    r"special-tokens|perform-initialization|manual-gc-steps|moe-router-[\w-]+|create-checkpoint|lazy-tokenize|group-by-"
    r"length|task-type|num-labels|loss-type|beta|rpo-alpha|reward-[\w-]+|vllm-[\w-]+|num-generations"
    r"|temperature|top-[kp]"
    r"|max-completion-length|epsilon[\w-]*|dynamic-sample|overlong-filter|sleep-level|offload-(model|optimizer|bridge)"
    r"|steps-per-generation|importance-sampling-level|log-completions|external-plugins|enable-thinking"
    r"|model-(author|name)"
    r"|multi-turn-scheduler|max-turns|metric|check-model|metric-for-best-model|greater-is-better|tie-word-embeddings"
    r"|bias-activation-fusion|linear-decoupled-in-proj|lmbda|seq-kd|callbacks|quant-[\w-]+|swanlab-[\w-]+"
    r"|response-prefix",
    stack="megatron-core",
    knows=lambda launch: (
        _follows(launch, "megatron", ("sft", "pt", "rlhf"))
        or any(part.endswith(("_megatron/sft.py", "_megatron/pt.py", "_megatron/rlhf.py")) for part in launch.words)
    ),
    booleans=True,
    environment={"NPROC_PER_NODE": "--nproc-per-node {}", "NNODES": "--nnodes {}"},
    framework="megatron-bridge",
    says=(f"ms-swift packs or pads: {_SHORTER}",),
)

SLIME: Final = Dialect(
    name="slime",
    means={
        "rollout-max-response-len": "--seq-length {}",
        "actor-num-nodes": "--nnodes {}",
        "actor-num-gpus-per-node": "--nproc-per-node {}",
        "hf-checkpoint": "--model.name {}",
    },
    usual="--bf16 --use-distributed-optimizer --moe-token-dispatcher-type alltoall --micro-batch-size 1",
    unpriced={
        **UNPRICED,
        "use-dynamic-batch-size": "micro-batches hold as many tokens as fit; one sequence each is priced",
        "use-kl-loss": "a reference model runs forward too: more memory and time",
        "colocate": "the rollout engine shares the GPUs: its memory is not priced",
    },
    harmless=OF_THE_RUN
    + r"|rollout-[\w-]+|sglang-[\w-]+|prompt-data|input-key|label-key|apply-chat-template|rm-[\w-]+|num-rollout"
    r"|num-epoch"
    r"|n-samples-per-[\w-]+|balance-data|max-tokens-per-gpu|advantage-estimator|kl-[\w-]+|entropy-coef"
    r"|eps-clip[\w-]*|use-"
    r"(wandb|tensorboard|tis|rollout-[\w-]+)|tis-[\w-]+|ref-load|over-sampling-[\w-]+|dynamic-sampling-[\w-]+"
    r"|custom-[\w-]+"
    r"|num-steps-per-rollout|update-weight-[\w-]+|router-[\w-]+|debug-[\w-]+|loss-(type|mask-type)"
    r"|train-backend|megatron-to"
    r"-hf-mode|critic-[\w-]+|generate-[\w-]+|tool-key|offload[\w-]*|no-offload-[\w-]+|disable-compute-[\w-]+"
    r"|prefill-num-"
    r"servers|model-name|log-probs-[\w-]+|partial-rollout|metadata-key|calculate-[\w-]+|data-pad-size-multiplier",
    knows=_with_any("rollout-batch-size", "actor-num-nodes"),
    says=("only the training of the actor is priced, not the rollouts", _SHORTER),
)

PAI: Final = Dialect(
    name="Pai-Megatron-Patch",
    means={
        "fp8-hybrid": "--fp8-format hybrid",
        "n-head-kv": "--group-query-attention --num-query-groups {}",
        "intermediate-size": "--ffn-hidden-size {}",
        "glu-activation": {"swiglu": "--swiglu", "geglu": "--quick-geglu"},
        "use-llama2-rotary-position-embeddings": "--use-rotary-position-embeddings",
        "shared-moe-ffn-hidden-size": "--moe-shared-expert-intermediate-size {}",
        "patch-tokenizer-type": "--tokenizer-type {}",
        "optimizer": {
            **{name: f"--optimizer {name}" for name in ("adam", "sgd", "muon", "dist_muon")},
            "hybridadam": "--optimizer adam --optimizer-cpu-offload",
        },
        "use-alibi-mask": "--position-embedding-type alibi",
    },
    harmless=OF_THE_RUN + r"|max-padding-length|extra-vocab-size|dataset|train-mode|epochs|optimizer-offload-policy"
    r"|transformer-type|data-impl"
    r"|train-data|attention-head-type|enable-shared-expert|tasks|keep-last|batch|rotary-scale-factor",
    knows=_with_any("patch-tokenizer-type", "extra-vocab-size"),
)

_HIDDEN: Final = "expert all-to-alls hide behind matrix products: the iteration is shorter"
_OTHER_PARTS: Final = "a part of the layers that has no price: parameters, memory and time differ"

MINDSPEED: Final = Dialect(
    name="MindSpeed-LLM",
    means={
        "context-parallel-algo": {
            "megatron_cp_algo": "--cp-comm-type p2p",
            "ulysses_cp_algo": "--cp-comm-type a2a",
            "kvallgather_cp_algo": "--cp-comm-type all_gather",
            "hybrid_cp_algo": "--cp-comm-type a2a+p2p",
        },
        "moe-intermediate-size": "--moe-ffn-hidden-size {}",
        "shared-expert-gate": "--moe-shared-expert-gate",
        "multi-head-latent-attention": "--multi-latent-attention",
        "qk-rope-head-dim": "--qk-pos-emb-head-dim {}",
        "qk-nope-head-dim": "--qk-head-dim {}",
        "moe-fb-overlap": "--overlap-moe-expert-parallel-comm",
        "transformer-impl": "",
        "spec": "",
        "tokenizer-name-or-path": "--tokenizer-model {}",
        "pad-vocab-size-to": "--padded-vocab-size {}",
        "lora-r": "--peft --peft.dim {}",
        "lora-target-modules": "--peft.target-modules {}",
        "partial-rotary-factor": "--rotary-percent {}",
        "npu-deterministic": "--deterministic-mode",
        "enable-recompute-layers-per-pp-rank": "--recompute-layers-of-ranks",
    },
    refused={
        "tp-2d": "two-dimensional tensor parallelism is not priced; leave it out for one dimension",
        "schedules-method": "DualPipe's folded pipeline is not priced under Megatron's options; leave it out for 1F1B",
        "enable-seq1f1b": "pipelines over pieces of a sequence are not priced; leave it out for 1F1B",
    },
    unpriced={
        **UNPRICED,
        "swap-optimizer": "optimizer states go to the host: less memory than priced, and a longer step",
        "swap-attention": "inputs of attention go to the host: less memory, more time",
        "recompute-activation-function": "activations are computed again: less memory, a little more time",
        "recompute-norm": "norms are computed again: less memory, a little more time",
        "recompute-in-bubble": "recomputation hides in the bubble: the iteration is shorter",
        "recompute-in-advance": "recomputation hides in the bubble: the iteration is shorter",
        "adaptive-recompute-device-swap": "what is recomputed or swapped is chosen while it runs, by the memory that "
                                          "is free",
        "adaptive-recompute-device-size": "what is recomputed or swapped is chosen while it runs, by the memory that "
                                          "is free",
        "moe-alltoall-overlap-comm": _HIDDEN,
        "moe-allgather-overlap-comm": _HIDDEN,
        "moe-permutation-async-comm": _HIDDEN,
        "moe-zero-memory": "experts' activations are computed again: less memory, more time",
        "moe-zero-memory-num-layers": "experts' activations are computed again: less memory, more time",
        "reuse-fp32-param": "16-bit weights are stored inside their fp32 copies: 2 bytes per parameter less",
        "use-ascend-coc": "tensor-parallel communication hides behind matrix products: the iteration is shorter",
        "use-ascend-mc2": "tensor-parallel communication hides behind matrix products: the iteration is shorter",
        "unaligned-linear": "tensor ranks hold unequal parts: the largest sets the pace",
        "no-pad-to-seq-lengths": _SHORTER,
        "variable-seq-lengths": _SHORTER,
        "neat-pack": "attention stays inside documents: the iteration is shorter",
        "stage": "other objectives may need a reference model: more memory and time",
        "add-rmsnorm-offset": "norms with an offset: slightly longer",
        "post-norm": _OTHER_PARTS,
        "num-zero-experts": "some experts do nothing: experts' layers are shorter",
        "enable-dsa-indexer": _OTHER_PARTS,
        "enable-mhc": _OTHER_PARTS,
        "mamba-expand": _OTHER_PARTS,
        "full-attention-interval": _OTHER_PARTS,
        "interleave-sliding-window": "some layers attend to a window: the iteration is shorter",
        "moba-topk": _OTHER_PARTS,
        "cla-share-factor": _OTHER_PARTS,
        "scale-depth": "residuals are scaled: slightly longer",
    },
    harmless=OF_THE_RUN
    + r"|use-fused-(rmsnorm|swiglu|rotary-pos-emb|mlp|ring-attention-update|moe-token-permute-and-unpermute"
    r"|lightning-[\w-]+"
    r"|mhc)|model-type-hf|handler-name|prompt-type[\w-]*|enable-(hf2mg|mg2hf)-convert|ai-framework|no-shared-storage"
    r"|is-(instruction|pairwise)-dataset|norm-topk-prob|gemm-gradient-accumulation-fusion|lora-(alpha|fusion"
    r"|load|ckpt-filter"
    r")|shape-order|use-cp-send-recv-overlap|use-flash-attn|pre-tockens|next-tockens|sparse-mode|topk-group"
    r"|n-group|seq-aux"
    r"|routed-scaling-factor|rope-(scaling|theta|factor)[\w-]*|beta-(fast|slow)|mla-(mm-split|fa-without-pad)"
    r"|no-cut-token"
    r"|attention-mask-type|distributed-[\w-]+|disable-gloo-group|hf-[\w-]+|tokenizer-[\w-]+|max-new-tokens"
    r"|cut-max-seqlen"
    r"|overwrite-cache|preprocessing-[\w-]+|no-shuffle|full-shuffle-[\w-]+|append-eod|pad-to-multiple-of|padded-samples"
    r"|dpo-[\w-]+|ref-model|refer-model-iter|pref-ftx|topk-softmax-in-fp32|router-gating-in-fp32|use-glm-rope"
    r"|bind-core|join"
    r"|use-mc2|coc-[\w-]+|moe-comm-aux-loss-coeff|moe-device-level-aux-loss-coeff|use-deter-comp|enable-share-memory"
    r"|original-max-position-embeddings|(low|high)-freq-factor|(long|short)-(factor|mscale)|longrope-freqs-type"
    r"|o2-[\w-]+"
    r"|init-norm-weight-in-fp32|rmsnorm-weight-in-fp32|input-layernorm-in-fp32|jit-compile|profile-[\w-]+"
    r"|enable-thinking"
    r"|dim-model-base|reset-attention-mask|data-impl|fix-router|params-dtype|worker-num|local-worker-num"
    r"|cluster-time-out"
    r"|share-kvstates|embedding-multiplier-scale|output-multiplier-scale|mtp-mem-efficient-logits|swap-optimizer-times",
    knows=_with_any(
        "ai-framework", "use-fused-rmsnorm", "use-fused-rotary-pos-emb", "noop-layers",
        "enable-hf2mg-convert", "model-type-hf", "reuse-fp32-param", "first-k-dense-replace", "schedules-method",
        "npu-deterministic", "moe-fb-overlap",
    ),
    cluster="atlas800t-a2",
)  # fmt: skip

ZERO_BUBBLE: Final = Dialect(
    name="Megatron-LM with zero-bubble pipelines",
    means={
        "enable-zero-bubble": "--pipeline-schedule zb-1p",
        "zero-bubble-v-schedule": "--pipeline-schedule zb-v --num-virtual-stages-per-pipeline-rank 2",
        "zero-bubble-v-schedule-mem-setup": {
            name: f"--pipeline-schedule {schedule} --num-virtual-stages-per-pipeline-rank 2"
            for name, schedule in {"min": "v-min", "half": "v-half", "zb": "zb-v"}.items()
        },
    },
    refused={"enable-1f1b-v": "1F1B over folded stages is not priced; --zero-bubble-v-schedule-mem-setup half is"},
    harmless=OF_THE_RUN
    + r"|zero-bubble-(pipeline-timers|max-pending|adaptive)-[\w-]+|enable-zb-runtime|enable-optimizer-post-validation"
    r"|enable-exactly-numeric-match|allow-padding-num-layers|interleave-group-size|fp32-optimizer|profile-memory-iter",
    stack="zero-bubble",
    framework="",
    knows=_with_any(
        "enable-zero-bubble", "zero-bubble-v-schedule", "zero-bubble-v-schedule-mem-setup", "enable-zb-runtime"
    ),
)

DIALECTS: Final = (SWIFT, SLIME, MINDSPEED, PAI, ZERO_BUBBLE, DEEPSPEED, OLDER)
"""In the order in which they are asked whether a launch is theirs."""


def dialect_of(launch: Launch) -> Dialect:
    """The dialect of a launch."""
    return next((one for one in DIALECTS if one.knows(launch)), MEGATRON)
