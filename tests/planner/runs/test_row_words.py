"""What others call the same thing: values of measured runs in other words, spellings and sizes than the corpus has."""

import json

import pytest

from planner.runs.judge import judge_row
from planner.runs.words.mapping import case
from planner.runs.words.strategy_words import CP_KINDS
from tests.planner.measured_run import run

CONTEXT = {"gpus": 8, "tp": 1, "cp": 4, "pp": 1, "dp": 2, "global_batch_size": 16}


def priced(**changes):
    """Seconds of a run with these changes, or why it has none."""
    (verdict,) = [v for v in judge_row(run(**changes)) if v.metric == "iteration_time"]
    return verdict.predicted or verdict.reason


def test_context_ranks_may_share_one_sequence_so_that_a_micro_batch_is_a_part_of_one():
    mapped = case(run(strategy={**CONTEXT, "micro_batch_size": 0.5}))
    assert (mapped.rows.micro_batch_size[0], mapped.rows.num_microbatches[0]) == (0.5, 16)
    assert "expected a number of sequences above 0" in priced(strategy={**CONTEXT, "micro_batch_size": 0})


def test_whole_numbers_may_be_written_with_a_point():
    plain = run()
    pointed = json.loads(json.dumps(plain), parse_int=float)
    assert [v.predicted for v in judge_row(pointed)] == [v.predicted for v in judge_row(plain)]
    assert "whole number" in priced(strategy={"gpus": 8.5})


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("zigzag ring", "p2p"),
        ("megatron_cp_algo", "p2p"),
        ("DeepSpeed-Ulysses", "a2a"),
        ("ulysses_cp_algo", "a2a"),
        ("hybrid_cp_algo", "a2a+p2p"),
        ("ring + ulysses", "a2a+p2p"),
        ("llama3", "all-gather"),
    ],
)
def test_kinds_of_context_parallelism_have_the_names_of_papers_and_programs(said, kind):
    mapped = case(run(strategy={**CONTEXT, "cp_kind": said}))
    assert CP_KINDS[mapped.rows.cp_kind[0]] == kind


@pytest.mark.parametrize(
    ("field", "said", "same"),
    [
        ("offload", "no", "none"),
        ("offload", "disabled", False),
        ("offload", "ZeRO-Offload", "optimizer"),
        ("offload", "params", "optimizer+params CPU offload"),
        ("precision", "bf16-mixed", "bf16"),
        ("precision", "amp_bf16", "bf16"),
        ("precision", "float16", "fp16"),
        ("recompute", True, "full"),
        ("recompute", "off", "none"),
        ("recompute", "core_attn", "selective"),
    ],
)
def test_a_strategy_in_other_words_takes_as_long(field, said, same):
    assert priced(strategy={field: said, "zero_stage": 1}) == priced(strategy={field: same, "zero_stage": 1})


@pytest.mark.parametrize(
    ("said", "same"), [("1F1B", "1f1b"), ("GPipe", "gpipe"), ("afab", "gpipe"), ("ZBVZeroBubble", "zb-v")]
)
def test_a_schedule_in_other_words_takes_as_long(said, same):
    pipeline = {"gpus": 8, "tp": 1, "pp": 2, "vpp": 1, "dp": 4, "global_batch_size": 32}
    assert priced(strategy={**pipeline, "schedule": said}) == priced(strategy={**pipeline, "schedule": same})
    assert "not priced yet" in priced(strategy={**pipeline, "schedule": "chimera"})


@pytest.mark.parametrize(
    ("field", "said", "same"),
    [
        ("position", "RoPE", "rotary"),
        ("position", "learned absolute", "learned"),
        ("norm", "RMSNorm", "rmsnorm"),
        ("kind", "Dense", "dense"),
    ],
)
def test_a_model_in_other_words_is_the_same_model(field, said, same):
    assert case(run(model={field: said})).scenario.model == case(run(model={field: same})).scenario.model


def test_an_activation_that_is_said_to_be_gated_is_called_by_its_gate():
    gated = {"gated_ffn": True, "ffn_hidden_size": 11008}
    for said, name in (("SiLU", "swiglu"), ("gelu_tanh", "geglu"), ("SwiGLU", "swiglu")):
        assert case(run(model={**gated, "activation": said})).scenario.model.activation == name


def test_sizes_that_a_run_leaves_out_are_those_of_the_model_whose_name_and_shape_it_has():
    shape = {"name": "LLAMA3-8B", "num_layers": 32, "hidden_size": 4096, "num_heads": 32, "ffn_hidden_size": None}
    unsaid = dict.fromkeys(("gated_ffn", "vocab_size", "num_query_groups", "head_dim", "tied_embeddings", "params_b"))
    mapped = case(run(model=shape | unsaid))
    model = mapped.scenario.model
    assert (model.ffn_hidden_size, model.vocab_size, model.num_query_groups) == (14336, 128256, 8)
    assert any("of the catalogue's llama3-8b, by its name" in note for note in mapped.notes)


def test_the_memory_that_a_run_says_is_the_memory_it_has():
    small = case(run(cluster={"accelerator": "a100", "memory_gb": 40})).scenario.group.accelerator
    assert small.name == "a100-sxm-40gb"
    mapped = case(run(cluster={"accelerator": "a100-sxm-80gb", "memory_gb": 60}))
    assert mapped.scenario.group.accelerator.memory == pytest.approx(60 * 2**30)
    assert "a100-sxm-80gb with 60 GB in place of 80" in mapped.notes


@pytest.mark.parametrize(
    ("said", "layers"),
    [
        ("block, 4 layers", [4, 4]),
        ("recompute_num_layers=4, block", [4, 4]),
        ("6 of 24 layers", [3, 3]),
        ("full", None),
    ],
)
def test_layers_that_are_recomputed_in_part_are_counted(said, layers):
    mapped = case(run(strategy={"recompute_detail": said, "vpp": 1, "schedule": "1f1b"}))
    assert mapped.assignment.recomputed.tolist() == (layers or mapped.assignment.layers.tolist())


def test_a_run_that_offloads_needs_no_description_of_its_hosts():
    away = {"offload": "optimizer CPU offload", "zero_stage": 3}
    mapped = case(run(cluster={"accelerator": "rtx4090", "memory_gb": 24}, strategy=away))
    assert any("hosts of dgx-a100-80gb assumed" in note for note in mapped.notes)
    assert not any("hosts" in note for note in case(run(strategy=away)).notes)


@pytest.mark.parametrize(
    ("framework", "words", "stage"),
    [
        ("PyTorch FSDP", None, 3),
        ("torchtitan", None, 3),
        ("DeepSpeed", "zero2", 2),
        ("DeepSpeed", "ZeRO stage 3", 3),
        ("Megatron-LM", "distributed optimizer", 1),
    ],
)
def test_a_stage_of_sharding_that_is_not_said_is_that_of_the_words_or_of_the_framework(framework, words, stage):
    mapped = case(run(stack={"framework": framework}, strategy={"zero_stage": None, "sharding_note": words}))
    assert mapped.rows.zero_stage[0] == stage


@pytest.mark.parametrize(("device", "said", "taken"), [("tpu-v4", "fp32", "bf16"), ("v100", "bf16", "fp16")])
def test_matrix_units_without_a_format_multiply_in_the_one_they_have(device, said, taken):
    mapped = case(run(cluster={"accelerator": device, "memory_gb": 32}, strategy={"precision": said}))
    assert mapped.scenario.precision == taken
    assert any(f"products in {taken} in place of {said}" in note for note in mapped.notes)
