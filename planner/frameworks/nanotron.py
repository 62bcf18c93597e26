"""What nanotron, as of commit 2411b02 of April 2026, refuses to start."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.model.model import Model
from planner.frameworks.conditions import (
    SHARD,
    Facts,
    FrameworkRule,
    fact,
    not_made_by,
    one,
    plain,
    shards_everywhere,
    usual,
)
from planner.frameworks.vendors import NO_CUDA, NO_GPUS
from planner.rules.conditions import Columns, Mask, micro_batches

_GROUPS: Final = "nanotron.parallel.context: ParallelContext"
_ENGINE: Final = "nanotron.parallel.pipeline_parallel.engine"
_ARGUMENTS: Final = "nanotron.config.parallelism_config: ParallelismArgs"
_ZERO: Final = "nanotron.optim.zero: ZeroDistributedOptimizer"
_LOSS: Final = "nanotron.parallel.tensor_parallel.functional: sharded_cross_entropy"


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


def _no_bare_stage(c: Columns, x: Facts) -> Mask:
    """Nanotron's own cut leaves no stage without a layer."""
    stages = np.asarray(c["pp"])
    bare = [pp for pp in np.unique(stages).tolist() if pp > 1 and min(stage_layers(x.model, pp)) < 1]
    return ~np.isin(stages, bare)


RULES: Final = (
    FrameworkRule("nanotron-device", ("tp",), NO_CUDA, "nanotron.distributed: initialize_torch_distributed",
        not_made_by(*NO_GPUS)),
    usual("nanotron-schedule", f"{_ENGINE}: PipelineEngine", "1f1b", "gpipe"),
    FrameworkRule("nanotron-fills", ("pp", "dp", "micro_batch_size"),
        "no pipeline of {pp} stages with fewer micro-batches than the others of them",
        f"{_ENGINE}: OneForwardOneBackwardPipelineEngine",
        lambda c, x: (c["pp"] == 1) | (micro_batches(c, x.global_batch_size) >= c["pp"] - 1)),
    FrameworkRule("nanotron-stages", ("pp",),
        "no pipeline of {pp} stages: its cut of {num_layers} layers by cost leaves one bare",
        "nanotron.models.base: build_model", _no_bare_stage),
    FrameworkRule("nanotron-context", ("cp",),
        "no context ranks {cp} but in the ring attention of one of its models, which is not priced",
        "nanotron.nn.ring_attention", one("cp")),
    usual("nanotron-experts", _GROUPS,
        sentence="no expert ranks {ep}: the grid of its groups would have {ep} times the ranks there are"),
    usual("nanotron-expert-tensor", _GROUPS),
    FrameworkRule("nanotron-model", ("tp",),
        "no model like {model}: dense, gated, rotated ones with root-mean-square norms and no biases work",
        "nanotron.config.models_config: LlamaConfig, Qwen2Config",
        fact(lambda x: plain(x.model) and x.model.num_heads * x.model.head_dim == x.model.hidden_size)),
    usual("nanotron-query-groups", "nanotron.config.config: Config.__post_init__"),
    FrameworkRule("nanotron-zero", ("zero_stage",), "no ZeRO stage {zero_stage}; 1 works", _ZERO,
        lambda c, _x: c["zero_stage"] <= 1),
    FrameworkRule("nanotron-sharding", SHARD, "no sharding over {sharding_degree} of {dp} x {cp} ranks", _ZERO,
        shards_everywhere),
    usual("nanotron-recompute", f"{_ARGUMENTS}.recompute_layer", "none", "full"),
    usual("nanotron-recompute-groups", f"{_ARGUMENTS}.recompute_layer"),
    usual("nanotron-order", _GROUPS, "tp-cp-ep-dp-pp"),
    usual("nanotron-vocabulary", "nanotron.models.base: build_model"),
    usual("nanotron-offload", "nanotron.config.config: OptimizerArgs", "none"),
    usual("nanotron-optimizer", "nanotron.config.config: OptimizerArgs.optimizer_factory", "adam", "sgd"),
    usual("nanotron-precision", "nanotron.config.utils_config: cast_str_to_torch_dtype", "bf16", "fp32"),
    usual("nanotron-fused-loss", _LOSS),
    usual("nanotron-loss", _LOSS),
    usual("nanotron-adapters", "nanotron.config has none"),
)  # fmt: skip
