"""What nanotron, as of commit 2411b02 of April 2026, refuses to start."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.model.model import Model
from planner.frameworks import conditions as when
from planner.frameworks.conditions import SHARD, Facts, FrameworkRule
from planner.frameworks.vendors import NO_GPUS
from planner.rules.conditions import Columns, Mask

_GROUPS: Final = "nanotron.parallel.context: ParallelContext"
_ENGINE: Final = "nanotron.parallel.pipeline_parallel.engine"
_ARGUMENTS: Final = "nanotron.config.parallelism_config: ParallelismArgs"


def stage_layers(model: Model, pp: int) -> list[int]:
    """Layers of every stage, by nanotron's own count of what blocks cost.

    A layer costs its weights with as many heads of keys as of queries and three feed-forward matrices, the head the
    vocabulary's. Blocks fill a stage until the sum of all so far exceeds its share, the block that does so included
    [nanotron].
    """
    h = model.hidden_size
    layer = 4 * model.attention_width * h + 3 * model.ffn_hidden_size * h
    total = model.num_layers * layer + model.vocab_size * h
    held = [0] * pp
    stage = 0
    for placed in range(1, model.num_layers + 1):
        held[stage] += 1
        if placed * layer * pp > total * (stage + 1):
            stage += 1
    return held


def _of_nanotron(c: Columns, x: Facts) -> Mask:
    """Heads of nanotron's models fill the hidden size."""
    square = x.model.num_heads * x.model.head_dim == x.model.hidden_size
    return (c["tp"] > 0) & when.plain(x.model) & square


def _no_bare_stage(c: Columns, x: Facts) -> Mask:
    """Nanotron's own cut leaves no stage without a layer."""
    stages = np.asarray(c["pp"])
    bare = [pp for pp in np.unique(stages).tolist() if pp > 1 and min(stage_layers(x.model, pp)) < 1]
    return ~np.isin(stages, bare)


def _nearly_fills(c: Columns, x: Facts) -> Mask:
    """At least as many micro-batches as there are other stages."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["pp"] == 1) | (batches >= c["pp"] - 1)


RULES: Final = (
    FrameworkRule("nanotron-device", ("tp",), "no {accelerator}, which has no CUDA; maxtext runs on TPUs",
        "nanotron.distributed: initialize_torch_distributed", when.not_made_by(*NO_GPUS)),
    FrameworkRule("nanotron-schedule", ("schedule",), "no schedule {schedule}; 1f1b works",
        f"{_ENGINE}: PipelineEngine", when.scheduled("gpipe", "1f1b")),
    FrameworkRule("nanotron-fills", ("pp", "dp", "micro_batch_size"),
        "no pipeline of {pp} stages with fewer micro-batches than the others of them",
        f"{_ENGINE}: OneForwardOneBackwardPipelineEngine", _nearly_fills),
    FrameworkRule("nanotron-stages", ("pp",),
        "no pipeline of {pp} stages: its cut of {num_layers} layers by cost leaves one bare",
        "nanotron.models.base: build_model", _no_bare_stage),
    FrameworkRule("nanotron-context", ("cp",),
        "no context ranks {cp} but in the ring attention of one of its models, which is not priced",
        "nanotron.nn.ring_attention", when.one("cp")),
    FrameworkRule("nanotron-experts", ("ep",),
        "no expert ranks {ep}: the grid of its groups would have {ep} times the ranks there are", _GROUPS,
        when.one("ep")),
    FrameworkRule("nanotron-expert-tensor", ("etp",), "no expert tensor size {etp}", _GROUPS, when.one("etp")),
    FrameworkRule("nanotron-model", ("tp",),
        "no model like {model}: dense, gated, rotated ones with root-mean-square norms and no biases work",
        "nanotron.config.models_config: LlamaConfig, Qwen2Config", _of_nanotron),
    FrameworkRule("nanotron-query-groups", ("tp",),
        "no tensor parallel size {tp} for {num_query_groups} query groups: it repeats none",
        "nanotron.config.config: Config.__post_init__", when.scatters),
    FrameworkRule("nanotron-zero", ("zero_stage",), "no ZeRO stage {zero_stage}; 1 works",
        "nanotron.optim.zero: ZeroDistributedOptimizer", when.up_to_stage(1)),
    FrameworkRule("nanotron-sharding", SHARD, "no sharding over {sharding_degree} of {dp} x {cp} ranks",
        "nanotron.optim.zero: ZeroDistributedOptimizer", when.shards_everywhere),
    FrameworkRule("nanotron-recompute", ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; full works",
        f"{_ARGUMENTS}.recompute_layer", when.all_or_nothing),
    FrameworkRule("nanotron-recompute-groups", ("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works",
        f"{_ARGUMENTS}.recompute_layer", when.one("recompute_num_layers")),
    FrameworkRule("nanotron-order", ("rank_order",), "no rank order {rank_order}", _GROUPS,
        when.only("rank_order", "tp-cp-ep-dp-pp")),
    FrameworkRule("nanotron-vocabulary", ("vocabulary",), "no vocabulary {vocabulary}",
        "nanotron.models.base: build_model", when.only("vocabulary", "ends")),
    FrameworkRule("nanotron-offload", ("offload",), "no offload {offload}", "nanotron.config.config: OptimizerArgs",
        when.only("offload", "none")),
    FrameworkRule("nanotron-optimizer", ("tp",), "no optimizer {optimizer}; adam works",
        "nanotron.config.config: OptimizerArgs.optimizer_factory", when.known("optimizer", "adam", "sgd")),
    FrameworkRule("nanotron-precision", ("tp",), "no precision {precision}; bf16 works",
        "nanotron.config.utils_config: cast_str_to_torch_dtype", when.known("precision", "bf16", "fp32")),
    FrameworkRule("nanotron-fused-loss", ("tp",), "no loss fused with the head's product; plain works",
        "nanotron.parallel.tensor_parallel.functional: sharded_cross_entropy", when.known("loss", "plain")),
    FrameworkRule("nanotron-loss", ("tp",), "no loss in blocks of {loss_block} tokens",
        "nanotron.parallel.tensor_parallel.functional: sharded_cross_entropy", when.whole_loss),
    FrameworkRule("nanotron-adapters", ("tp",),
        "no adapters {adapters} beside frozen weights; megatron-bridge trains them", "nanotron.config has none",
        when.all_weights),
)  # fmt: skip
