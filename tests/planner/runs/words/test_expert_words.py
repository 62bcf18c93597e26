"""What the words of a measured run say of its experts."""

import pytest

from costmodels.model.catalogue import model as catalogued
from costmodels.model.model import Model
from costmodels.stack.stack import stack
from planner.errors import BadRequest
from planner.runs.words.expert_words import COMBINED, UNITS, expert_changes
from planner.runs.words.loss_words import COMPILED, FUSED, NATIVE, loss_changes
from planner.runs.words.mapping import case
from tests.planner.measured_run import run

CONTAINER = "Megatron-Bridge (NeMo 26.04 container)"
GPT_OSS = {
    "name": "GPT-OSS-120B", "kind": "moe", "num_layers": 36, "hidden_size": 2880, "num_heads": 64,
    "num_query_groups": 8, "head_dim": 64, "ffn_hidden_size": 2880, "gated_ffn": True, "vocab_size": 201088,
    "seq_length": 4096, "params_b": 117, "experts": 128, "top_k": 4, "expert_ffn": 2880, "shared_experts": 0,
}  # fmt: skip


def said(framework=CONTAINER, notes=None, flags=None, **words):
    row = {"stack": {"framework": framework, "flags": flags, **words}, "notes": notes}
    return expert_changes(row)


def test_parts_of_a_layer_in_graphs_are_named_and_anything_else_is_the_whole_iteration():
    scope = "cuda graphs transformer_engine scope=['moe_router', 'moe_preprocess']"
    assert said(overlap=scope)["graphs"] == ("moe_router", "moe_preprocess")
    assert said(overlap="none; CUDA graphs moe_router,moe_preprocess")["graphs"] == ("moe_router", "moe_preprocess")
    assert not said(overlap=scope)["cuda_graphs"]
    assert said(overlap="cuda graphs full_iteration scope=[]")["cuda_graphs"]
    assert "graphs" not in said()


def test_experts_are_fused_where_a_whole_iteration_of_dropless_tokens_is_captured():
    assert said(overlap="cuda graphs full_iteration scope=[]")["fused_experts"]
    assert not said(overlap="cuda graphs transformer_engine scope=['attn']")["fused_experts"]


@pytest.mark.parametrize(
    ("framework", "overlap", "dispatch"),
    [
        (CONTAINER, "dispatcher=hybridep", "once-per-domain"),
        ("NeMo AutoModel (PyTorch FSDP2)", "TE + DeepEP", "once-per-domain"),
        (CONTAINER, None, "every-copy"),
        ("NeMo 2.0", None, "every-copy"),
        ("Megatron-Bridge", None, None),
        ("MaxText (JAX)", None, None),
    ],
)
def test_a_release_that_names_no_dispatcher_exchanges_every_copy(framework, overlap, dispatch):
    assert said(framework, overlap=overlap).get("dispatch") == dispatch


@pytest.mark.parametrize(("words", "gathered"), [("dispatcher=hybridep", True), ("TE + DeepEP", False), ("", None)])
def test_hybridep_and_no_other_dispatcher_gathers_the_map_of_tokens_to_experts(words, gathered):
    assert said(overlap=words).get("gathered_routes") is gathered


@pytest.mark.parametrize("graphs", ["", "; cuda graphs full_iteration scope=[]"])
def test_overlapped_traffic_of_experts_takes_the_units_that_dispatch_takes(graphs):
    assert said(overlap="dispatcher=deepep; EP A2A 1F1B overlap" + graphs)["overlap.ep"] == UNITS
    assert said()["overlap.ep"] == 1.0
    assert "overlap.ep" not in said("Megatron-Bridge")
    assert stack("nemo-26.06").overlap.ep == pytest.approx(UNITS, rel=1e-3)


def test_passes_run_beside_another_micro_batch_part_by_part_cost_the_host_more():
    assert said(overlap="dispatcher=deepep; EP A2A 1F1B overlap")["combined_launches"] == COMBINED
    assert "combined_launches" not in said(overlap="dispatcher=deepep")


def test_shared_experts_run_beside_the_dispatch_where_a_flag_says_so():
    assert said(flags={"moe_shared_expert_overlap": True})["shared_expert_overlap"]
    assert "shared_expert_overlap" not in said()


def test_a_release_of_recipes_lists_what_is_on_and_others_leave_it_to_their_stack():
    assert (said()["cuda_graphs"], said()["fused_experts"]) == (False, False)
    assert "cuda_graphs" not in said("MaxText (JAX)")


def test_forced_balance_and_capacity_are_read_from_notes_and_flags():
    assert said(notes="expert load force-balanced")["expert_imbalance"] == 1.0
    both = said(notes="expert load force-balanced (see tokendrop/dropless in model note); tokendrop")
    assert both["expert_capacity"] == 1.0
    assert "expert_capacity" not in said(notes="expert load force-balanced (see tokendrop/dropless in model note)")
    padded = {"moe_capacity_factor": 1.5, "moe_pad_expert_input_to_capacity": True}
    assert said(flags=padded)["expert_capacity"] == 1.5


def test_a_run_of_a_catalogue_model_takes_the_switches_that_its_source_leaves_out():
    named = case(run(model=GPT_OSS, strategy={"gpus": 16, "ep": 4})).scenario.model
    assert named.ffn_bias
    assert named.clamped_activation
    assert named.attention_sinks
    other = case(run(model=GPT_OSS | {"num_layers": 12, "params_b": None}, strategy={"gpus": 16, "ep": 4}))
    assert not other.scenario.model.clamped_activation


def test_a_run_of_a_catalogue_model_routes_as_that_does():
    shape = {
        "name": "DeepSeek-V3-671B",
        "kind": "moe",
        "num_layers": 61,
        "hidden_size": 7168,
        "num_heads": 128,
        "num_query_groups": 128,
        "ffn_hidden_size": 18432,
        "gated_ffn": True,
        "vocab_size": 129280,
        "seq_length": 4096,
        "experts": 256,
        "top_k": 8,
        "expert_ffn": 2048,
        "shared_experts": 1,
        "dense_layers": 3,
        "mla": {"q_lora": 1536, "kv_lora": 512, "qk_nope": 128, "qk_rope": 64, "v": 128},
    }

    def routed(**changes):
        return case(run(model=shape | changes, strategy={"gpus": 16, "ep": 4})).scenario.model.moe

    moe = routed()
    assert (moe.router_groups, moe.router_group_top_k, moe.router_bias) == (8, 4, True)
    assert routed(router_groups=8) == moe
    fewer = routed(top_k=6)
    assert (fewer.router_groups, fewer.router_bias) == (1, False)


def test_norms_of_queries_and_keys_come_from_the_catalogue_unless_they_are_said():
    shape = {
        "name": "Qwen3-30B-A3B",
        "kind": "moe",
        "num_layers": 48,
        "hidden_size": 2048,
        "num_heads": 32,
        "num_query_groups": 4,
        "head_dim": 128,
        "ffn_hidden_size": 6144,
        "gated_ffn": True,
        "vocab_size": 151936,
        "seq_length": 4096,
        "experts": 128,
        "top_k": 8,
        "expert_ffn": 768,
    }

    def model(**changes):
        return case(run(model=shape | changes, strategy={"gpus": 16, "ep": 4})).scenario.model

    assert model().qk_norm == "head"
    assert model(qk_layernorm=False).qk_norm == "none"
    assert model(name="somebody-else").qk_norm == "none"


def test_positions_and_activation_come_from_the_catalogue_and_make_a_whole_model():
    shape = {
        "name": "Nemotron4-15B",
        "kind": "dense",
        "num_layers": 32,
        "hidden_size": 6144,
        "num_heads": 48,
        "num_query_groups": 8,
        "ffn_hidden_size": 24576,
        "gated_ffn": False,
        "vocab_size": 256000,
        "seq_length": 4096,
        "tied_embeddings": None,
        "position": None,
    }

    def model(**changes):
        return case(run(model=shape | changes, strategy={"gpus": 16})).scenario.model

    found, known = model(), catalogued("nemotron4-15b")
    for field in ("position", "rotary_fraction", "max_positions", "activation", "norm"):
        assert getattr(found, field) == getattr(known, field), field
    assert Model.model_validate(found.model_dump()) == found
    assert model(position="learned").max_positions == 4096
    assert model(activation="gelu").activation == "gelu"
    assert model(gated_ffn=True).activation == "swiglu", "another model under the name"


def test_cross_entropy_is_megatron_s_own_before_megatron_bridge():
    machine = {"cluster": {"accelerator": "h100-sxm"}}
    assert loss_changes({"stack": {"framework": "NeMo"}, **machine}, "nemo") == {"cross_entropy_traffic": NATIVE}
    assert loss_changes({"stack": {"framework": CONTAINER}, **machine}, "nemo") == {}
    assert loss_changes({"stack": {"framework": "Megatron-Core 0.9"}, **machine}, "megatron-core") == {}


@pytest.mark.parametrize(
    ("framework", "source", "traffic"),
    [
        ("NeMo 2.0", "a page", COMPILED),
        ("NeMo", "NVIDIA dgxc-benchmarking v24.11.1, llama3.1-70b recipe README", COMPILED),
        ("NeMo", "NVIDIA dgxc-benchmarking v24.11.1, gpt3-175b recipe README", NATIVE),
        ("NeMo", "NVIDIA dgxc-benchmarking v25.04, grok1 recipe README", NATIVE),
    ],
)
def test_recipes_that_compile_their_loss_move_less(framework, source, traffic):
    row = {"stack": {"framework": framework}, "source": source, "cluster": {"accelerator": "h100-sxm"}}
    assert loss_changes(row, "nemo") == {"cross_entropy_traffic": traffic}


def test_a_flag_names_the_cross_entropy_of_a_run():
    def traffic(kind):
        row = {"stack": {"framework": "Megatron-LM core 0.14", "flags": {"cross_entropy_fusion": kind}}}
        return loss_changes(row | {"cluster": {"accelerator": "b200"}}, "megatron-core").get("cross_entropy_traffic")

    assert traffic("te") == stack("nemo").logits.cross_entropy_traffic == FUSED
    assert traffic("none") is None


@pytest.mark.parametrize(
    ("notes", "capacity"),
    [
        ("token dropping, capacity factor 1", 1.0),
        ("token-drop; capacity factor of 1.25", 1.25),
        ("force-balanced (see tokendrop/dropless in model note); tokendrop", 1.0),
        ("force-balanced (see tokendrop/dropless in model note); dropless", None),
        ("dropless tokens", None),
    ],
)
def test_tokens_beyond_a_capacity_are_dropped_where_notes_name_it(notes, capacity):
    assert said(notes=notes).get("expert_capacity") == capacity


@pytest.mark.parametrize("factor", ["0", "0.0", "99999"])
def test_a_capacity_that_no_stack_has_is_refused_not_priced(factor):
    with pytest.raises(BadRequest, match=r"capacity factor .*: expected above 0 and at most 1000"):
        said(notes=f"capacity factor {factor}")
    with pytest.raises(BadRequest, match="expected above 0"):
        said(flags={"moe_capacity_factor": -1.0, "moe_pad_expert_input_to_capacity": True})
