"""Every rule with a strategy that it accepts and one that it refuses."""

import numpy as np
import pytest

from costmodels.layer.recompute_modules import module_mask
from costmodels.names import CP_KINDS, RANK_ORDERS, SCHEDULE_NAMES, SHARDING_INSIDE, Recompute
from costmodels.stack.adapters import Adapters
from costmodels.step.offload import ACTIVATIONS, EVERYTHING, OPTIMIZER
from costmodels.strategy import strategies
from planner.rules.core import RULES, sentence
from planner.space.active_rules import active
from tests.each import each
from tests.scenarios import (
    GPIPE,
    INTERLEAVED,
    NONE,
    ONE_F_ONE_B,
    toy_group,
    toy_hybrid,
    toy_model,
    toy_scenario,
    toy_stack,
    with_experts,
)

ZB_1P, BREADTH_FIRST, GROUPS_OF = map(SCHEDULE_NAMES.index, ("zb-1p", "breadth-first", "interleaved-groups"))

EVEN = toy_scenario(stack=toy_stack(uneven_stages=False))
FREE = toy_scenario(stack=toy_stack(uneven_stages=True))
UNFUSED = toy_scenario(stack=toy_stack(attention_backend=("unfused",)))
ODD = toy_scenario(model=toy_model(num_heads=6, hidden_size=768))
GROUPS = toy_scenario(model=toy_model(num_query_groups=4))
NARROW = toy_scenario(model=toy_model(ffn_hidden_size=4100))
ENDS = toy_scenario(stack=toy_stack(ends_as_layers=True))
BARE = toy_scenario(stack=toy_stack(sequence_parallel=False, schedules=("none", "1f1b"), zero_stages=(0, 1)))
EXPERTS = toy_scenario(model=with_experts(toy_model(), expert_ffn_hidden_size=1028))
HYBRID = toy_scenario(
    model=toy_hybrid(mamba={"num_heads": 16, "head_dim": 32, "state_size": 16, "num_groups": 4}), seq_length=4096
)
SHARED = toy_scenario(model=toy_model(shared_blocks={"count": 1}))
P2P, A2A, GATHER, BOTH = range(len(CP_KINDS))
ALL_KINDS = toy_scenario(stack=toy_stack(cp_kinds=CP_KINDS, rank_orders=RANK_ORDERS))
SPREAD = toy_scenario(stack=toy_stack(vocabulary=("ends", "spread")))
ZERO = toy_scenario(stack=toy_stack(zero_stages=(0, 1, 2, 3)))

NAMED_MODULES = toy_scenario(stack=toy_stack(recompute_modules=("layernorm", "moe")))
LAYERNORM = module_mask(["layernorm"])
HOSTED = toy_scenario(stack=toy_stack(offloads=("activations", "optimizer")))
ALONE = toy_scenario(gpus=1, stack=toy_stack(offloads=("optimizer",), gradients_offloaded=True))
ADAPTED = toy_scenario(stack=toy_stack(adapters=Adapters(rank=8)))
UNHOSTED = toy_scenario(group=toy_group().model_copy(update={"host_link": None}))

PAIRS = {
    "heads": (ODD, {"tp": 2}, {"tp": 4}),
    "query-groups": (GROUPS, {"tp": 8}, {"tp": 6}),
    "ffn": (NARROW, {"tp": 4}, {"tp": 8}),
    "layers": (EVEN, {"pp": 8}, {"pp": 16}),
    "shared-blocks": (SHARED, {"pp": 1}, {"pp": 2}),
    "experts": (EVEN, {"ep": 1, "etp": 1}, {"ep": 2, "etp": 1}),
    "experts-divide": (EXPERTS, {"ep": 4}, {"ep": 3}),
    "experts-fold": (
        EXPERTS,
        {"tp": 2, "cp": 2, "dp": 2, "ep": 4, "etp": 2},
        {"tp": 2, "cp": 1, "dp": 2, "ep": 4, "etp": 2},
    ),
    "experts-order": (
        EXPERTS,
        {"tp": 2, "cp": 2, "pp": 2, "ep": 4, "etp": 1, "rank_order": 1},
        {"tp": 2, "cp": 2, "pp": 2, "ep": 8, "etp": 1, "rank_order": 1},
    ),
    "expert-width": (EXPERTS, {"tp": 8, "etp": 4}, {"tp": 8, "etp": 8}),
    "experts-sequence": (EXPERTS, {"tp": 2, "sequence_parallel": 1}, {"tp": 2, "sequence_parallel": 0}),
    "mamba-groups": (HYBRID, {"tp": 4}, {"tp": 8}),
    "mamba-context": (HYBRID, {"tp": 2, "cp": 8}, {"tp": 2, "cp": 16}),
    "context-split": (toy_scenario(seq_length=1000), {"cp": 4}, {"cp": 8}),
    "context-kind": (ALL_KINDS, {"cp": 2, "cp_kind": A2A}, {"cp": 1, "cp_kind": A2A}),
    "stack-context": (EVEN, {"cp": 2, "cp_kind": P2P}, {"cp": 2, "cp_kind": A2A}),
    "context-heads": (
        toy_scenario(model=toy_model(num_query_groups=4), stack=toy_stack(cp_kinds=CP_KINDS)),
        {"tp": 2, "cp": 2, "cp_kind": A2A},
        {"tp": 2, "cp": 4, "cp_kind": A2A},
    ),
    "context-hierarchy": (ALL_KINDS, {"tp": 2, "cp": 4, "cp_kind": BOTH}, {"tp": 4, "cp": 4, "cp_kind": BOTH}),
    "context-window": (
        toy_scenario(model=toy_model().model_copy(update={"sliding_window": 128}), stack=toy_stack(cp_kinds=CP_KINDS)),
        {"cp": 2, "cp_kind": GATHER},
        {"cp": 2, "cp_kind": P2P},
    ),
    "context-kernel": (UNFUSED, {"cp": 2, "cp_kind": A2A}, {"cp": 2, "cp_kind": P2P}),
    "stack-order": (EVEN, {"rank_order": 1}, {"rank_order": SHARDING_INSIDE}),
    "rank-order-sharding": (
        ALL_KINDS,
        {"cp": 2, "dp": 4, "sharding_degree": 4, "rank_order": SHARDING_INSIDE},
        {"cp": 2, "dp": 4, "sharding_degree": 8, "rank_order": SHARDING_INSIDE},
    ),
    "batch-covers": (EVEN, {"dp": 16}, {"dp": 32}),
    "batch-divides": (EVEN, {"dp": 4, "micro_batch_size": 4}, {"dp": 4, "micro_batch_size": 3}),
    "interleaving": (EVEN, {"pp": 2, "vpp": 2}, {"pp": 1, "vpp": 2}),
    "equal-chunks": (EVEN, {"vpp": 4}, {"vpp": 3}),
    "ends-as-layers": (
        ENDS,
        {"vpp": 5, "schedule": INTERLEAVED, "recompute": Recompute.FULL, "vocabulary": 0},
        {"vpp": 5, "schedule": INTERLEAVED, "recompute": Recompute.PARTIAL, "vocabulary": 0},
    ),
    "sharding-repeats": (EVEN, {"sharding_degree": 4}, {"sharding_degree": 0}),
    "chunks": (EVEN, {"pp": 2, "vpp": 4}, {"pp": 2, "vpp": 8}),
    "even-stages": (EVEN, {"pp": 4, "vpp": 2}, {"pp": 3, "vpp": 1}),
    "interleave-groups": (
        EVEN,
        {"pp": 4, "vpp": 2, "dp": 1, "micro_batch_size": 4, "schedule": INTERLEAVED},
        {"pp": 4, "vpp": 2, "dp": 2, "micro_batch_size": 4, "schedule": INTERLEAVED},
    ),
    "sequence-needs-tensor": (EVEN, {"tp": 2, "sequence_parallel": 1}, {"tp": 1, "sequence_parallel": 1}),
    "sequence-split": (
        toy_scenario(seq_length=1004),
        {"tp": 2, "cp": 2, "sequence_parallel": 1},
        {"tp": 4, "cp": 2, "sequence_parallel": 1},
    ),
    "stack-sequence": (BARE, {"sequence_parallel": 0}, {"sequence_parallel": 1}),
    "schedule": (EVEN, {"pp": 2, "vpp": 2, "schedule": INTERLEAVED}, {"pp": 2, "vpp": 2, "schedule": ONE_F_ONE_B}),
    "schedule-fills": (
        EVEN,
        {"pp": 4, "vpp": 1, "dp": 2, "micro_batch_size": 1, "schedule": ZB_1P},
        {"pp": 4, "vpp": 1, "dp": 2, "micro_batch_size": 8, "schedule": ZB_1P},
    ),
    "stack-schedule": (BARE, {"schedule": ONE_F_ONE_B}, {"schedule": GPIPE}),
    "gpipe": (EVEN, {"schedule": ONE_F_ONE_B}, {"schedule": GPIPE}),
    "recompute-groups": (
        EVEN,
        {"recompute": Recompute.FULL, "recompute_num_layers": 2, "offload": 0},
        {"recompute": Recompute.PARTIAL, "recompute_num_layers": 2, "offload": 0},
    ),
    "recompute-groups-divide": (
        EVEN,
        {"pp": 2, "vpp": 2, "recompute_num_layers": 2},
        {"pp": 2, "vpp": 2, "recompute_num_layers": 4},
    ),
    "recompute-groups-alike": (
        EVEN,
        {"schedule": ONE_F_ONE_B, "recompute_num_layers": 2},
        {"schedule": SCHEDULE_NAMES.index("zb-v"), "recompute_num_layers": 2},
    ),
    "stack-recompute-groups": (EVEN, {"recompute_num_layers": 1}, {"recompute_num_layers": 2}),
    "full-recompute": (EVEN, {"recompute": Recompute.PARTIAL}, {"recompute": Recompute.FULL}),
    "full-recompute-hides": (
        EVEN,
        {"zero_stage": 2, "sharding_degree": 4, "recompute": Recompute.FULL},
        {"zero_stage": 1, "sharding_degree": 4, "recompute": Recompute.FULL},
    ),
    "selective": (EVEN, {"recompute": Recompute.FULL}, {"recompute": Recompute.SELECTIVE}),
    "rank-order": (EVEN, {"pp": 2, "dp": 2, "rank_order": 1}, {"pp": 2, "dp": 1, "rank_order": 1}),
    "sharding": (EVEN, {"zero_stage": 1, "sharding_degree": 4}, {"zero_stage": 1, "sharding_degree": 1}),
    "offload-alone": (
        ALONE,
        {"zero_stage": 2, "sharding_degree": 1, "offload": OPTIMIZER},
        {"zero_stage": 2, "sharding_degree": 1, "offload": 0},
    ),
    "sharding-divides": (EVEN, {"dp": 4, "cp": 2, "sharding_degree": 8}, {"dp": 4, "cp": 2, "sharding_degree": 5}),
    "stack-zero": (BARE, {"zero_stage": 1}, {"zero_stage": 3}),
    "modules-selective": (
        NAMED_MODULES,
        {"recompute": Recompute.SELECTIVE, "recompute_modules": LAYERNORM},
        {"recompute": Recompute.PARTIAL, "recompute_modules": LAYERNORM},
    ),
    "modules-exist": (NAMED_MODULES, {"recompute_modules": LAYERNORM}, {"recompute_modules": module_mask(["moe"])}),
    "stack-modules": (
        NAMED_MODULES,
        {"recompute_modules": LAYERNORM},
        {"recompute_modules": module_mask(["core_attn"])},
    ),
    "stack-offload": (HOSTED, {"offload": ACTIVATIONS}, {"offload": EVERYTHING}),
    "offload-host": (UNHOSTED, {"offload": 0}, {"offload": OPTIMIZER}),
    "offload-step": (toy_scenario(stack=toy_stack(optimizer="muon")), {"offload": ACTIVATIONS}, {"offload": OPTIMIZER}),
    "adapters-offload": (ADAPTED, {"offload": ACTIVATIONS}, {"offload": OPTIMIZER}),
    "adapters-schedule": (ADAPTED, {"schedule": INTERLEAVED}, {"schedule": SCHEDULE_NAMES.index("zb-1p")}),
    "adapters-modules": (ADAPTED, {"recompute_modules": 0}, {"recompute_modules": 1}),
    "offload-parameters": (ZERO, {"zero_stage": 3, "offload": EVERYTHING}, {"zero_stage": 2, "offload": EVERYTHING}),
    "offload-layers": (
        HOSTED,
        {"recompute": Recompute.FULL, "offload": ACTIVATIONS},
        {"recompute": Recompute.PARTIAL, "offload": ACTIVATIONS},
    ),
    "zero-pipeline": (
        ZERO,
        {"zero_stage": 2, "pp": 2, "schedule": BREADTH_FIRST},
        {"zero_stage": 2, "pp": 2, "schedule": INTERLEAVED},
    ),
    "vocabulary": (SPREAD, {"pp": 2, "vocabulary": 1}, {"pp": 1, "vocabulary": 1}),
    "stack-vocabulary": (EVEN, {"vocabulary": 0}, {"vocabulary": 1}),
    "micro-batch-groups": (
        EVEN,
        {"pp": 3, "dp": 2, "micro_batch_size": 1, "schedule": GROUPS_OF},
        {"pp": 4, "dp": 2, "micro_batch_size": 1, "schedule": GROUPS_OF},
    ),
}
"""Rule to a scenario, a strategy that passes it and one that does not."""

IDS = [rule.name for rule in RULES]


def columns(row):
    made = strategies(**row)
    return {name: getattr(made, name) for name in made.row(0)}


def test_every_rule_has_a_pair_and_every_pair_a_rule():
    assert sorted(PAIRS) == sorted(IDS)
    assert len(set(IDS)) == len(IDS)


@each("rule", RULES, ids=IDS)
def test_a_rule_accepts_one_strategy_and_refuses_another(rule):
    scenario, accepted, refused = PAIRS[rule.name]
    assert np.all(rule.passes(columns(accepted), scenario))
    assert not np.any(rule.passes(columns(refused), scenario))


FULLY = toy_scenario(stack=toy_stack(zero_stages=(0, 1, 2, 3), zero3_in_pipelines=True))
REPEATS = toy_scenario(model=toy_model(num_query_groups=4), stack=toy_stack(cp_kinds=CP_KINDS, repeats_key_values=True))
LAST = {"vpp": 5, "schedule": INTERLEAVED, "recompute": Recompute.FULL, "vocabulary": 0}


@each(
    ("name", "scenario", "row", "accepted"),
    [
        ("zero-pipeline", FULLY, {"pp": 2, "zero_stage": 1, "schedule": INTERLEAVED}, True),
        ("zero-pipeline", FULLY, {"pp": 2, "zero_stage": 2, "schedule": ONE_F_ONE_B}, False),
        ("zero-pipeline", FULLY, {"pp": 2, "zero_stage": 3, "schedule": ONE_F_ONE_B}, True),
        ("zero-pipeline", FULLY, {"pp": 2, "zero_stage": 3, "schedule": INTERLEAVED}, False),
        ("context-heads", REPEATS, {"tp": 2, "cp": 4, "cp_kind": A2A}, True),
        ("ends-as-layers", ENDS, LAST | {"vocabulary": 1}, False),
        ("adapters-schedule", EVEN, {"schedule": ZB_1P}, True),
        ("adapters-offload", EVEN, {"offload": OPTIMIZER}, True),
        ("adapters-modules", EVEN, {"recompute_modules": LAYERNORM}, True),
        ("ends-as-layers", ENDS, LAST | {"schedule": SCHEDULE_NAMES.index("zb-v")}, False),
    ],
)
def test_a_rule_with_several_conditions_asks_for_each(name, scenario, row, accepted):
    (rule,) = (rule for rule in RULES if rule.name == name)
    assert np.all(rule.passes(columns(row), scenario)) == accepted


def test_a_framework_that_balances_layers_has_a_stage_more_for_each_end():
    (rule,) = (rule for rule in RULES if rule.name == "layers")
    scenario = toy_scenario(stack=toy_stack(stage_cut="balanced", uneven_stages=True, ends_as_layers=True))
    assert rule.passes({"pp": np.arange(8, 12)}, scenario).tolist() == [True, True, True, False]


@each("rule", RULES, ids=IDS)
def test_a_rule_reads_no_more_than_it_says(rule):
    scenario, accepted, refused = PAIRS[rule.name]
    for row in (accepted, refused):
        read = {name: column for name, column in columns(row).items() if name in rule.reads}
        assert np.array_equal(rule.passes(read, scenario), rule.passes(columns(row), scenario))


@each("rule", RULES, ids=IDS)
def test_a_refusal_is_one_sentence_with_the_numbers_of_the_row(rule):
    scenario, _, refused = PAIRS[rule.name]
    words = sentence(rule, strategies(**refused).row(0), scenario)
    assert "\n" not in words
    assert "{" not in words
    assert words[0].islower() or words[0].isdigit() or words.startswith("ZeRO")
    assert rule.source


DEGREES = {
    "heads": "tp",
    "query-groups": "tp",
    "ffn": "tp",
    "experts-divide": "ep",
    "context-split": "cp",
    "sharding-divides": "sharding_degree",
}


@pytest.mark.parametrize(("name", "axis"), DEGREES.items())
def test_a_refusal_names_the_nearest_degrees_that_pass_its_rule_and_divide_the_gpus(name, axis):
    scenario, _, refused = PAIRS[name]
    rule = next(rule for rule in RULES if rule.name == name)
    says = sentence(rule, strategies(**refused).row(0), scenario)
    degrees = np.flatnonzero(scenario.gpus % np.arange(1, scenario.gpus + 1) == 0) + 1
    works = [degree for degree in degrees if np.all(rule.passes(columns(refused | {axis: degree}), scenario))]
    below, above = ([one for one in works if (one > refused[axis]) == larger] for larger in (False, True))
    assert [int(word) for word in says.rpartition("; ")[2].split() if word.isdigit()] == below[-1:] + above[:1]


@each(
    ("name", "asked", "near"),
    [
        ("batch-divides", {"dp": 4, "micro_batch_size": 3}, "the global batch of 16; 12 would"),
        ("batch-divides", {"dp": 8, "micro_batch_size": 3}, "the global batch of 16; 24 would"),
        ("experts-fold", {"tp": 2, "cp": 2, "dp": 2, "ep": 5}, "the tp 2 x cp 2 x dp 2 ranks of a stage; 4 and 8 do"),
    ],
)
def test_a_refusal_names_the_nearest_of_a_product_of_degrees(name, asked, near):
    rule = next(rule for rule in RULES if rule.name == name)
    assert sentence(rule, strategies(**asked).row(0), EVEN).endswith(near)


@each("rule", RULES, ids=IDS)
def test_a_rule_answers_for_columns_that_broadcast(rule):
    scenario, accepted, refused = PAIRS[rule.name]
    names = set(accepted) | set(refused)
    both = {name: np.array([accepted.get(name, refused.get(name)), refused.get(name)]) for name in names}
    rest = {name: column for name, column in columns(refused).items() if name not in both}
    tall = {name: column[:, None] for name, column in both.items()} | {n: c[None, :] for n, c in rest.items()}
    passes = np.broadcast_to(rule.passes(tall, scenario), (2, 1))
    assert not passes[1, 0]


def test_what_is_dominated_comes_back_when_its_axis_is_pinned():
    dominated = {rule.name for rule in RULES if rule.kind == "dominated"}
    assert {"gpipe", "selective", "rank-order"} <= dominated
    assert not dominated - {rule.name for rule in active(EVEN, frozenset())}
    kept = {
        rule.name
        for rule in active(EVEN, frozenset({"schedule", "recompute", "rank_order", "sharding_degree", "cp_kind"}))
    }
    assert not dominated & kept


@pytest.mark.parametrize("stages", [(0, 1), (0, 1, 2, 3)])
def test_zero_is_either_nothing_over_one_rank_or_something_over_more(stages):
    scenario = toy_scenario(stack=toy_stack(zero_stages=stages))
    rule = next(rule for rule in RULES if rule.name == "sharding")
    for stage in stages:
        for degree in (1, 2):
            row = columns({"zero_stage": stage, "sharding_degree": degree})
            assert bool(np.all(rule.passes(row, scenario))) == ((stage == 0) == (degree == 1))


def test_a_stack_with_gpipe_alone_may_use_it():
    only = toy_scenario(stack=toy_stack(schedules=("none", "gpipe")))
    row = columns({"pp": 2, "schedule": GPIPE})
    assert all(np.all(rule.passes(row, only)) for rule in RULES if "schedule" in rule.reads)


def test_one_stage_runs_without_a_schedule():
    rule = next(rule for rule in RULES if rule.name == "schedule")
    assert np.all(rule.passes(columns({"schedule": NONE}), EVEN))
    assert not np.any(rule.passes(columns({"schedule": ONE_F_ONE_B}), EVEN))
    assert np.all(rule.passes(columns({"pp": 2, "schedule": GPIPE}), FREE))


@pytest.mark.parametrize("row", [{"ep": 2}, {"etp": 2, "tp": 2}, {"ep": 2, "etp": 2, "tp": 2}])
def test_ranks_of_experts_need_experts(row):
    rule = next(rule for rule in RULES if rule.name == "experts")
    assert not np.any(rule.passes(columns(row), EVEN))
    assert np.all(rule.passes(columns(row), EXPERTS))


def test_an_expert_is_split_over_no_more_ranks_than_a_dense_matrix():
    rule = next(rule for rule in RULES if rule.name == "expert-width")
    assert np.all(rule.passes(columns({"tp": 4, "etp": 4}), EXPERTS))
    assert not np.any(rule.passes(columns({"tp": 2, "etp": 4}), EXPERTS))


def test_only_experts_force_sequence_parallelism():
    rule = next(rule for rule in RULES if rule.name == "experts-sequence")
    whole = columns({"tp": 4, "sequence_parallel": 0})
    assert np.all(rule.passes(whole, EVEN))
    assert not np.any(rule.passes(whole, EXPERTS))
    assert np.all(rule.passes(columns({"tp": 1, "sequence_parallel": 0}), EXPERTS))
