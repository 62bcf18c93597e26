"""What a measured run says of its own kernels, formats and stages changes the stack that it is priced under."""

import pytest

from costmodels.pricing import quote
from costmodels.stack.stack import stack as find_stack
from costmodels.strategy import CP_KINDS
from hardware.catalogue import accelerator
from planner.runs.words.aleph import stage_layers
from planner.runs.words.frameworks import changes
from planner.runs.words.mapping import case
from tests.planner.measured_run import run


def test_gradients_said_to_be_reduced_in_fp32_cost_twice_the_traffic():
    plain = case(run(stack={"framework": "DeepSpeed 3D (Megatron v1.1.5)"}, strategy={"precision": "fp16"}))
    said = {"precision": "fp16", "precision_note": "fp16 with fp32 gradient all-reduce"}
    wide = case(run(stack={"framework": "DeepSpeed 3D (Megatron v1.1.5)"}, strategy=said))
    assert wide.scenario.stack.gradients.reduce_bytes == 2 * plain.scenario.stack.gradients.reduce_bytes == 4


@pytest.mark.parametrize(
    ("framework", "fused"),
    [
        ("DeepSpeed 3D (Megatron v1.1.5)", False),
        ("DeepSpeedExamples Megatron v1.1.5 ZeRO-3", False),
        ("Megatron-DeepSpeed 3D (June-July 2021 branch)", True),
    ],
)
def test_deepspeeds_examples_run_without_the_fused_kernels_that_they_have(framework, fused):
    stack = case(run(stack={"framework": framework})).scenario.stack
    assert (stack.switches.fused_elementwise, stack.switches.fused_softmax) == (fused, fused)


@pytest.mark.parametrize(
    ("framework", "source", "gated", "passes", "around"),
    [
        ("FlagScale (Megatron-LM, 2023)", "", True, 6.0, (4.0, 16.0)),
        ("Megatron-LM", "a log of 2023-10", False, 6.0, (0.0, 0.0)),
        ("Megatron-LM", "a log of 2023-11", True, 1.0, (0.0, 0.0)),
        ("Megatron-LM", "", True, 1.0, (0.0, 0.0)),
        ("NeMo 23.08", "a log of 2023-10", True, 1.0, (0.0, 0.0)),
    ],
)
def test_megatron_turns_and_gates_by_separate_operators_before_november_2023(framework, source, gated, passes, around):
    found = changes(
        run(source=source, stack={"framework": framework}, model={"gated_ffn": gated}), find_stack("megatron-core")
    )
    assert (found.get("rotary_passes", 1.0), found.get("around_activation", (0.0, 0.0))) == (passes, around)
    assert ("gate" in found["keeps"]) == (around != (0.0, 0.0))


def test_sums_of_gradients_are_fp32_where_a_framework_adds_up_bf16_so_and_travel_in_bf16():
    said = {"framework": "Megatron-DeepSpeed"}
    at = {p: case(run(stack=said, strategy={"precision": p})).scenario.stack for p in ("fp16", "bf16")}
    assert {p: (s.gradients.gradient_bytes, s.gradients.reduce_bytes) for p, s in at.items()} == {
        "fp16": (2, 2),
        "bf16": (4, 2),
    }


@pytest.mark.parametrize(
    ("source", "precision", "sent"),
    [
        ("a log of 2023-04", "bf16", 4),
        ("a log of 2023-06", "bf16", 2),
        ("a log of 2023-04", "fp16", 2),
        ("MLPerf Training v3.0 results repo", "bf16", 4),
    ],
)
def test_deepspeed_sends_sums_of_bf16_gradients_in_fp32_before_may_2023(source, precision, sent):
    row = run(source=source, stack={"framework": "Megatron-DeepSpeed"}, strategy={"precision": precision})
    assert case(row).scenario.stack.gradients.reduce_bytes == sent


@pytest.mark.parametrize(
    ("overlap", "precision", "fused"),
    [
        ("torch.compile", "bf16", True),
        ("no torch.compile", "fp8", False),
        (None, "bf16", False),
        ("eager", "fp8", False),
        (None, "fp8", True),
    ],
)
def test_torchtitan_fuses_what_it_compiles_and_compiles_reduced_precision_unless_said_otherwise(
    overlap, precision, fused
):
    row = run(stack={"framework": "torchtitan", "overlap": overlap}, strategy={"precision": precision})
    assert case(row).scenario.stack.switches.fused_elementwise is fused


@pytest.mark.parametrize(("notes", "fused"), [("torch 2.5; eager", False), ("eager attention, torch 2.5", True)])
def test_notes_say_that_a_run_is_eager_unless_they_speak_of_its_attention(notes, fused):
    row = run(stack={"framework": "torchtitan", "notes": notes}, strategy={"precision": "fp8"})
    assert case(row).scenario.stack.switches.fused_elementwise is fused


@pytest.mark.parametrize(("overlap", "kernels"), [("eager", 36), ("torch.compile", 18)])
def test_torchtitan_runs_twice_as_many_kernels_where_nothing_joins_them(overlap, kernels):
    row = run(stack={"framework": "torchtitan", "overlap": overlap})
    assert case(row).scenario.stack.host.kernels_per_layer == kernels


@pytest.mark.parametrize(
    ("framework", "overlap"),
    [("PyTorch FSDP1 + torch.compile", None), ("NeMo AutoModel (PyTorch FSDP2)", "TE + fsdp2_prefetch")],
)
def test_a_compiler_or_a_library_of_kernels_fuses_whatever_field_names_it(framework, overlap):
    assert case(run(stack={"framework": framework, "overlap": overlap})).scenario.stack.switches.fused_elementwise


def test_torchtitan_steps_in_many_passes_before_2025():
    words = {"framework": "torchtitan", "overlap": "torch.compile"}
    before, since = (case(run(source=f"benchmarks/llama3_h100_{at}", stack=words)) for at in ("202412", "202506"))
    assert before.scenario.stack.states.optimizer_traffic > 2 * since.scenario.stack.states.optimizer_traffic


@pytest.mark.parametrize(("said", "narrow"), [("fp8", True), ("fp8-rowwise", False), ("bf16", False)])
def test_torchtitan_gathers_8_bits_over_tensor_ranks_under_one_scale_a_tensor(said, narrow):
    precision = {"precision": said[:4].rstrip("-"), "precision_note": said}
    assert (
        case(run(stack={"framework": "torchtitan"}, strategy=precision)).scenario.stack.exchange.fp8_tensor_gather
        is narrow
    )


@pytest.mark.parametrize(("pp", "held"), [(2, [11, 5]), (4, [6, 5, 5, 0])])
def test_nanotron_fills_its_stages_past_their_share_and_counts_the_head(pp, held):
    # a layer has 4 h^2 + 3 f h = 16 h^2 weights here, the head 64 h^2, as much as four layers
    sizes = {"num_layers": 16, "hidden_size": 2048, "ffn_hidden_size": 8192, "vocab_size": 131072, "gated_ffn": True}
    plan = {"tp": 1, "pp": pp, "vpp": 1, "dp": 16 // pp, "sharding_degree": 16 // pp, "schedule": "1f1b"}
    found = case(run(stack={"framework": "nanotron v0.5"}, model=sizes, strategy=plan))
    assert found.assignment.layers.tolist() == held


def test_a_run_that_shards_further_than_its_stack_is_priced_as_sharded():
    plan = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "sharding_degree": 16, "schedule": "none", "micro_batch_size": 1}
    first, third = (case(run(strategy=plan | {"zero_stage": stage})) for stage in (1, 3))
    assert 3 in third.scenario.stack.supports.zero_stages
    traffic = [quote(one.rows, one.scenario, one.assignment).breakdown["dp"] for one in (first, third)]
    assert traffic[1] > traffic[0]


def test_async_tensor_parallelism_hides_part_of_its_traffic():
    words = {"framework": "torchtitan", "overlap": "torch.compile"}
    plain = case(run(stack=words)).scenario.stack.overlap
    hidden = case(run(stack={**words, "overlap": "torch.compile; async TP"})).scenario.stack.overlap
    assert hidden.tp_forward < plain.tp_forward
    assert hidden.tp_backward < plain.tp_backward


def test_async_tensor_parallelism_leaves_gathers_whole_under_scales_by_rows():
    words = {"framework": "torchtitan", "overlap": "torch.compile; async TP"}
    rows, tensors = (
        case(run(stack=words, strategy={"precision": "fp8", "precision_note": note})).scenario.stack.overlap
        for note in ("fp8-rowwise", "fp8-tensorwise")
    )
    assert (tensors.tp_forward, rows.tp_forward) == (0.5, 0.75)


@pytest.mark.parametrize(
    ("source", "note", "narrow"),
    [
        ("pytorch/ao float8 tables", "fp8 + torch.compile", False),
        ("pytorch/ao float8 tables", "fp8 tensorwise (fp8 all-gather)", True),
        ("torchtitan docs", "fp8", True),
        ("torchtitan docs", "fp8 tensorwise (bf16 all-gather)", False),
    ],
)
def test_torchaos_tables_gather_in_8_bits_where_they_say_so_and_torchtitans_unless_they_deny_it(source, note, narrow):
    precision = {"precision": "fp8", "precision_note": note}
    found = case(run(source=source, stack={"framework": "torchtitan"}, strategy=precision)).scenario.stack
    assert found.switches.fp8_param_gather is narrow


LLAMA_13B = {
    "num_layers": 40,
    "hidden_size": 5120,
    "num_heads": 40,
    "num_query_groups": 40,
    "ffn_hidden_size": 13824,
    "gated_ffn": True,
    "vocab_size": 128_000,
    "tied_embeddings": False,
}


@pytest.mark.parametrize(("pp", "held"), [(2, [20, 20]), (4, [9, 11, 11, 9])])
def test_stages_of_aleph_alphas_framework_are_balanced_by_parameters(pp, held):
    plan = {"gpus": 8 * pp, "pp": pp, "vpp": 1, "schedule": "1f1b"}
    one = case(run(stack={"framework": "Aleph Alpha scaling"}, model=LLAMA_13B, strategy=plan))
    assert list(one.assignment.layers) == held


def test_more_stages_than_layers_leave_some_without():
    one = case(run(stack={"framework": "Aleph Alpha scaling"}, model=LLAMA_13B | {"num_layers": 2}))
    held = stage_layers(one.scenario.model, 8)
    assert (len(held), sum(held), min(held)) == (8, 2, 0)


@pytest.mark.parametrize(
    ("said", "machine", "kernel"),
    [
        ("v4", "b200", "cudnn"),
        ("FlashAttention-3", "h100-sxm", "flash-3"),
        ("fa2", "a100-sxm-80gb", "flash-2"),
        ("v1 (Triton or CUDA)", "a100-sxm-80gb", "triton"),
    ],
)
def test_a_release_of_flash_attention_is_known_however_it_is_written(said, machine, kernel):
    words = {"framework": "HF Transformers + DeepSpeed", "attention": said}
    assert case(run(stack=words, cluster={"accelerator": machine})).scenario.rates.attention_name == kernel


def test_kempnerforge_attends_with_cudnn_on_hopper_as_its_profile_shows():
    words = {"framework": "KempnerForge (PyTorch FSDP2/DTensor)", "attention": True}
    assert case(run(stack=words, cluster={"accelerator": "h200-sxm"})).scenario.rates.attention_name == "cudnn"


def test_kempnerforge_gathers_for_every_micro_batch_of_a_pipeline_and_torchtitan_once():
    said = ("KempnerForge (PyTorch FSDP2/DTensor)", "torchtitan")
    stacks = [case(run(stack={"framework": words})).scenario.stack for words in said]
    assert [stack.sharding.pipeline_keeps_gathered for stack in stacks] == [True, True]
    assert [stack.sharding.pipeline_reshards for stack in stacks] == [True, False]


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm"])
def test_triton_s_flash_attention_gains_above_all_in_its_forward_pass(name):
    cuda, triton = (accelerator(name).kernels.attention[kernel] for kernel in ("flash-1", "triton"))
    assert triton.efficiency > 1.5 * cuda.efficiency
    rates = [fit.efficiency * fit.backward_efficiency_ratio for fit in (cuda, triton)]
    assert rates[1] == pytest.approx(1.034 * rates[0], rel=0.015)  # told on A100 under its rate of 1.034, within 1.5 %


def test_plain_pytorch_attends_with_cudnn_on_blackwell():
    words = {"framework": "HF Transformers + DeepSpeed", "attention": True}
    kernels = {
        machine: case(run(stack=words, cluster={"accelerator": machine})).scenario.rates.attention_name
        for machine in ("b200", "h100-sxm")
    }
    assert kernels == {"b200": "cudnn", "h100-sxm": "flash-2"}


@pytest.mark.parametrize("notes", ["chunked_nll loss", "loss in eight chunks", "cut cross-entropy"])
def test_a_loss_by_blocks_of_tokens_never_holds_all_logits(notes):
    assert case(run(stack={"framework": "torchtune", "notes": notes})).scenario.stack.switches.loss == "fused"


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("bf16 weights and states", ("adam-bf16", 8)),
        ("fp16 weights, gradients and AdamW states, no master copy", ("adam-bf16", 8)),
        ("parameters, gradients and Adam moments in bf16", ("adam-bf16", 8)),
        ("Muon for the layers", ("muon", 12)),
        ("AdamW8bit, paged", ("adam-8bit", 12)),
        ("pure bf16", ("adam-bf16", 8)),
        ("bf16-true", ("adam-bf16", 8)),
        ("purely bf16 GEMMs", ("adam", 12)),
        ("bf16-mixed", ("adam", 12)),
        ("bf16", ("adam", 12)),
    ],
)
def test_words_on_states_name_the_optimizer_and_its_bytes(words, changed):
    stack = case(run(stack={"framework": "torchtitan"}, strategy={"precision_note": words})).scenario.stack
    assert (stack.switches.optimizer, stack.states.optimizer_bytes) == changed


@pytest.mark.parametrize(
    ("framework", "precision", "stage"),
    [("Megatron-DeepSpeed", "bf16", 1), ("Megatron-DeepSpeed", "fp16", 0), ("Megatron-LM", "bf16", 0)],
)
def test_deepspeed_shards_the_states_of_bf16_at_any_stage(framework, precision, stage):
    row = run(stack={"framework": framework}, strategy={"precision": precision, "zero_stage": 0})
    assert case(row).rows.zero_stage[0] == stage


def test_llm_c_writes_gradients_over_its_logits():
    stack = case(run(stack={"framework": "llm.c (C/CUDA)"})).scenario.stack
    assert (stack.logits.cross_entropy_traffic, stack.logits.cross_entropy_bytes) == (6, 2)


def test_ligers_kernels_fuse_the_loss_and_what_transformers_write_out():
    plain, liger = (
        case(run(stack={"framework": f"HF Transformers + DeepSpeed{more}", "attention": "v2"})).scenario.stack
        for more in ("", ", Liger")
    )
    assert (plain.switches.loss, plain.switches.fused_elementwise, plain.kernels.saved_tensors) == (
        "plain",
        False,
        ("gate", "norm"),
    )
    assert (liger.switches.loss, liger.switches.fused_elementwise, liger.kernels.saved_tensors) == ("fused", True, ())


def test_a_run_that_says_its_norms_are_not_fused_pays_for_it():
    words = {"framework": "PaddleNLP"}
    fused, apart = (case(run(stack=words | {"notes": n})) for n in ("", "use_fused_rms_norm off"))
    times = [quote(one.rows, one.scenario, one.assignment).iteration for one in (fused, apart)]
    assert times[1] > times[0]


def test_delayed_scaling_is_taken_as_said_where_pytorch_scales_anew():
    said = {"precision": "fp8", "precision_note": "Transformer Engine, delayed scaling"}
    found = [case(run(stack={"framework": "Composer FSDP"}, strategy=s)) for s in ({"precision": "fp8"}, said)]
    assert [one.scenario.precision for one in found] == ["fp8-current", "fp8"]


@pytest.mark.parametrize(
    ("said", "kind"), [("ring", "p2p"), ("Ring attention", "p2p"), ("Ulysses", "a2a"), ("allgather", "all-gather")]
)
def test_context_parallelism_goes_by_the_names_of_its_papers(said, kind):
    plan = {"tp": 1, "pp": 1, "vpp": 1, "cp": 2, "dp": 8, "schedule": "none", "cp_kind": said}
    assert CP_KINDS[int(case(run(strategy=plan)).rows.cp_kind[0])] == kind


def test_the_trainer_of_llm_foundry_reads_logits_for_two_metrics_besides_a_fused_loss():
    chosen = find_stack("fsdp")
    found = changes(run(stack={"framework": "LLM Foundry / Composer FSDP"}), chosen)
    assert found["cross_entropy_traffic"] == 8 + 2 * 14 < chosen.logits.cross_entropy_traffic
    assert found["cross_entropy_bytes"] == 4
    assert "cross_entropy_traffic" not in changes(run(stack={"framework": "PyTorch FSDP1 + torch.compile"}), chosen)


@pytest.mark.parametrize(
    ("framework", "source", "bytes_held"),
    [
        ("Megatron-Core v0.6.0, Transformer Engine", "somewhere", 10),
        ("Megatron-Core v0.12", "somewhere", 6),
        ("Megatron-Core", "a log of 2024-01", 10),
        ("Megatron-Core", "a log of 2025-01", 6),
    ],
)
def test_megatron_cores_loss_copied_its_logits_until_june_2024(framework, source, bytes_held):
    row = run(stack={"framework": framework, "attention": True}, source=source)
    assert case(row).scenario.stack.logits.cross_entropy_bytes == bytes_held


@pytest.mark.parametrize(("word", "held"), [("fp32", (4, 4)), ("bf16", (2, 2)), ("fp8", (4, 4)), (None, (4, 4))])
def test_flags_say_in_which_format_gradients_are_kept_and_reduced(word, held):
    said = {"framework": "Megatron-Core 0.17", "attention": True, "flags": {"grad_reduce_dtype": word}}
    stack = case(run(stack=said)).scenario.stack
    assert (stack.gradients.gradient_bytes, stack.gradients.reduce_bytes) == held


def test_bf16_gradients_stay_beside_their_sums_but_where_16_bits_are_added_up():
    held = {}
    for note in ("", "16-bit gradient accumulation"):
        plan = {"precision": "bf16", "precision_note": note}
        stack = case(run(stack={"framework": "Megatron-DeepSpeed"}, strategy=plan)).scenario.stack
        held[note] = stack.gradients.gradient_bytes + stack.gradients.micro_batch_gradient_bytes
    assert list(held.values()) == [6, 2]


@pytest.mark.parametrize(("sequences", "stage"), [(32, 2), (64, 1)])
def test_mindspore_keeps_gradients_whole_that_several_micro_batches_add_up(sequences, stage):
    plan = {"gpus": 16, "tp": 1, "pp": 1, "vpp": 1, "dp": 16, "sharding_degree": 16, "global_batch_size": sequences}
    row = run(stack={"framework": "MindFormers (MindSpore graph)"}, strategy=plan | {"schedule": "none"})
    assert case(row).rows.zero_stage[0] == stage


@pytest.mark.parametrize(
    ("framework", "said", "etp"), [("Megatron-Core", None, 2), ("Megatron-Core", 1, 1), ("MindFormers", None, 1)]
)
def test_megatron_splits_experts_over_its_tensor_ranks_unless_a_run_says_otherwise(framework, said, etp):
    experts = {"kind": "moe", "experts": 8, "top_k": 2, "expert_ffn": 4096}
    row = run(stack={"framework": framework}, model=experts, strategy={"tp": 2, "ep": 2, "etp": said, "dp": 4, "pp": 2})
    mapped = case(row)
    assert mapped.rows.etp.tolist() == [etp]
    assert any("experts split" in note for note in mapped.notes) == (said is None and etp == 2)


@pytest.mark.parametrize(
    ("attention", "notes", "written_out"),
    [
        (True, "unfused attention; tiny model", True),
        (None, "eager attention", True),
        (True, "without flash attention", True),
        (True, "Attention was not fused", True),
        ("v2", "unfused attention in the first table", False),
        (True, "unfused optimizer", False),
        (True, None, False),
    ],
)
def test_notes_say_that_attention_is_written_out_where_the_field_only_says_that_there_is_some(
    attention, notes, written_out
):
    said = run(stack={"framework": "Megatron-Core", "attention": attention}, notes=notes)
    assert (case(said).scenario.stack.switches.attention_backend == ("unfused",)) is written_out


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, 16),
        ({"source": "a run of 2025-03"}, 14),
        ({"model": {"gated_ffn": False}}, 14),
        ({"framework": "HF Transformers + DeepSpeed, Liger"}, 14),
        ({"framework": "HF Accelerate, torch.compile"}, 6),
        ({"strategy": {"pp": 2, "dp": 4}}, 14),
    ],
)
def test_llama_in_transformers_hands_its_logits_back_in_fp32_until_late_2024(changes, held):
    known = {"framework": changes.pop("framework", "HF Transformers + DeepSpeed"), "attention": "v2"}
    model = {"gated_ffn": True} | changes.pop("model", {})
    plan = {"pp": 1, "vpp": 1, "dp": 8, "schedule": "none"} | changes.pop("strategy", {})
    row = run(**({"source": "a run of 2023"} | changes), stack=known, model=model, strategy=plan)
    assert case(row).scenario.stack.logits.cross_entropy_bytes == held
