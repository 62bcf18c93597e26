"""Every rule of every framework with a strategy that it accepts and one that it refuses."""

import numpy as np

from costmodels.layer.recompute_modules import module_mask
from costmodels.names import CP_KINDS, OFFLOADS, RANK_ORDERS, SCHEDULE_NAMES, Recompute
from costmodels.strategy import strategies
from planner.frameworks.registry import FRAMEWORKS, as_rule
from planner.rules.core import RULES, sentence
from planner.space.active_rules import active, binding
from planner.space.lattice import build
from tests.each import each
from tests.scenarios import changed_device, toy_hybrid, toy_model, toy_scenario, toy_stack, with_experts

PLAIN = toy_scenario()
GROUPS = toy_scenario(model=toy_model(num_query_groups=4))
LAMB = toy_scenario(stack=toy_stack(optimizer="lamb"))
ADAFACTOR = toy_scenario(stack=toy_stack(optimizer="adafactor"))
NARROW = {"bf16": 1e14, "fp32": 1e13, "fp8": 2e14, "fp4": 4e14}
ROWS = changed_device(toy_scenario(precision="fp8-rowwise"), peak=NARROW)
DELAYED = changed_device(toy_scenario(precision="fp8"), peak=NARROW)
HYBRID = toy_scenario(model=toy_hybrid(mamba={"num_heads": 16, "head_dim": 32, "state_size": 16, "num_groups": 4}))
LLAMA = toy_scenario(
    model=toy_model(gated_ffn=True).model_copy(
        update={"norm": "rmsnorm", "norm_bias": False, "position": "rotary", "qkv_bias": False, "output_bias": False}
        | {"ffn_bias": False, "head_bias": False, "num_norms": 2, "qk_norm": "none", "norm_weight": True}
    )
)
CYCLES = toy_scenario(model=LLAMA.model.model_copy(update={"sliding_window": 128, "sliding_window_every": 2}))
TIED = toy_scenario(model=toy_model().model_copy(update={"tied_embeddings": True}))
EXPERTS = toy_scenario(model=with_experts(toy_model()))
BIASED = toy_scenario(model=with_experts(toy_model()).model_copy(update={"ffn_bias": True}))
MLP, NORMS = module_mask(["mlp"]), module_mask(["layernorm"])
FP4 = changed_device(toy_scenario(precision="nvfp4"), peak=NARROW)
ADAPTED = toy_scenario(stack=toy_stack(adapters={"rank": 8}))
PACKED = toy_scenario(stack=toy_stack(adapters={"rank": 8}, base_precision="nf4"))
EIGHT_BITS = toy_scenario(stack=toy_stack(adapters={"rank": 8}, base_precision="int8"))
FUSED = toy_scenario(stack=toy_stack(loss="fused"))
MUON = toy_scenario(stack=toy_stack(optimizer="muon"))
EIGHT = toy_scenario(stack=toy_stack(optimizer="adam-8bit"))
MASTERS = toy_scenario(stack=toy_stack(main_params="fp16"))
TPU = changed_device(PLAIN, vendor="Google")
VOLTA = changed_device(PLAIN, architecture="Volta")
ASCEND = changed_device(PLAIN, vendor="Huawei")
BLOCKS = toy_scenario(stack=toy_stack(loss_block=512))
HALF = toy_scenario(stack=toy_stack(offload_fraction=0.5))
NONE, F1B, GPIPE, LOOP, ZBV, DUAL, PAIRS_V = map(
    SCHEDULE_NAMES.index, ("none", "1f1b", "gpipe", "interleaved-1f1b", "zb-v", "dualpipe", "dualpipe-v")
)
A2A, GATHER, BOTH = map(CP_KINDS.index, ("a2a", "all-gather", "a2a+p2p"))
OPTIMIZER, EVERYTHING, ACTIVATIONS = map(OFFLOADS.index, ("optimizer", "optimizer+parameters", "activations"))
FULL, PARTIAL, SELECTIVE = int(Recompute.FULL), int(Recompute.PARTIAL), int(Recompute.SELECTIVE)
INSIDE = RANK_ORDERS.index("tp-cp-ep-sharding-pp-dp")

EVERYWHERE = {"dp": 4, "cp": 2, "zero_stage": 3, "sharding_degree": 8}
PART = {"dp": 4, "cp": 2, "zero_stage": 3, "sharding_degree": 4}
ACROSS = {"dp": 4, "cp": 4, "zero_stage": 3, "sharding_degree": 2}
ORDER = ({"pp": 2}, {"pp": 2, "rank_order": INSIDE})
SPREAD = ({"pp": 2, "vocabulary": 0}, {"pp": 2, "vocabulary": 1})

PAIRS = {
    "megatron-schedule": (PLAIN, {"schedule": LOOP}, {"schedule": ZBV}),
    "megatron-order": (PLAIN, *ORDER),
    "megatron-vocabulary": (PLAIN, *SPREAD),
    "megatron-offload": (PLAIN, {"offload": OPTIMIZER}, {"offload": EVERYTHING}),
    "megatron-optimizer": (PLAIN, {}, LAMB),
    "megatron-precision": (PLAIN, {}, ROWS),
    "megatron-device": (PLAIN, {}, TPU),
    "megatron-context-kernel": (VOLTA, {}, {"cp": 2}),
    "paddle-context-kernel": (VOLTA, {}, {"cp": 2}),
    "megatron-muon": (MUON, {"dp": 4, "zero_stage": 1, "sharding_degree": 4}, {"dp": 4}),
    "megatron-narrow-states": (MASTERS, {"dp": 4, "zero_stage": 1, "sharding_degree": 4}, {"dp": 4}),
    "megatron-fused-loss": (PLAIN, {}, FUSED),
    "megatron-loss": (PLAIN, {}, BLOCKS),
    "megatron-adapters": (PLAIN, {}, ADAPTED),
    "megatron-mapping": (PLAIN, {"tp": 2, "pp": 2, "rank_order": 1}, {"cp": 2, "pp": 2, "rank_order": 1}),
    "megatron-delayed-recompute": (DELAYED, {"recompute_modules": MLP}, {"recompute_modules": NORMS}),
    "megatron-grouped-recompute": (PLAIN, {"recompute_modules": module_mask(["moe_act"])}, VOLTA),
    "megatron-expert-bias": (BIASED, {"etp": 1}, {"etp": 2}),
    "megatron-expert-copies": (EXPERTS, {"ep": 2, **PART}, {"ep": 8, **PART}),
    "bridge-precision": (PLAIN, {}, ROWS),
    "bridge-optimizer": (PLAIN, {}, EIGHT),
    "bridge-hybrid": (PLAIN, {}, HYBRID),
    "deepspeed-device": (PLAIN, {}, TPU),
    "deepspeed-schedule": (PLAIN, {"schedule": F1B}, {"schedule": LOOP}),
    "deepspeed-layers": (PLAIN, {"pp": 2}, {"pp": 3}),
    "deepspeed-tensor-pipeline": (PLAIN, {"tp": 2}, {"tp": 2, "pp": 2}),
    "deepspeed-sequence": (PLAIN, {"tp": 2}, {"tp": 2, "sequence_parallel": 1}),
    "deepspeed-frozen": (PACKED, {"tp": 1}, {"tp": 2}),
    "deepspeed-context-kind": (PLAIN, {"cp": 2, "cp_kind": A2A}, {"cp": 2}),
    "deepspeed-context-pipeline": (PLAIN, {"cp": 2}, {"cp": 2, "pp": 2}),
    "deepspeed-context-tensor": (PLAIN, {"cp": 2}, {"cp": 2, "tp": 2}),
    "deepspeed-expert-tensor": (PLAIN, {"etp": 1}, {"etp": 2}),
    "deepspeed-experts-parameters": (PLAIN, {"ep": 2, "zero_stage": 2}, {"ep": 2, "zero_stage": 3}),
    "deepspeed-zero-pipeline": (PLAIN, {"pp": 2, "zero_stage": 1}, {"pp": 2, "zero_stage": 2}),
    "deepspeed-sharding": (PLAIN, EVERYWHERE, PART),
    "deepspeed-order": (PLAIN, *ORDER),
    "deepspeed-vocabulary": (PLAIN, *SPREAD),
    "deepspeed-recompute-groups": (PLAIN, {"pp": 2, "recompute_num_layers": 2}, {"pp": 1, "recompute_num_layers": 2}),
    "deepspeed-recompute": (PLAIN, {"recompute": FULL}, {"recompute": PARTIAL}),
    "deepspeed-precision": (PLAIN, {}, FP4),
    "deepspeed-optimizer": (LAMB, {}, ADAFACTOR),
    "deepspeed-offload": (PLAIN, {"offload": OPTIMIZER}, {"offload": ACTIVATIONS}),
    "deepspeed-offload-shards": (PLAIN, {"offload": OPTIMIZER, "zero_stage": 1}, {"offload": OPTIMIZER}),
    "deepspeed-offload-share": (HALF, {"offload": OPTIMIZER, "zero_stage": 3}, {"offload": OPTIMIZER, "zero_stage": 1}),
    "torchtitan-precision": (PLAIN, {}, DELAYED),
    "torchtitan-device": (PLAIN, {}, TPU),
    "torchtitan-schedule": (PLAIN, {"schedule": ZBV}, {"schedule": DUAL}),
    "torchtitan-v": (PLAIN, {"schedule": ZBV, "vpp": 2}, {"schedule": ZBV, "vpp": 4}),
    "torchtitan-context-kind": (PLAIN, {"cp": 2, "cp_kind": GATHER}, {"cp": 2}),
    "torchtitan-gradients": (PLAIN, {"zero_stage": 2}, {"zero_stage": 1}),
    "torchtitan-sharding": (PLAIN, PART, ACROSS),
    "torchtitan-context-shards": (PLAIN, {"cp": 2, "zero_stage": 3}, {"cp": 2}),
    "torchtitan-experts": (PLAIN, {"ep": 8, **EVERYWHERE}, {"ep": 8, **PART}),
    "torchtitan-expert-tensor": (PLAIN, {"etp": 1}, {"etp": 2}),
    "torchtitan-query-groups": (GROUPS, {"tp": 4}, {"tp": 8}),
    "torchtitan-recompute-groups": (PLAIN, {"recompute_num_layers": 1}, {"recompute_num_layers": 2}),
    "torchtitan-recompute": (PLAIN, {"recompute": SELECTIVE}, {"recompute": PARTIAL}),
    "torchtitan-paired-recompute": (
        EXPERTS,
        {"ep": 2, "schedule": ZBV, "recompute": FULL},
        {"ep": 2, "schedule": PAIRS_V, "recompute": FULL},
    ),
    "torchtitan-order": (PLAIN, *ORDER),
    "torchtitan-vocabulary": (PLAIN, *SPREAD),
    "torchtitan-offload": (PLAIN, {"offload": EVERYTHING}, {"offload": OPTIMIZER}),
    "torchtitan-offload-share": (HALF, {}, {"offload": EVERYTHING}),
    "torchtitan-optimizer": (PLAIN, {}, LAMB),
    "torchtitan-tied": (TIED, {"pp": 1}, {"pp": 2}),
    "torchtitan-fills": (PLAIN, {"pp": 4, "dp": 2, "schedule": F1B}, {"pp": 4, "dp": 8, "schedule": F1B}),
    "pytorch-device": (PLAIN, {}, TPU),
    "pytorch-schedule": (PLAIN, {"schedule": ZBV}, {"schedule": DUAL}),
    "pytorch-v": (PLAIN, {"schedule": ZBV, "vpp": 2}, {"schedule": ZBV, "vpp": 4}),
    "pytorch-fills": (PLAIN, {"pp": 4, "dp": 2, "schedule": F1B}, {"pp": 4, "dp": 8, "schedule": F1B}),
    "pytorch-context-kind": (PLAIN, {"cp": 2}, {"cp": 2, "cp_kind": A2A}),
    "pytorch-gradients": (PLAIN, {"zero_stage": 2}, {"zero_stage": 1}),
    "pytorch-sharding": (PLAIN, PART, ACROSS),
    "pytorch-experts": (PLAIN, {"ep": 1}, {"ep": 2}),
    "pytorch-expert-tensor": (PLAIN, {"etp": 1}, {"etp": 2}),
    "pytorch-recompute-groups": (PLAIN, {"recompute_num_layers": 1}, {"recompute_num_layers": 2}),
    "pytorch-recompute": (PLAIN, {"recompute": FULL}, {"recompute": PARTIAL}),
    "pytorch-order": (PLAIN, *ORDER),
    "pytorch-vocabulary": (PLAIN, *SPREAD),
    "pytorch-offload": (PLAIN, {"offload": EVERYTHING, "zero_stage": 3}, {"offload": EVERYTHING}),
    "pytorch-precision": (PLAIN, {}, FP4),
    "paddle-device": (PLAIN, {}, TPU),
    "paddle-schedule": (PLAIN, {"schedule": F1B}, {"schedule": LOOP}),
    "paddle-layers": (PLAIN, {"pp": 2}, {"pp": 3}),
    "paddle-zero-pipeline": (PLAIN, {"pp": 2, "zero_stage": 1}, {"pp": 2, "zero_stage": 2}),
    "paddle-context-kind": (PLAIN, {"cp": 2}, {"cp": 2, "cp_kind": A2A}),
    "paddle-context-shards": (PLAIN, {"cp": 2, "zero_stage": 1}, {"cp": 2}),
    "paddle-sharding": (PLAIN, PART, ACROSS),
    "paddle-expert-tensor": (PLAIN, {"etp": 1}, {"etp": 2}),
    "paddle-experts": (EXPERTS, {"ep": 4, "tp": 2, **EVERYWHERE}, {"ep": 4, "tp": 2, **PART}),
    "paddle-order": (PLAIN, {"pp": 2, "rank_order": INSIDE, **PART}, {"pp": 2, **PART}),
    "paddle-vocabulary": (PLAIN, *SPREAD),
    "paddle-recompute": (PLAIN, {"recompute": FULL}, {"recompute": SELECTIVE}),
    "paddle-precision": (PLAIN, {}, FP4),
    "paddle-offload": (PLAIN, {}, {"offload": OPTIMIZER}),
    "paddle-optimizer": (PLAIN, {}, LAMB),
    "accelerate-device": (PLAIN, {}, TPU),
    "accelerate-pipeline": (PLAIN, {"pp": 1}, {"pp": 2}),
    "accelerate-experts": (PLAIN, {"ep": 1}, {"ep": 2}),
    "accelerate-expert-tensor": (PLAIN, {"etp": 1}, {"etp": 2}),
    "accelerate-gradients": (PLAIN, {"zero_stage": 3}, {"zero_stage": 1}),
    "accelerate-shards": (PLAIN, {"dp": 2, "zero_stage": 3}, {"dp": 1, "zero_stage": 3}),
    "accelerate-sharding": (PLAIN, PART, ACROSS),
    "accelerate-context-shards": (PLAIN, {"cp": 2, "zero_stage": 3}, {"cp": 2}),
    "accelerate-replicas": (PLAIN, {"tp": 2, **EVERYWHERE}, {"tp": 2, "dp": 2}),
    "accelerate-context-kind": (PLAIN, {"cp": 2}, {"cp": 2, "cp_kind": A2A}),
    "accelerate-recompute-groups": (PLAIN, {"recompute_num_layers": 1}, {"recompute_num_layers": 2}),
    "accelerate-recompute": (PLAIN, {"recompute": FULL}, {"recompute": SELECTIVE}),
    "accelerate-order": (PLAIN, *ORDER),
    "accelerate-offload": (PLAIN, {"offload": EVERYTHING}, {"offload": OPTIMIZER}),
    "accelerate-offload-share": (HALF, {}, {"offload": EVERYTHING}),
    "accelerate-offload-shards": (PLAIN, {"offload": EVERYTHING, "zero_stage": 3}, {"offload": EVERYTHING}),
    "accelerate-precision": (PLAIN, {}, FP4),
    "accelerate-bytes": (EIGHT_BITS, {"zero_stage": 0}, {"zero_stage": 3}),
    "accelerate-frozen": (PACKED, {"tp": 1}, {"tp": 2}),
    "nanotron-device": (PLAIN, {}, ASCEND),
    "nanotron-recompute-groups": (PLAIN, {}, {"recompute_num_layers": 2}),
    "nanotron-schedule": (LLAMA, {"schedule": F1B}, {"schedule": LOOP}),
    "nanotron-fills": (LLAMA, {"pp": 4, "dp": 4, "schedule": F1B}, {"pp": 4, "dp": 16, "schedule": F1B}),
    "nanotron-stages": (LLAMA, {"pp": 2}, {"pp": 16}),
    "nanotron-context": (LLAMA, {"cp": 1}, {"cp": 2}),
    "nanotron-experts": (LLAMA, {"ep": 1}, {"ep": 2}),
    "nanotron-expert-tensor": (LLAMA, {"etp": 1}, {"etp": 2}),
    "nanotron-model": (LLAMA, {}, EXPERTS),
    "nanotron-query-groups": (GROUPS, {"tp": 4}, {"tp": 8}),
    "nanotron-zero": (LLAMA, {"zero_stage": 1}, {"zero_stage": 3}),
    "nanotron-sharding": (LLAMA, EVERYWHERE, PART),
    "nanotron-recompute": (LLAMA, {"recompute": FULL}, {"recompute": SELECTIVE}),
    "nanotron-order": (LLAMA, *ORDER),
    "nanotron-vocabulary": (LLAMA, *SPREAD),
    "nanotron-offload": (LLAMA, {}, {"offload": OPTIMIZER}),
    "nanotron-optimizer": (PLAIN, {}, LAMB),
    "nanotron-precision": (PLAIN, {}, FP4),
    "nanotron-fused-loss": (PLAIN, {}, FUSED),
    "nanotron-loss": (PLAIN, {}, BLOCKS),
    "nanotron-adapters": (PLAIN, {}, ADAPTED),
    "torchtitan-rotation": (PLAIN, {"cp": 2, "cp_kind": GATHER}, {"cp": 2, "cp_kind": A2A}),
    "torchtitan-norms": (PLAIN, {"tp": 2, "sequence_parallel": 1}, {"tp": 2}),
    "torchtitan-mixed-precision": (PLAIN, {"zero_stage": 0}, {"pp": 2, "zero_stage": 0}),
    "torchtitan-whole-experts": (EXPERTS, {"tp": 4, "etp": 4}, {"tp": 4, "etp": 2}),
    "torchtitan-converters": (PLAIN, {}, DELAYED),
    "maxtext-device": (PLAIN, {}, ASCEND),
    "maxtext-recompute-groups": (PLAIN, {}, {"recompute_num_layers": 2}),
    "maxtext-schedule": (LLAMA, {"schedule": GPIPE}, {"schedule": F1B}),
    "maxtext-layers": (LLAMA, {"pp": 2}, {"pp": 3}),
    "maxtext-pipeline": (LLAMA, {"pp": 2}, CYCLES),
    "maxtext-window": (LLAMA, {"cp": 2}, CYCLES),
    "maxtext-rounds": (LLAMA, {"pp": 4, "dp": 2}, {"pp": 4, "dp": 8}),
    "maxtext-tokens": (LLAMA, {"tp": 2, "cp": 2}, {"tp": 3}),
    "maxtext-delayed": (DELAYED, {"dp": 16}, {"dp": 8}),
    "maxtext-adapters": (LLAMA, {}, ADAPTED),
    "maxtext-model": (LLAMA, {}, EXPERTS),
    "maxtext-query-groups": (GROUPS, {"tp": 4}, {"tp": 8}),
    "maxtext-zero": (LLAMA, {"dp": 4, "zero_stage": 1, "sharding_degree": 4}, {"dp": 4, "zero_stage": 2}),
    "maxtext-shards": (LLAMA, {"cp": 2, "zero_stage": 3}, {"cp": 2, "zero_stage": 1}),
    "maxtext-sharding": (EXPERTS, {"ep": 4, **EVERYWHERE}, {"ep": 8, **PART}),
    "maxtext-experts": (EXPERTS, {"ep": 2}, {"ep": 2, "tp": 2}),
    "maxtext-expert-tensor": (EXPERTS, {"tp": 2, "etp": 2}, {"tp": 2, "etp": 1}),
    "maxtext-context-kind": (LLAMA, {"cp": 2, "cp_kind": GATHER}, {"cp": 2, "cp_kind": A2A}),
    "maxtext-recompute": (LLAMA, {"recompute": SELECTIVE}, {"recompute": PARTIAL}),
    "maxtext-order": (LLAMA, *ORDER),
    "maxtext-vocabulary": (LLAMA, *SPREAD),
    "maxtext-offload": (LLAMA, {"offload": OPTIMIZER}, {"offload": ACTIVATIONS}),
    "maxtext-optimizer": (PLAIN, {}, LAMB),
    "maxtext-precision": (PLAIN, {}, ROWS),
}
"""Rule to a scenario, a strategy that passes it, and one that does not or a scenario in which none does."""

EVERY = list({one.name: (name, as_rule(one)) for name, kind in FRAMEWORKS.items() for one in kind.constraints}.values())
IDS = [rule.name for _, rule in EVERY]


def columns(row):
    made = strategies(**row)
    return {name: getattr(made, name) for name in made.row(0)}


def pair(rule):
    scenario, accepted, refused = PAIRS[rule.name]
    worse = (scenario, refused) if isinstance(refused, dict) else (refused, accepted)
    return (scenario, accepted), worse


def test_every_rule_has_a_pair_and_every_pair_a_rule():
    assert sorted(PAIRS) == sorted(IDS)
    assert not {rule.name for rule in RULES} & set(IDS)


@each("rule", [rule for _, rule in EVERY], ids=IDS)
def test_a_rule_accepts_one_strategy_and_refuses_another(rule):
    (scenario, accepted), (other, refused) = pair(rule)
    assert np.all(rule.passes(columns(accepted), scenario))
    assert not np.any(rule.passes(columns(refused), other))


@each("rule", [rule for _, rule in EVERY], ids=IDS)
def test_a_rule_reads_no_more_than_it_says(rule):
    for scenario, row in pair(rule):
        read = {name: column for name, column in columns(row).items() if name in rule.reads}
        assert np.array_equal(rule.passes(read, scenario), rule.passes(columns(row), scenario))


@each(("name", "rule"), EVERY, ids=IDS)
def test_a_refusal_says_what_the_framework_lacks_and_who_says_so(name, rule):
    _, (scenario, refused) = pair(rule)
    words = sentence(rule, strategies(**refused).row(0), scenario)
    assert words.startswith("it takes ")
    assert "{" not in words
    assert rule.kind == "framework"
    assert "." in rule.source, name


@each("name", FRAMEWORKS)
def test_a_framework_adds_its_rules_and_drops_what_prefers_the_impossible(name):
    scenario = toy_scenario(framework=name)
    names = {rule.name for rule in active(scenario, frozenset())}
    assert {rule.name for rule in FRAMEWORKS[name].rules} <= names
    assert not set(FRAMEWORKS[name].dropped) & names
    assert {rule.name for rule in binding(scenario)} >= {rule.name for rule in FRAMEWORKS[name].rules}


@each("name", FRAMEWORKS)
def test_what_a_search_proposes_for_a_framework_breaks_none_of_its_rules(name):
    scenario = toy_scenario(framework=name, model=LLAMA.model)
    space = build(scenario, {})
    core, option = np.nonzero(space.allowed)
    rows = space.rows(core, option)
    assert len(rows)
    for rule in FRAMEWORKS[name].rules:
        assert np.all(rule.passes({axis: getattr(rows, axis) for axis in rows.row(0)}, scenario))
