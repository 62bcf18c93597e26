"""Feasibility rules as data: one list prunes the space, explains refusals, documents itself and is tested.

A rule reads columns of the lattice (arrays that broadcast against each other, or one row's scalars) and
answers which rows pass. Its sentence is filled with a row's numbers when a person asks why not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodels.layer.context import RING, ULYSSES
from costmodels.layer.recompute_modules import allowed_mask, modules_of
from costmodels.names import SHARDED_GRADIENTS, Recompute
from costmodels.pipeline.schedules import FILLING, SCHEDULES
from costmodels.scenario import Scenario
from costmodels.step.offload import ACTIVATIONS, EVERYTHING, OPTIMIZER, described
from planner.rules import conditions as when
from planner.rules import near
from planner.rules.divisors import nearest_divisor
from planner.rules.rule import Rule, listed, words_of

__all__ = ["ALIKE", "GROUP_RULES", "RULES", "Rule", "sentence"]

RULES: tuple[Rule, ...] = (
    Rule("heads", "must", ("tp",),
         "tp {tp} does not divide the {num_heads} attention heads",
         "Megatron-LM tensor parallelism", when.heads_divide,
         near=near.heads),
    Rule("query-groups", "must", ("tp",),
         "tp {tp} neither divides the {num_query_groups} query groups nor is a multiple of them",
         "Megatron-Core attention", when.divides_groups,
         near=near.query_groups),
    Rule("ffn", "must", ("tp",),
         "tp {tp} does not divide both hidden size {hidden_size} and feed-forward size {ffn_hidden_size}",
         "Megatron-LM tensor parallelism",
         lambda c, x: (x.model.ffn_hidden_size % c["tp"] == 0) & (x.model.hidden_size % c["tp"] == 0),
         near=near.dividing("tp", lambda x: math.gcd(x.model.hidden_size, x.model.ffn_hidden_size))),
    Rule("layers", "must", ("pp",),
         "pp {pp} is more than the {num_layers} layers of {model}, so some stages would be empty",
         "arithmetic", lambda c, x: c["pp"] <= x.model.num_layers + when.ends_alone(x)),
    Rule("shared-blocks", "must", ("pp",),
         "pp {pp} would split layers that share their weights; {model} needs pp 1",
         "one set of weights has one owner", lambda c, x: (c["pp"] == 1) | (x.model.shared_blocks is None)),
    Rule("experts", "must", ("ep", "etp"),
         "{model} has no experts: ep {ep} and etp {etp} must both be 1",
         "arithmetic", lambda c, x: (c["ep"] * c["etp"] == 1) | (x.model.moe is not None)),
    Rule("experts-divide", "must", ("ep",),
         "ep {ep} does not divide the {num_experts} experts",
         "Megatron-Core mixture of experts",
         lambda c, x: x.model.moe.num_experts % c["ep"] == 0 if x.model.moe else c["ep"] > 0,
         near=near.dividing("ep", lambda x: x.model.moe.num_experts if x.model.moe else 1)),
    Rule("experts-fold", "must", ("tp", "cp", "dp", "ep", "etp"),
         "ep {ep} x etp {etp} does not divide the tp {tp} x cp {cp} x dp {dp} ranks of a stage",
         "Megatron-Core parallel folding", lambda c, _x: (c["tp"] * c["cp"] * c["dp"]) % (c["ep"] * c["etp"]) == 0,
         near=near.expert_ranks),
    Rule("experts-order", "must", ("tp", "cp", "pp", "ep", "etp", "rank_order"),
         "rank order {rank_order} needs ep {ep} x etp {etp} to equal tp {tp} x cp {cp}; rank order "
         "tp-cp-ep-dp-pp does not",
         "Megatron-Core parallel state", when.experts_in_order),
    Rule("expert-width", "must", ("tp", "etp"),
         "etp {etp} has to divide the experts' width of {expert_ffn_hidden_size} and be at most tp {tp}; 1"
         " does",
         "Megatron-Core mixture of experts", when.expert_width),
    Rule("experts-sequence", "must", ("tp", "sequence_parallel"),
         "experts under tp {tp} need sequence parallelism; tp 1 does not", "Megatron-Core mixture of experts",
         lambda c, x: (c["sequence_parallel"] == 1) | (c["tp"] == 1) | (x.model.moe is None)),
    Rule("mamba-groups", "must", ("tp",),
         "tp {tp} does not divide the {mixer_groups} groups of heads of the model's Mamba or "
         "linear-attention layers",
         "Megatron-Core MambaMixer",
         when.mixers_divide,
         near=near.dividing("tp", lambda x: math.gcd(*(mixer.groups for mixer in when.mixers(x))))),
    Rule("mamba-context", "must", ("tp", "cp"),
         "tp {tp} x cp {cp} does not split the {mixer_heads} heads in {mixer_groups} groups of the model's"
         " Mamba or linear-attention layers; cp 1 does", "Megatron-Core MambaContextParallel", when.mixers_exchange),
    Rule("context-split", "must", ("cp",),
         "sequence length {seq_length} does not divide into two chunks for each rank of cp {cp}",
         "Megatron-Core context parallelism, causal load balance",
         lambda c, x: (c["cp"] == 1) | (x.seq_length % (2 * c["cp"]) == 0),
         near=near.chunks),
    Rule("context-kind", "dominated", ("cp", "cp_kind"),
         "without context parallelism all its kinds are the same; {cp_kind} repeats p2p", "arithmetic",
         lambda c, _x: (c["cp"] > 1) | (c["cp_kind"] == RING)),
    Rule("stack-context", "stack", ("cp", "cp_kind"),
         "stack {stack} has no context parallelism of kind {cp_kind}; it has {stack_context}",
         "the stack", lambda c, x: (c["cp"] == 1) | when.among(c, "cp_kind", x.stack.supports.cp_kinds)),
    Rule("context-heads", "must", ("tp", "cp", "cp_kind"),
         "context parallelism by {cp_kind} splits heads, and tp {tp} x cp {cp} does not divide the "
         "{num_heads} heads and {num_query_groups} query groups; p2p and all-gather do not split them",
         "Jacobs et al. 2023; Transformer Engine attention",
         when.context_heads),
    Rule("context-hierarchy", "dominated", ("tp", "cp", "cp_kind"),
         "a2a+p2p with cp {cp} and tp {tp} is the same as a2a or p2p alone: all of the context ranks, or "
         "none, share a fast network and divide the heads", "Fang and Zhao 2024", when.context_mixes),
    Rule("context-window", "must", ("cp", "cp_kind"),
         "with a sliding window cp {cp} cannot use {cp_kind}, which sends all keys around; a2a and "
         "all-gather work",
         "Transformer Engine attention", when.context_windows),
    Rule("context-kernel", "must", ("cp", "cp_kind"),
         "cp {cp} needs a fused attention kernel, and stack {stack} runs {attention} attention; cp 1 works",
         "Megatron-Core context parallelism",
         lambda c, x: (c["cp"] == 1) | (c["cp_kind"] == ULYSSES) | (x.rates.attention is not None)),
    Rule("batch-covers", "must", ("dp",),
         "dp {dp} needs at least {dp} sequences in the global batch, and it has {global_batch_size}",
         "arithmetic", lambda c, x: c["dp"] <= x.global_batch_size),
    Rule("batch-divides", "must", ("dp", "micro_batch_size"),
         "micro-batch {micro_batch_size:g} x dp {dp} does not divide the global batch of "
         "{global_batch_size}",
         "arithmetic", lambda c, x: x.global_batch_size % (c["micro_batch_size"] * c["dp"]) == 0,
         near=near.batches),
    Rule("interleaving", "must", ("pp", "vpp"),
         "vpp {vpp} needs a pipeline, and pp is {pp}; vpp 1 works",
         "Narayanan et al. 2021", lambda c, _x: (c["vpp"] == 1) | (c["pp"] > 1)),
    Rule("equal-chunks", "must", ("vpp",),
         "vpp {vpp} does not divide the {num_layers} layers into equal chunks",
         "interleaved schedules assume equal chunks", lambda c, x: when.places(c, x) % c["vpp"] == 0,
         near=lambda words, x: nearest_divisor(x.model.num_layers, int(words["vpp"]))),
    Rule("ends-as-layers", "must", ("vpp", "schedule", "recompute", "vocabulary"),
         "vpp {vpp} divides the {num_layers} layers into equal chunks only if embedding and head count as "
         "layers, which needs a looped schedule, one recomputation for all layers and the vocabulary at "
         "the ends",
         "Megatron-Core pipeline layout", when.ends_take_places),
    Rule("chunks", "must", ("pp", "vpp"),
         "pp {pp} x vpp {vpp} are more chunks than the {num_layers} layers",
         "Narayanan et al. 2021", lambda c, x: (c["vpp"] == 1) | (c["pp"] * c["vpp"] <= when.places(c, x))),
    Rule("even-stages", "stack", ("pp", "vpp"),
         "pp {pp} x vpp {vpp} does not divide the {num_layers} layers, and stack {stack} needs equal "
         "stages",
         "the stack's pipeline layout",
         lambda c, x: x.stack.supports.uneven_stages | (when.places(c, x) % (c["pp"] * c["vpp"]) == 0)),
    Rule("interleave-groups", "must", ("pp", "dp", "micro_batch_size", "schedule"),
         "interleaved-1f1b needs a multiple of pp {pp} micro-batches, and there are {num_microbatches}",
         "Megatron-LM interleaved schedule",
         when.whole_groups),
    Rule("sequence-needs-tensor", "must", ("tp", "sequence_parallel"),
         "sequence parallelism needs tensor parallelism, and tp is {tp}; 2 and more work", "Korthikanti et al. 2022",
         lambda c, _x: (c["sequence_parallel"] == 0) | (c["tp"] > 1)),
    Rule("sequence-split", "must", ("tp", "cp", "sequence_parallel"),
         "sequence parallelism needs tp {tp} x cp {cp} to divide the sequence length {seq_length}",
         "Korthikanti et al. 2022",
         lambda c, x: (c["sequence_parallel"] == 0) | (x.seq_length % (c["cp"] * c["tp"]) == 0)),
    Rule("stack-sequence", "stack", ("sequence_parallel",),
         "stack {stack} has no sequence parallelism",
         "the stack", lambda c, x: (c["sequence_parallel"] == 0) | x.stack.supports.sequence_parallel),
    Rule("schedule", "must", ("pp", "vpp", "schedule"),
         "schedule {schedule} does not run pp {pp} with vpp {vpp}", "Narayanan et al. 2021",
         when.schedule_runs,
         near=near.schedules),
    Rule("schedule-fills", "must", ("pp", "vpp", "dp", "micro_batch_size", "schedule"),
         "schedule {schedule} needs {requires}; pp is {pp}, with {num_microbatches} micro-batches",
         "the schedules' publications", when.enough_batches),
    Rule("stack-schedule", "stack", ("schedule",),
         "stack {stack} has no schedule {schedule}; it has {stack_schedules}", "the stack",
         lambda c, x: when.among(c, "schedule", x.stack.supports.schedules)),
    Rule("vocabulary", "must", ("pp", "vocabulary"),
         "vocabulary {vocabulary} needs a pipeline, and pp is {pp}; vocabulary ends works",
         "Yeung et al. 2024", lambda c, _x: (c["vocabulary"] == 0) | (c["pp"] > 1)),
    Rule("stack-vocabulary", "stack", ("vocabulary",),
         "stack {stack} has no vocabulary {vocabulary}; it has {vocabularies}", "the stack",
         lambda c, x: when.among(c, "vocabulary", x.stack.supports.vocabulary)),
    Rule("micro-batch-groups", "dominated", ("pp", "dp", "micro_batch_size", "schedule"),
         "with a multiple of pp {pp} micro-batches interleaved-groups is the same as interleaved-1f1b",
         "Megatron-Core", when.groups_differ),
    Rule("gpipe", "dominated", ("schedule",), "gpipe holds more activations than 1f1b and is not faster",
         "Narayanan et al. 2021",
         lambda c, x: ~when.among(c, "schedule", ["gpipe"]) | ("1f1b" not in x.stack.supports.schedules)),
    Rule("selective", "dominated", ("recompute_modules", "recompute"),
         "under {attention} attention selective recomputation stores as much as none, and is slower",
         "Dao et al. 2022", when.selective_saves),
    Rule("recompute-groups", "must", ("offload", "recompute", "recompute_num_layers"),
         "recompute_num_layers {recompute_num_layers} needs recompute full, and activations that are not "
         "offloaded; recompute is {recompute}, offload {offload}", "Megatron-LM recompute_method uniform",
         when.groups_are_full),
    Rule("recompute-groups-divide", "must", ("pp", "vpp", "recompute_num_layers"),
         "recompute_num_layers {recompute_num_layers} does not divide the {num_layers} layers of {model} "
         "on pp {pp} x vpp {vpp}; 1 does", "arithmetic", when.groups_divide),
    Rule("recompute-groups-alike", "must", ("schedule", "recompute_num_layers"),
         "recompute_num_layers {recompute_num_layers} is priced only where all layers are alike and a "
         "stage holds one piece of the model, unlike {model} under {schedule}; 1 is priced everywhere",
         "the cost model",
         lambda c, x: (c["recompute_num_layers"] == 1)
         | (x.depth.uniform & ~when.among(c, "schedule", when.SEVERAL_PIECES))),
    Rule("stack-recompute-groups", "stack", ("recompute_num_layers",),
         "stack {stack} stores the input of every recomputed layer, so recompute_num_layers "
         "{recompute_num_layers} does not work; 1 does", "the stack",
         lambda c, x: (c["recompute_num_layers"] == 1) | x.stack.supports.recompute_groups),
    Rule("full-recompute", "dominated", ("vpp", "schedule", "offload", "recompute_num_layers", "recompute"),
         "recomputing every layer is never faster than recomputing only as many as memory requires", "arithmetic",
         lambda c, x: when.partly_as_well(c, x) | (max(x.stack.supports.zero_stages) >= SHARDED_GRADIENTS)),
    Rule("full-recompute-hides", "dominated",
         ("vpp", "schedule", "offload", "recompute_num_layers", "zero_stage", "recompute"),
         "under ZeRO stage {zero_stage} recomputing every layer hides no traffic, so that it is never "
         "faster than recomputing only as many as memory requires", "arithmetic",
         lambda c, x: when.partly_as_well(c, x) | (c["zero_stage"] >= SHARDED_GRADIENTS)),
    Rule("rank-order", "dominated", ("pp", "dp", "rank_order"),
         "with pp {pp} and dp {dp} rank order {rank_order} places ranks as tp-cp-ep-dp-pp does", "arithmetic",
         lambda c, _x: (c["rank_order"] == 0) | ((c["pp"] > 1) & (c["dp"] > 1))),
    Rule("stack-order", "stack", ("rank_order",),
         "stack {stack} has no rank order {rank_order}; it has {stack_orders}", "the stack",
         lambda c, x: when.among(c, "rank_order", x.stack.supports.rank_orders)),
    Rule("rank-order-sharding", "dominated", ("cp", "dp", "sharding_degree", "rank_order"),
         "rank order {rank_order} places ranks as another order does unless only a part of dp {dp} shares "
         "states; the sharding degree is {sharding_degree}",
         "arithmetic", when.order_shards),
    Rule("sharding-repeats", "dominated", ("sharding_degree",),
         "sharding within one or a few nodes is here the same as over all dp {dp} x cp {cp} ranks, or as "
         "another degree",
         "arithmetic", lambda c, _x: c["sharding_degree"] != when.REPEATS),
    Rule("sharding", "must", ("tp", "pp", "zero_stage", "sharding_degree"),
         "ZeRO stage {zero_stage} does not go with sharding degree {sharding_degree}: stage 0 has degree "
         "1, stages 1 to 3 have 2 or more",
         "Rajbhandari et al. 2020", when.shards),
    Rule("sharding-divides", "must", ("dp", "cp", "sharding_degree"),
         "sharding degree {sharding_degree} does not divide the dp {dp} x cp {cp} ranks", "arithmetic",
         lambda c, _x: (c["dp"] * c["cp"]) % np.maximum(c["sharding_degree"], 1) == 0,
         near=near.shards),
    Rule("stack-zero", "stack", ("zero_stage",),
         "stack {stack} has no ZeRO stage {zero_stage}; it has {stack_zero}", "the stack",
         when.has_stage),
    Rule("zero-pipeline", "must", ("zero_stage", "pp", "schedule"),
         "ZeRO stage {zero_stage} shards gradients after every micro-batch, which does not work with pp "
         "{pp} under {schedule}; ZeRO stage 1 does, and schedule breadth-first",
         "DeepSpeed, PaddlePaddle fleet; Lamy-Poirier 2022",
         when.gradients_accumulate),
    Rule("modules-selective", "must", ("recompute", "recompute_modules"),
         "recompute_modules {recompute_modules} need recompute selective; recompute is {recompute}",
         "Megatron-Core recomputation",
         lambda c, _x: (c["recompute_modules"] == 0) | (c["recompute"] == Recompute.SELECTIVE)),
    Rule("modules-exist", "must", ("recompute_modules",),
         "{model} does not have all of recompute_modules {recompute_modules}; it has {model_modules}",
         "Megatron-Core recomputation",
         lambda c, x: (c["recompute_modules"] & ~allowed_mask(modules_of(x.model))) == 0),
    Rule("stack-modules", "stack", ("recompute_modules",),
         "stack {stack} does not take modules {recompute_modules} by name; it takes {stack_modules}", "the stack",
         lambda c, x: (c["recompute_modules"] & ~allowed_mask(x.stack.supports.recompute_modules)) == 0),
    Rule("stack-offload", "stack", ("offload",), "stack {stack} has no offload {offload}; it has {stack_offloads}",
         "the stack", lambda c, x: when.among(c, "offload", ("none", *x.stack.supports.offloads))),
    Rule("offload-host", "must", ("offload",),
         "offload {offload} needs host_memory, host_link and host_bandwidth, which the cluster does not "
         "state; offload none works",
         "arithmetic", lambda c, x: (c["offload"] == 0) | described(x)),
    Rule("offload-step", "must", ("offload",),
         "offload {offload} needs an optimizer that steps on CPUs, which {optimizer} does not; "
         "{host_optimizers} do",
         "DeepSpeed CPU-Adam, Megatron-Core hybrid optimizer",
         lambda c, x: (c["offload"] < OPTIMIZER) | (x.stack.switches.optimizer in when.HOST_OPTIMIZERS)),
    Rule("adapters-offload", "must", ("offload",),
         "offload {offload} does not work with adapters {adapters}: the frozen weights have no optimizer "
         "states; offload none and activations work", "Hu et al. 2021",
         lambda c, x: (c["offload"] < OPTIMIZER) | (not x.frozen)),
    Rule("adapters-schedule", "must", ("schedule",),
         "schedule {schedule} fills its idle time with weight gradients, and with adapters {adapters} the "
         "frozen weights have none; 1f1b works",
         "Qi et al. 2023", lambda c, x: ~when.fills(c) | (not x.frozen)),
    Rule("adapters-modules", "must", ("recompute_modules",),
         "recompute_modules are not priced with adapters {adapters}; recompute none, full and selective "
         "without modules are", "arithmetic", lambda c, x: (c["recompute_modules"] == 0) | (not x.frozen)),
    Rule("offload-parameters", "must", ("zero_stage", "offload"),
         "offload {offload} needs ZeRO stage 3; it is {zero_stage}", "DeepSpeed ZeRO-Infinity",
         lambda c, _x: (c["offload"] != EVERYTHING) | (c["zero_stage"] == 3)),
    Rule("offload-alone", "must", ("tp", "pp", "zero_stage", "sharding_degree", "offload"),
         "ZeRO stage {zero_stage} on a single GPU needs an offloaded optimizer, and offload is {offload}; "
         "ZeRO stage 0 works",
         "DeepSpeed ZeRO-Offload",
         lambda c, x: ~when.alone(c, x) | (c["zero_stage"] == 0) | (c["offload"] >= OPTIMIZER)),
    Rule("offload-layers", "must", ("recompute", "offload"),
         "offload {offload} needs recompute none, selective or full; recompute is {recompute}",
         "all layers of a stage are offloaded alike",
         lambda c, _x: (c["offload"] != ACTIVATIONS) | (c["recompute"] != Recompute.PARTIAL)),
)  # fmt: skip
"""Every rule but memory, in the order in which they are tried."""

GROUP_RULES: tuple[Rule, ...] = (
    Rule("group-layers", "must", ("pp",),
         "pp {pp} is more than the {num_layers} layers of {model}; over several node groups every stage "
         "has a layer", "arithmetic", lambda c, x: c["pp"] <= x.model.num_layers),
    Rule("group-chunks", "must", ("vpp",),
         "vpp {vpp} does not divide the {num_layers} layers into equal chunks; over several node groups "
         "embedding and head do not count as layers", "arithmetic", lambda c, x: x.model.num_layers % c["vpp"] == 0),
    Rule("group-width", "stack", ("ranks", "widest"),
         "stages have {ranks} ranks on one node group and {widest} on another; launchers need as many on "
         "every stage",
         "Megatron-Core parallel state", lambda c, _x: c["ranks"] == c["widest"]),
    Rule("group-batch", "must", ("dp", "batch_width"),
         "dp {dp} of a node group does not divide the {batch_width} sequences that all replicas take at a "
         "time",
         "arithmetic", lambda c, _x: c["batch_width"] % c["dp"] == 0),
    Rule("group-order", "must", ("rank_order",),
         "rank order {rank_order} spreads a node group's ranks over the pipeline; tp-cp-ep-dp-pp keeps "
         "them together",
         "arithmetic", lambda c, _x: c["rank_order"] == 0),
    Rule("group-schedule", "must", ("schedule",),
         "schedule {schedule} needs equal stages, and stages on several node groups differ; 1f1b and "
         "interleaved-1f1b work",
         "Qi et al. 2023, 2024; Lamy-Poirier 2022",
         lambda c, _x: ~when.among(c, "schedule", (*FILLING, "breadth-first"))),
    Rule("group-vocabulary", "must", ("vocabulary",),
         "vocabulary {vocabulary} gives every stage the same share, and stages on several node groups "
         "differ; vocabulary ends works",
         "Yeung et al. 2024", lambda c, _x: c["vocabulary"] == 0),
    Rule("group-recompute", "must", ("recompute_num_layers",),
         "recompute_num_layers {recompute_num_layers} is priced on one node group, not on several; 1 is "
         "priced on both", "arithmetic",
         lambda c, _x: c["recompute_num_layers"] == 1),
    Rule("group-offload", "must", ("offload",),
         "offload {offload} is priced for one kind of host, and several node groups have several; offload "
         "none works", "arithmetic",
         lambda c, _x: c["offload"] == 0),
)  # fmt: skip
"""Rules beyond ``RULES`` where a pipeline goes over several node groups.

They read a stage's ``ranks``, those of the ``widest`` stage, and ``batch_width``, the sequences of one micro-batch over
all replicas, which every group deals out to its own.
"""

ALIKE = Rule("group-alike", "framework", ("tp", "dp", "most_tp", "most_dp"),
    "no node groups with other degrees than the rest, such as tp {tp} and dp {dp} beside tp {most_tp} and dp {most_dp}",
    "Megatron-Core parallel state",
    lambda c, _x: (c["tp"] == c["most_tp"]) & (c["dp"] == c["most_dp"]))  # fmt: skip
"""What every framework refuses over several node groups, beside the most tensor and data ranks of any of them."""


def sentence(rule: Rule, row: Mapping[str, Any], scenario: Scenario, subject: str = "it") -> str:
    """The rule's sentence with one row's numbers, and the nearest that works; a framework's begins with its subject."""
    model, stack = scenario.model, scenario.stack
    words = words_of(
        row,
        model,
        stack.switches,
        **{name: getattr(scenario, name) for name in ("seq_length", "global_batch_size", "precision")},
        num_experts=model.moe.num_experts if model.moe else 0,
        expert_ffn_hidden_size=model.moe.expert_ffn_hidden_size if model.moe else 0,
        mixer_heads=min((mixer.heads for mixer in when.mixers(scenario)), default=0),
        mixer_groups=min((mixer.groups for mixer in when.mixers(scenario)), default=0),
        model_modules=",".join(modules_of(model)),
        stack=stack.name,
        vocabularies=" or ".join(stack.supports.vocabulary),
        stack_context=listed(stack.supports.cp_kinds) or "none",
        stack_schedules=listed(stack.supports.schedules),
        stack_orders=listed(stack.supports.rank_orders),
        stack_zero=listed(stack.supports.zero_stages),
        host_optimizers=listed(when.HOST_OPTIMIZERS),
        stack_modules=",".join(stack.supports.recompute_modules) or "none, and selective for all that it repeats",
        stack_offloads=", ".join(stack.supports.offloads) or "none",
        attention=scenario.rates.attention_name,
        accelerator=scenario.group.accelerator.name,
    )
    words["requires"] = SCHEDULES[words["schedule"]].requires if "schedule" in words else ""
    if words.get("dp") and words.get("micro_batch_size"):
        words["num_microbatches"] = int(scenario.global_batch_size // (words["dp"] * words["micro_batch_size"]))
    works = rule.near(words, scenario) if rule.near else ""
    says = f"{rule.sentence.format(**words)}{works and f'; {works}'}"
    return f"{subject} takes {says}" if rule.kind == "framework" else says
