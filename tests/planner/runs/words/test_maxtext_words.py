"""What MaxText was when its tables of 2023 were measured."""

import pytest

from costmodels.stack.stack import stack as find_stack
from costmodels.strategy import Recompute
from planner.runs.rows import convention
from planner.runs.words.mapping import case
from planner.runs.words.maxtext_words import as_programmed, counted
from tests.planner.measured_run import run

TABLE = "MaxText tpu configuration READMEs and scripts (AI-Hypercomputer/maxtext)"


def tabled(device="tpu-v5e", name="MaxText 32B", **strategy):
    plan = {
        "gpus": 256, "tp": 1, "pp": 1, "vpp": 1, "dp": 256, "sharding_degree": 256, "zero_stage": 3, "schedule": "none",
        "sequence_parallel": False, "global_batch_size": 512,
    } | strategy  # fmt: skip
    return run(
        source=TABLE,
        cluster={"accelerator": device, "gpus_per_node": 8, "inter_node": "ICI inside a slice"},
        stack={"framework": "MaxText (JAX/XLA)"},
        model={"name": name, "gated_ffn": True, "vocab_size": 32_000, "num_heads": 64},
        strategy=plan,
        measured={"flops_convention": "model (6N plus attention) per chip"},
    )


@pytest.mark.parametrize(("name", "billions"), [("16B", 16.3), ("32B", 32.5), ("64B", 64.8), ("128B", 129.2)])
def test_the_scale_doubles_the_sizes_of_its_base_configuration_in_turn(name, billions):
    model = case(tabled(name=f"MaxText {name}")).scenario.model
    assert model.parallel_block
    assert model.head_dim == 256
    parameters = model.num_layers * (4 * model.hidden_size * model.attention_width)
    parameters += model.num_layers * 2 * model.hidden_size * model.ffn_hidden_size + 32_768 * model.hidden_size
    assert parameters / 1e9 == pytest.approx(billions, abs=0.1)


def test_tensor_ranks_split_the_hidden_states_between_layers():
    rows = case(tabled(name="MaxText 128B", tp=16, dp=16, sharding_degree=16, recompute="selective")).rows
    assert rows.sequence_parallel[0] == 1
    assert rows.recompute[0] == Recompute.FULL


def test_the_table_of_tpu_v4_is_older_than_fused_attention_and_counts_six_n():
    early, later = tabled("tpu-v4", "MaxText 22B"), tabled()
    assert as_programmed(early)["stack"]["attention"] is False
    assert as_programmed(later)["stack"]["attention"] is True
    assert (convention(early), convention(later)) == ("6N", "model-causal")


def test_its_later_recipes_and_other_frameworks_are_as_they_say():
    row = run(source="AI-Hypercomputer/tpu-recipes training/trillium recipe logs")
    assert as_programmed(row) is row
    assert counted(row) is None


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"recompute_detail": "remat policy minimal"}, "products"),
        ({"recompute_detail": "remat policy minimal_flash"}, "up-projections"),
        ({"recompute_detail": "remat policy save_dot_with_context_except_mlp"}, "feed-forward"),
        ({"recompute_detail": "layer inputs, QKV and attention output offloaded"}, "attention-products"),
        ({"recompute_detail": "layer inputs and QKV offloaded, rest recomputed"}, "projections"),
    ],
)
def test_a_policy_is_known_by_what_it_keeps(said, kind):
    row = tabled("tpu-v6e", recompute="selective", **said) | {"source": "AI-Hypercomputer/tpu-recipes"}
    assert case(row).scenario.stack.switches.recompute_policy == kind


@pytest.mark.parametrize(("release", "kind"), [("v24.11.1", "attention-products"), ("v25.02", "projections")])
def test_the_custom_policy_of_nvidias_recipe_changed_with_its_release(release, kind):
    row = tabled("h100-sxm", recompute="selective", recompute_detail="MaxText custom remat policy")
    row |= {"source": f"NVIDIA dgxc-benchmarking {release}, maxtext recipe README"}
    assert case(row).scenario.stack.switches.recompute_policy == kind


def test_the_trillium_recipe_of_mixtral_drops_tokens_and_multiplies_with_masks():
    row = tabled("tpu-v6e", "Mixtral-8x7B") | {"source": "AI-Hypercomputer/tpu-recipes training/trillium recipe logs"}
    stack = case(row).scenario.stack
    assert (stack.switches.expert_capacity, stack.experts.dispatch_masks) == (1.25, True)
    assert not case(row | {"source": "AI-Hypercomputer/tpu-recipes training/v5p"}).scenario.stack.experts.dispatch_masks


@pytest.mark.parametrize(
    ("name", "kernel"), [("LLAMA3-8B", "splash"), ("GPT3-175B", "splash-two-pass"), ("Gemma3-12B", "splash-two-pass")]
)
def test_a_trillium_recipe_attends_backwards_in_one_kernel_only_where_it_asks_for_it(name, kernel):
    row = tabled("tpu-v6e", name) | {"source": "AI-Hypercomputer/tpu-recipes training/trillium recipe logs"}
    row["stack"]["attention"] = True
    assert case(row).scenario.rates.attention_name == kernel


def test_alpa_hides_no_collective():
    row = tabled("v100-sxm2-16gb") | {"source": "alpa-projects/alpa"}
    row["stack"]["framework"] = "Alpa (JAX/XLA)"
    found = case(row).scenario.stack
    hidden = found.overlap
    assert not found.switches.overlap_grad_reduce
    assert hidden.tp_forward == hidden.tp_backward == 1.0


def test_pods_of_pathways_meet_once_an_iteration():
    row = tabled("tpu-v4")
    assert not case(row).scenario.stack.sharding.replicas_reduce_once
    row["stack"]["framework"] = "Pathways / T5X (JAX)"
    assert case(row).scenario.stack.sharding.replicas_reduce_once


def test_a_policy_by_its_name_names_no_modules():
    row = tabled("tpu-v5p", recompute="selective", recompute_detail="core_attn mlp") | {"source": "MaxText tiering.md"}
    found = case(row | {"filled": ["recompute: policy save_dot_except_mlpwi"]})
    assert found.scenario.stack.switches.recompute_policy == "attention-products"
    assert not found.rows.recompute_modules[0]
    assert case(row).rows.recompute_modules[0]


def test_slices_meet_over_the_network_outside_the_torus():
    row = tabled("tpu-v5p", gpus=512, dp=512, global_batch_size=1024)
    row["stack"]["notes"] = "FSDP over 256 shards per slice, plain data parallel across 2 slice(s)"
    assert case(row).scenario.group.tiers[0].domain == 256
    row["stack"]["notes"] = "FSDP over 512 shards"
    assert case(row).scenario.group.tiers[0].domain == 512


def test_the_stack_of_these_runs_is_maxtext():
    assert case(tabled()).scenario.stack.name == find_stack("maxtext").name
