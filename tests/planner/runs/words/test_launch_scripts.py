"""What launch scripts say of measured runs whose pages do not."""

import pytest

from planner.runs.words.launch_scripts import WHOLE, as_launched
from planner.runs.words.loss_words import loss_changes


def deepseek(release="v25.05", device="h100-sxm", **plan):
    strategy = {"pp": 8, "tp": 2, "recompute": "selective"} | plan
    source = f"NVIDIA dgxc-benchmarking {release}, deepseek-v3 recipe README"
    return {
        "source": source, "cluster": {"accelerator": device}, "stack": {}, "model": {}, "strategy": strategy,
    }  # fmt: skip


def test_early_scripts_drop_tokens_train_a_further_token_and_deal_64_layers():
    row = as_launched(deepseek())
    assert row["model"]["mtp_layers"] == 1
    assert row["stack"]["flags"]["moe_capacity_factor"] == 1.0
    assert row["strategy"]["layers_per_stage"] == [7, 8, 8, 8, 8, 8, 8, 6]
    assert "layers_per_stage" not in as_launched(deepseek(pp=6))["strategy"]


@pytest.mark.parametrize(
    ("release", "device", "tp", "modules"),
    [
        ("v25.05", "h100-sxm", 2, "mla_up_proj"),
        ("v25.05", "gb200", 2, "core_attn"),
        ("v25.07", "b200", 2, "core_attn"),
        ("v25.07", "b200", 1, "core_attn, mla_up_proj"),
        ("v25.08", "h100-sxm", 2, "mla_up_proj mlp moe"),
        ("v25.08", "b200", 1, "mla_up_proj"),
    ],
)
def test_modules_that_are_recomputed_are_those_of_the_script(release, device, tp, modules):
    assert as_launched(deepseek(release, device, tp=tp))["strategy"]["recompute_detail"] == modules


def test_hopper_has_a_dispatcher_of_its_own_and_drops_nothing_from_v25_08_on():
    row = as_launched(deepseek("v25.08"))
    assert "deepep" in row["stack"]["notes"]
    assert "flags" not in row["stack"]
    assert as_launched(deepseek("v25.08", "b200"))["stack"]["flags"]["moe_capacity_factor"] == 1.0


def test_what_a_run_says_itself_is_kept_and_other_sources_are_left_alone():
    row = deepseek(layers_per_stage=[61])
    assert as_launched(row)["strategy"]["layers_per_stage"] == [61]
    assert as_launched(deepseek(recompute="full"))["strategy"].get("recompute_detail") is None
    other = row | {"source": "NVIDIA dgxc-benchmarking v25.05, nemotron4 recipe README"}
    assert as_launched(other) is other


@pytest.mark.parametrize(
    ("device", "precision", "plan", "offload"),
    [
        ("gb300", "fp8", {}, "activations of 20 layers"),
        ("gb200", "fp8", {}, "activations of 40 layers"),
        ("gb200", "mxfp8", {}, None),
        ("gb200", "fp8", {"zero_stage": 1}, None),
        ("gb200", "fp8", {"pp": 4}, None),
        ("gb200", "fp8", {"offload": "none"}, "none"),
    ],
)
def test_megatron_bridge_offloads_activations_of_some_layers_where_it_shards_fully(device, precision, plan, offload):
    row = {
        "source": "Megatron-Bridge docs performance-summary(-archive), container 26.02",
        "cluster": {"accelerator": device},
        "stack": {},
        "model": {"name": "LLAMA3-70B"},
        "strategy": {"pp": 1, "zero_stage": 3, "precision": precision} | plan,
    }
    assert as_launched(row)["strategy"].get("offload") == offload


TRILLIUM = "AI-Hypercomputer/tpu-recipes training/trillium recipe logs"


@pytest.mark.parametrize(("gpus", "note"), [(32, "bf16 weights and states"), (64, "bf16 (fp32 weights)")])
def test_the_smallest_slice_of_trillium_holds_llama_3_in_bf16(gpus, note):
    plan = {"gpus": gpus, "precision_note": "bf16 (fp32 weights)"}
    row = {"source": TRILLIUM, "cluster": {}, "stack": {}, "model": {"name": "LLAMA3-70B"}, "strategy": plan}
    assert as_launched(row)["strategy"]["precision_note"] == note


@pytest.mark.parametrize(("model", "tokens"), [("Gemma3-12B", 4096), ("Llama3.1-8B", None)])
def test_recipes_for_trillium_tile_the_logits_of_gemma_3(model, tokens):
    shape = {"name": model, "seq_length": 32768}
    row = {"source": TRILLIUM, "cluster": {}, "stack": {}, "model": shape, "strategy": {"micro_batch_size": 2}}
    assert loss_changes(row, "maxtext").get("loss_block") == tokens


@pytest.mark.parametrize(
    ("source", "model", "device", "replayed"),
    [
        ("Megatron-Bridge docs performance-summary(-archive), container 25.09", "Qwen3-30B-A3B", "b200", True),
        ("Megatron-Bridge docs performance-summary(-archive), container 25.09", "Qwen3-235B-A22B", "b200", False),
        ("Megatron-Bridge docs performance-summary(-archive), container 25.11", "Qwen3-30B-A3B", "b200", False),
        ("NVIDIA dgxc-benchmarking v25.05, nemotron4-340b recipe README", "Nemotron4-340B", "gb200", True),
        ("NVIDIA dgxc-benchmarking v25.05, nemotron4-340b recipe README", "Nemotron4-340B", "h100-sxm", False),
    ],
)
def test_graphs_that_recipes_replay_without_their_tables_saying_so_are_read_from_the_recipes(
    source, model, device, replayed
):
    row = {
        "source": source, "cluster": {"accelerator": device}, "stack": {}, "model": {"name": model}, "strategy": {},
    }  # fmt: skip
    assert (WHOLE in str(as_launched(row)["stack"].get("notes"))) is replayed
