"""Feasibility rules as data: one list prunes the space, explains refusals, documents itself and is tested.

A rule reads columns of the lattice (arrays that broadcast against each other, or one row's scalars) and
answers which rows pass. Its sentence is filled with a row's numbers when a person asks why not.
"""

from __future__ import annotations

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
from planner.rules.rule import Rule, words_of

__all__ = ["GROUP_RULES", "RULES", "Rule", "sentence"]

RULES: tuple[Rule, ...] = (
    Rule("heads", "must", ("tp",), "tensor parallel size {tp} does not divide {num_heads} attention heads",
         "Megatron-LM tensor parallelism", when.heads_divide),
    Rule("query-groups", "must", ("tp",),
         "tensor parallel size {tp} neither divides nor is a multiple of {num_query_groups} query groups",
         "Megatron-Core attention", when.divides_groups),
    Rule("ffn", "must", ("tp",),
         "tensor parallel size {tp} does not divide hidden size {hidden_size} and feed-forward size {ffn_hidden_size}",
         "Megatron-LM tensor parallelism",
         lambda c, x: (x.model.ffn_hidden_size % c["tp"] == 0) & (x.model.hidden_size % c["tp"] == 0)),
    Rule("layers", "must", ("pp",), "{pp} pipeline stages for {num_layers} layers leave stages empty",
         "arithmetic", lambda c, x: c["pp"] <= x.model.num_layers),
    Rule("shared-blocks", "must", ("pp",), "layers that share their weights stay on one stage; pp is {pp}",
         "one set of weights has one owner", lambda c, x: (c["pp"] == 1) | (x.model.shared_blocks is None)),
    Rule("experts", "must", ("ep", "etp"), "expert ranks {ep} x {etp} need a model with experts; {model} has none",
         "arithmetic", lambda c, x: (c["ep"] * c["etp"] == 1) | (x.model.moe is not None)),
    Rule("experts-divide", "must", ("ep",), "expert parallel size {ep} does not divide {num_experts} experts",
         "Megatron-Core mixture of experts",
         lambda c, x: x.model.moe.num_experts % c["ep"] == 0 if x.model.moe else c["ep"] > 0),
    Rule("experts-fold", "must", ("tp", "cp", "dp", "ep", "etp"),
         "expert ranks {ep} x {etp} do not fold into {tp} x {cp} x {dp} tensor, context and data ranks",
         "Megatron-Core parallel folding", lambda c, _x: (c["tp"] * c["cp"] * c["dp"]) % (c["ep"] * c["etp"]) == 0),
    Rule("experts-order", "must", ("tp", "cp", "pp", "ep", "etp", "rank_order"),
         "rank order {rank_order} keeps expert ranks {ep} x {etp} together only if they are the {tp} x {cp} tensor and "
         "context ranks of a stage",
         "Megatron-Core parallel state", when.experts_in_order),
    Rule("expert-width", "must", ("tp", "etp"),
         "expert tensor size {etp} does not split experts of width {expert_ffn_hidden_size} within tensor size {tp}",
         "Megatron-Core mixture of experts", when.expert_width),
    Rule("experts-sequence", "must", ("tp", "sequence_parallel"),
         "experts with tensor parallel size {tp} need sequence parallelism", "Megatron-Core mixture of experts",
         lambda c, x: (c["sequence_parallel"] == 1) | (c["tp"] == 1) | (x.model.moe is None)),
    Rule("mamba-groups", "must", ("tp",),
         "tensor parallel size {tp} does not divide {mixer_groups} groups of a mixer's heads",
         "Megatron-Core MambaMixer",
         when.mixers_divide),
    Rule("mamba-context", "must", ("tp", "cp"),
         "{mixer_heads} mixer heads in {mixer_groups} groups do not split over {tp} "
         "tensor x {cp} context ranks", "Megatron-Core MambaContextParallel", when.mixers_exchange),
    Rule("context-split", "must", ("cp",),
         "sequence length {seq_length} does not split into 2 x {cp} chunks of context parallelism",
         "Megatron-Core context parallelism, causal load balance",
         lambda c, x: (c["cp"] == 1) | (x.seq_length % (2 * c["cp"]) == 0)),
    Rule("context-kind", "dominated", ("cp", "cp_kind"),
         "with context parallel size {cp} all kinds are the same; {cp_kind} repeats p2p", "arithmetic",
         lambda c, _x: (c["cp"] > 1) | (c["cp_kind"] == RING)),
    Rule("stack-context", "stack", ("cp", "cp_kind"), "stack {stack} has no context parallelism of kind {cp_kind}",
         "the stack", lambda c, x: (c["cp"] == 1) | when.among(c, "cp_kind", x.stack.supports.cp_kinds)),
    Rule("context-heads", "must", ("tp", "cp", "cp_kind"),
         "context parallelism by {cp_kind} splits heads: {num_heads} heads and {num_query_groups} query groups do not "
         "split over {tp} tensor x {cp} context ranks", "Jacobs et al. 2023; Transformer Engine attention",
         when.context_heads),
    Rule("context-hierarchy", "dominated", ("tp", "cp", "cp_kind"),
         "a2a+p2p over {cp} context and {tp} tensor ranks is the same as a2a or p2p alone: the ranks that share a fast "
         "domain and divide the heads use a2a, the others a ring", "Fang and Zhao 2024", when.context_mixes),
    Rule("context-window", "must", ("cp", "cp_kind"),
         "{cp_kind} over {cp} context ranks sends all keys around; a sliding window needs a2a or all-gather",
         "Transformer Engine attention", when.context_windows),
    Rule("context-kernel", "must", ("cp", "cp_kind"), "context parallel size {cp} needs a fused attention kernel; "
         "stack {stack} runs {attention} attention", "Megatron-Core context parallelism",
         lambda c, x: (c["cp"] == 1) | (c["cp_kind"] == ULYSSES) | (x.rates.attention is not None)),
    Rule("batch-covers", "must", ("dp",), "{dp} data-parallel replicas, but only {global_batch_size} sequences per "
                                          "batch",
         "arithmetic", lambda c, x: c["dp"] <= x.global_batch_size),
    Rule("batch-divides", "must", ("dp", "micro_batch_size"),
         "micro-batch {micro_batch_size:g} x {dp} replicas do not divide the batch of {global_batch_size}",
         "arithmetic", lambda c, x: x.global_batch_size % (c["micro_batch_size"] * c["dp"]) == 0),
    Rule("interleaving", "must", ("pp", "vpp"), "{vpp} chunks per stage need a pipeline; pp is {pp}",
         "Narayanan et al. 2021", lambda c, _x: (c["vpp"] == 1) | (c["pp"] > 1)),
    Rule("equal-chunks", "must", ("vpp",), "{num_layers} layers do not split into equal chunks, {vpp} per stage",
         "interleaved schedules assume equal chunks", lambda c, x: when.places(c, x) % c["vpp"] == 0),
    Rule("ends-as-layers", "must", ("vpp", "schedule", "recompute", "vocabulary"),
         "{num_layers} layers make {vpp} equal chunks only if embedding and head count as layers, which needs a looped "
         "schedule, the same recomputation in every layer and the vocabulary at the ends",
         "Megatron-Core pipeline layout", when.ends_take_places),
    Rule("chunks", "must", ("pp", "vpp"), "{pp} stages x {vpp} chunks are more than the {num_layers} layers",
         "Narayanan et al. 2021", lambda c, x: (c["vpp"] == 1) | (c["pp"] * c["vpp"] <= when.places(c, x))),
    Rule("even-stages", "stack", ("pp", "vpp"),
         "{num_layers} layers do not split evenly over {pp} stages x {vpp} chunks, which stack {stack} needs",
         "the stack's pipeline layout",
         lambda c, x: x.stack.supports.uneven_stages | (when.places(c, x) % (c["pp"] * c["vpp"]) == 0)),
    Rule("interleave-groups", "must", ("pp", "dp", "micro_batch_size", "schedule"),
         "interleaving needs a multiple of {pp} micro-batches, one per stage", "Megatron-LM interleaved schedule",
         when.whole_groups),
    Rule("sequence-needs-tensor", "must", ("tp", "sequence_parallel"),
         "sequence parallelism needs tensor parallelism; tensor parallel size is {tp}", "Korthikanti et al. 2022",
         lambda c, _x: (c["sequence_parallel"] == 0) | (c["tp"] > 1)),
    Rule("sequence-split", "must", ("tp", "cp", "sequence_parallel"),
         "sequence length {seq_length} does not split over {cp} context x {tp} tensor ranks", "Korthikanti et al. 2022",
         lambda c, x: (c["sequence_parallel"] == 0) | (x.seq_length % (c["cp"] * c["tp"]) == 0)),
    Rule("stack-sequence", "stack", ("sequence_parallel",), "stack {stack} has no sequence parallelism",
         "the stack", lambda c, x: (c["sequence_parallel"] == 0) | x.stack.supports.sequence_parallel),
    Rule("schedule", "must", ("pp", "vpp", "schedule"),
         "schedule {schedule} does not run {pp} stages with {vpp} chunks each", "Narayanan et al. 2021",
         when.schedule_runs),
    Rule("schedule-fills", "must", ("pp", "vpp", "dp", "micro_batch_size", "schedule"),
         "schedule {schedule} cannot run {num_microbatches} micro-batches on {pp} stages: it needs {requires}",
         "the schedules' publications", when.enough_batches),
    Rule("stack-schedule", "stack", ("schedule",), "stack {stack} has no schedule {schedule}", "the stack",
         lambda c, x: when.among(c, "schedule", x.stack.supports.schedules)),
    Rule("vocabulary", "must", ("pp", "vocabulary"), "a spread vocabulary needs a pipeline; pp is {pp}",
         "Yeung et al. 2024", lambda c, _x: (c["vocabulary"] == 0) | (c["pp"] > 1)),
    Rule("stack-vocabulary", "stack", ("vocabulary",),
         "stack {stack} has no vocabulary {vocabulary}; it has {vocabularies}", "the stack",
         lambda c, x: when.among(c, "vocabulary", x.stack.supports.vocabulary)),
    Rule("micro-batch-groups", "dominated", ("pp", "dp", "micro_batch_size", "schedule"),
         "with groups of {pp} micro-batches the schedule is interleaved-1f1b", "Megatron-Core", when.groups_differ),
    Rule("gpipe", "dominated", ("schedule",), "gpipe holds more activations than 1f1b and is not faster",
         "Narayanan et al. 2021",
         lambda c, x: ~when.among(c, "schedule", ["gpipe"]) | ("1f1b" not in x.stack.supports.schedules)),
    Rule("selective", "dominated", ("recompute_modules", "recompute"),
         "selective recomputation stores as much as none under {attention} attention, and is slower",
         "Dao et al. 2022", when.selective_saves),
    Rule("recompute-groups", "must", ("offload", "recompute", "recompute_num_layers"),
         "{recompute_num_layers} layers can share one stored input only with recompute full and no offloaded "
         "activations; recompute is {recompute}, offload {offload}", "Megatron-LM recompute_method uniform",
         when.groups_are_full),
    Rule("recompute-groups-divide", "must", ("pp", "vpp", "recompute_num_layers"),
         "groups of {recompute_num_layers} recomputed layers do not divide the {num_layers} layers of {model} over "
         "{pp} stages of {vpp} chunks", "arithmetic", when.groups_divide),
    Rule("recompute-groups-alike", "must", ("schedule", "recompute_num_layers"),
         "groups of {recompute_num_layers} recomputed layers are priced only for equal layers and stages that hold one "
         "piece of the model, unlike {model} under {schedule}", "the cost model",
         lambda c, x: (c["recompute_num_layers"] == 1)
         | (x.depth.uniform & ~when.among(c, "schedule", when.SEVERAL_PIECES))),
    Rule("stack-recompute-groups", "stack", ("recompute_num_layers",),
         "stack {stack} stores the input of every recomputed layer, not of groups of "
         "{recompute_num_layers}", "the stack",
         lambda c, x: (c["recompute_num_layers"] == 1) | x.stack.supports.recompute_groups),
    Rule("full-recompute", "dominated", ("vpp", "schedule", "offload", "recompute_num_layers", "recompute"),
         "recomputing every layer is never faster than recomputing as many as memory asks for", "arithmetic",
         lambda c, x: when.partly_as_well(c, x) | (max(x.stack.supports.zero_stages) >= SHARDED_GRADIENTS)),
    Rule("full-recompute-hides", "dominated",
         ("vpp", "schedule", "offload", "recompute_num_layers", "zero_stage", "recompute"),
         "recomputing every layer hides no traffic of ZeRO stage {zero_stage}, and is never faster than recomputing as "
         "many as memory asks for", "arithmetic",
         lambda c, x: when.partly_as_well(c, x) | (c["zero_stage"] >= SHARDED_GRADIENTS)),
    Rule("rank-order", "dominated", ("pp", "dp", "rank_order"),
         "with pp {pp} and dp {dp} rank order {rank_order} places ranks as the default does", "arithmetic",
         lambda c, _x: (c["rank_order"] == 0) | ((c["pp"] > 1) & (c["dp"] > 1))),
    Rule("stack-order", "stack", ("rank_order",), "stack {stack} has no rank order {rank_order}", "the stack",
         lambda c, x: when.among(c, "rank_order", x.stack.supports.rank_orders)),
    Rule("rank-order-sharding", "dominated", ("cp", "dp", "sharding_degree", "rank_order"),
         "rank order {rank_order} repeats another one unless sharding degree {sharding_degree} is a part of dp {dp}",
         "arithmetic", when.order_shards),
    Rule("sharding-repeats", "dominated", ("sharding_degree",),
         "sharding within one or a few nodes is here the same as over all {dp} x {cp} data and context ranks, or as "
         "another degree",
         "arithmetic", lambda c, _x: c["sharding_degree"] != when.REPEATS),
    Rule("sharding", "must", ("tp", "pp", "zero_stage", "sharding_degree"),
         "ZeRO stage {zero_stage} with sharding degree {sharding_degree}: stage 0 has degree 1, the other stages more",
         "Rajbhandari et al. 2020", when.shards),
    Rule("sharding-divides", "must", ("dp", "cp", "sharding_degree"),
         "sharding degree {sharding_degree} does not divide the {dp} x {cp} data and context ranks", "arithmetic",
         lambda c, _x: (c["dp"] * c["cp"]) % np.maximum(c["sharding_degree"], 1) == 0),
    Rule("stack-zero", "stack", ("zero_stage",), "stack {stack} has no ZeRO stage {zero_stage}", "the stack",
         lambda c, x: np.isin(c["zero_stage"], x.stack.supports.zero_stages)),
    Rule("zero-pipeline", "must", ("zero_stage", "pp", "schedule"),
         "ZeRO stage {zero_stage} shards gradients after every micro-batch, which does not work with {pp} pipeline "
         "stages under {schedule}; schedule breadth-first works, and stage 3 of PaddlePaddle's static graphs",
         "DeepSpeed, PaddlePaddle fleet; Lamy-Poirier 2022",
         when.gradients_accumulate),
    Rule("modules-selective", "must", ("recompute", "recompute_modules"),
         "modules {recompute_modules} are named, but recompute is {recompute}; only selective takes modules",
         "Megatron-Core recomputation",
         lambda c, _x: (c["recompute_modules"] == 0) | (c["recompute"] == Recompute.SELECTIVE)),
    Rule("modules-exist", "must", ("recompute_modules",),
         "model {model} does not have all of the modules {recompute_modules}; it has {model_modules}",
         "Megatron-Core recomputation",
         lambda c, x: (c["recompute_modules"] & ~allowed_mask(modules_of(x.model))) == 0),
    Rule("stack-modules", "stack", ("recompute_modules",),
         "stack {stack} cannot recompute modules {recompute_modules}; it can recompute {stack_modules}", "the stack",
         lambda c, x: (c["recompute_modules"] & ~allowed_mask(x.stack.supports.recompute_modules)) == 0),
    Rule("stack-offload", "stack", ("offload",), "stack {stack} has no offload {offload}; it has {stack_offloads}",
         "the stack", lambda c, x: when.among(c, "offload", ("none", *x.stack.supports.offloads))),
    Rule("offload-host", "must", ("offload",),
         "offload {offload} needs host_memory, host_link and host_bandwidth, which the cluster does not state",
         "arithmetic", lambda c, x: (c["offload"] == 0) | described(x)),
    Rule("offload-step", "must", ("offload",), "offload {offload}: optimizer {optimizer} cannot step on the host's "
                                               "CPUs",
         "DeepSpeed CPU-Adam, Megatron-Core hybrid optimizer",
         lambda c, x: (c["offload"] < OPTIMIZER) | (x.stack.switches.optimizer in when.HOST_OPTIMIZERS)),
    Rule("adapters-offload", "must", ("offload",),
         "offload {offload}: the weights are frozen, only adapters {adapters} have optimizer states", "Hu et al. 2021",
         lambda c, x: (c["offload"] < OPTIMIZER) | (not x.frozen)),
    Rule("adapters-schedule", "must", ("schedule",),
         "schedule {schedule} fills its bubble with weight gradients, and with adapters {adapters} the weights are "
         "frozen",
         "Qi et al. 2023", lambda c, x: ~when.fills(c) | (not x.frozen)),
    Rule("adapters-modules", "must", ("recompute_modules",),
         "recompute modules are not priced with adapters {adapters}; recompute none, "
         "selective or full works", "arithmetic", lambda c, x: (c["recompute_modules"] == 0) | (not x.frozen)),
    Rule("offload-parameters", "must", ("zero_stage", "offload"),
         "offload {offload} needs ZeRO stage 3; it is {zero_stage}", "DeepSpeed ZeRO-Infinity",
         lambda c, _x: (c["offload"] != EVERYTHING) | (c["zero_stage"] == 3)),
    Rule("offload-alone", "must", ("tp", "pp", "zero_stage", "sharding_degree", "offload"),
         "ZeRO stage {zero_stage} on a single rank needs an offloaded optimizer, or it does nothing; offload is "
         "{offload}",
         "DeepSpeed ZeRO-Offload",
         lambda c, x: ~when.alone(c, x) | (c["zero_stage"] == 0) | (c["offload"] >= OPTIMIZER)),
    Rule("offload-layers", "must", ("recompute", "offload"),
         "offload {offload} works with recompute none, selective or full, not with {recompute}",
         "all layers of a stage are offloaded alike",
         lambda c, _x: (c["offload"] != ACTIVATIONS) | (c["recompute"] != Recompute.PARTIAL)),
)  # fmt: skip
"""Every rule but memory, in the order in which they are tried."""

GROUP_RULES: tuple[Rule, ...] = (
    Rule("group-chunks", "must", ("vpp",),
         "{num_layers} layers do not make {vpp} equal chunks; over several node groups embedding and head do not count "
         "as layers", "arithmetic", lambda c, x: x.model.num_layers % c["vpp"] == 0),
    Rule("group-width", "stack", ("ranks", "widest"),
         "stages have {ranks} ranks on one node group and {widest} on another; launchers give every stage as many",
         "Megatron-Core parallel state", lambda c, _x: c["ranks"] == c["widest"]),
    Rule("group-batch", "must", ("dp", "batch_width"),
         "the {batch_width} sequences that all replicas take at a time do not split over the {dp} replicas of a node "
         "group",
         "arithmetic", lambda c, _x: c["batch_width"] % c["dp"] == 0),
    Rule("group-order", "must", ("rank_order",),
         "rank order {rank_order} spreads a node group's ranks over the pipeline; tp-cp-ep-dp-pp keeps them together",
         "arithmetic", lambda c, _x: c["rank_order"] == 0),
    Rule("group-schedule", "must", ("schedule",),
         "schedule {schedule} is priced only for equal stages; stages on several node groups differ",
         "Qi et al. 2023, 2024; Lamy-Poirier 2022",
         lambda c, _x: ~when.among(c, "schedule", (*FILLING, "breadth-first"))),
    Rule("group-vocabulary", "must", ("vocabulary",),
         "vocabulary {vocabulary} gives every stage the same share; stages on several node groups differ",
         "Yeung et al. 2024", lambda c, _x: c["vocabulary"] == 0),
    Rule("group-recompute", "must", ("recompute_num_layers",),
         "groups of {recompute_num_layers} recomputed layers are priced on one node group, not on "
         "several", "arithmetic",
         lambda c, _x: c["recompute_num_layers"] == 1),
    Rule("group-offload", "must", ("offload",),
         "offload {offload} is priced for one kind of host; several node groups have several kinds", "arithmetic",
         lambda c, _x: c["offload"] == 0),
)  # fmt: skip
"""Rules beyond ``RULES`` where a pipeline goes over several node groups.

They read a stage's ``ranks``, those of the ``widest`` stage, and ``batch_width``, the sequences of one micro-batch over
all replicas, which every group deals out to its own.
"""


def sentence(rule: Rule, row: Mapping[str, Any], scenario: Scenario) -> str:
    """The rule's sentence with one row's numbers."""
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
        stack_modules=",".join(stack.supports.recompute_modules) or "none",
        stack_offloads=", ".join(stack.supports.offloads) or "none",
        attention=scenario.rates.attention_name,
        accelerator=scenario.group.accelerator.name,
    )
    words["requires"] = SCHEDULES[words["schedule"]].requires if "schedule" in words else ""
    if words.get("dp") and words.get("micro_batch_size"):
        words["num_microbatches"] = int(scenario.global_batch_size // (words["dp"] * words["micro_batch_size"]))
    return rule.sentence.format(**words)
