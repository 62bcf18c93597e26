import pytest

from costmodels.stack.stack import stack
from planner.runs.words.overlap_words import accumulation_changes, denied, overlap_changes


def run(**flags):
    return {"stack": {"framework": "Megatron-LM v0.12", "flags": flags}}


def test_a_run_that_says_nothing_keeps_what_its_stack_hides():
    assert overlap_changes({"stack": {"flags": None}}) == {}
    assert overlap_changes(run(overlap_grad_reduce=True, overlap_param_gather=True)) == {}


@pytest.mark.parametrize(
    ("flag", "field", "other"),
    [("overlap_grad_reduce", "gradients", "parameters"), ("overlap_param_gather", "parameters", "gradients")],
)
def test_what_a_run_does_not_overlap_is_exposed_and_the_rest_stays(flag, field, other):
    changed = overlap_changes(run(**{flag: False}))
    assert changed[f"overlap.{field}"] is False
    assert f"overlap.{other}" not in changed


def test_gradients_that_hide_behind_nothing_travel_at_once():
    changes = overlap_changes(run(overlap_grad_reduce=False))
    assert changes["bucket_parameters"] == 0.0
    assert "bucket_parameters" not in overlap_changes(run(overlap_param_gather=False))


def test_gradients_that_no_product_adds_up_are_read_and_written_once_more():
    unsaid = run()
    assert accumulation_changes(unsaid) == {}
    changes = accumulation_changes(unsaid | {"notes": "no gradient-accumulation fusion"})
    assert changes["accumulate_traffic"] > 0
    assert not changes["idle_gradients"]


@pytest.mark.parametrize(
    ("framework", "model", "zero", "copied"),
    [
        ("Megatron-Bridge (NeMo 25.11.01 container), Megatron FSDP", "LLAMA3-70B", 3, {"state_copies": "gradients"}),
        ("Megatron-Bridge (NeMo 25.11.01 container)", "LLAMA3-70B", 1, {}),
        ("Megatron-Bridge (NeMo 26.08 container)", "nemotron3-ultra", 3, {}),
        ("Megatron-Core (FSDP)", "LLAMA3-70B", 3, {}),
    ],
)
def test_bridges_llama_copies_its_gradients_under_megatron_fsdp(framework, model, zero, copied):
    said = {"stack": {"framework": framework}, "model": {"name": model}, "strategy": {"zero_stage": zero}}
    assert accumulation_changes(said) == copied


def test_tensor_ranks_without_user_buffers_hide_what_megatron_core_hides_by_itself():
    changed = overlap_changes(run(tp_comm_overlap=False))
    plain = stack("megatron-core").overlap
    assert (changed["overlap.tp_forward"], changed["overlap.tp_backward"]) == (plain.tp_forward, plain.tp_backward)
    assert changed["overlap.tp_forward"] > stack("nemo").overlap.tp_forward
    assert "overlap.gradients" not in changed
    assert overlap_changes(run(tp_comm_overlap=True)) == {}


BRIDGE = {
    "source": "Megatron-Bridge docs performance-summary(-archive), container 26.04",
    "stack": {"framework": "Megatron-Bridge (NeMo 26.04 container)"},
    "model": {"kind": "dense", "hidden_size": 8192},
    "strategy": {"precision": "mxfp8"},
    "task": "pretrain",
}


def rings(**changes):
    changed = overlap_changes(BRIDGE | changes)
    return changed.get("overlap.rings", False)


def test_rings_are_of_recipes_that_were_read():
    assert rings()
    assert rings(source="NVIDIA dgxc-benchmarking v25.04, llama3.1-70b recipe README")
    assert rings(
        source="MLPerf Training v4.1 results repo, NVIDIA/results", model={"kind": "dense", "hidden_size": 12288}
    )


@pytest.mark.parametrize(
    "other",
    [
        {"source": "NVIDIA dgxc-benchmarking v25.02, llama3.1-70b recipe README"},
        {"source": "MLPerf Training v4.0 results repo, NVIDIA/results"},
        {"model": {"kind": "dense", "hidden_size": 6144}},
        {"model": {"kind": "moe", "hidden_size": 8192}},
        {"task": "sft"},
        {"strategy": {"precision": "nvfp4"}},
    ],
)
def test_rings_are_of_no_other(other):
    assert not rings(**other)


def test_recipes_in_nvfp4_turn_user_buffers_off():
    hidden = overlap_changes(BRIDGE | {"strategy": {"precision": "nvfp4"}})
    assert (hidden["overlap.tp_forward"], hidden["overlap.tp_backward"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("flags", "held"),
    [({"bucket_size": 768000000}, 768e6), ({"ddp_bucket_size": 40000000}, 40e6), ({"bucket_size": True}, None)],
)
def test_a_bucket_is_as_large_as_the_flags_say(flags, held):
    assert overlap_changes(run(**flags)).get("bucket_parameters") == held


BOTH = {"overlap_grad_reduce", "overlap_param_gather"}


@pytest.mark.parametrize(
    ("words", "off"),
    [
        ("no overlap", BOTH | {"tp_comm_overlap"}),
        ("no communication overlap; CUDA graphs", BOTH | {"tp_comm_overlap"}),
        ("overlap: off", BOTH | {"tp_comm_overlap"}),
        ("no overlap of gradient reduction or parameter gather; CUDA graphs", BOTH),
        ("without gradient overlap", {"overlap_grad_reduce"}),
        ("overlap_grad_reduce=False", {"overlap_grad_reduce"}),
        ("TP overlap disabled", {"tp_comm_overlap"}),
        ("grad reduce + param gather overlap; no TP comm overlap", {"tp_comm_overlap"}),
    ],
)
def test_words_on_overlap_say_what_is_not_hidden(words, off):
    assert denied({"stack": {"overlap": words}}) == dict.fromkeys(off, False)


@pytest.mark.parametrize(
    "words",
    ["TP comm overlap; grad/param overlap", "none", "param gather overlap; no p2p overlap", "EP A2A overlap",
     "no gradient accumulation fusion; gradient overlap", "no recompute; gradient overlap", "no CUDA graphs"],
)  # fmt: skip
def test_words_that_deny_other_things_leave_traffic_hidden(words):
    assert denied({"stack": {"overlap": words}}) == {}


def test_a_flag_counts_before_the_words_on_overlap():
    said = {"stack": {"overlap": "no overlap", "flags": {"overlap_grad_reduce": True}}}
    hidden = overlap_changes(said)
    assert (hidden.get("overlap.gradients"), hidden["overlap.parameters"]) == (None, False)
