"""Runs in the words of other writers take as long as in the project's own."""

import pytest

from costmodels.model.shape import full_layer_every
from planner.runs.judge import judge_row
from planner.runs.words.flag_words import table
from planner.runs.words.mapping import case
from tests.planner.measured_run import only, run


def verdict(**changes):
    return only(judge_row(run(**changes)), "iteration_time")


@pytest.mark.parametrize("field", ["rope_theta", "active_params_b", "dropout", "tokenizer"])
def test_a_field_of_a_model_that_nothing_reads_costs_a_run_no_price(field):
    found = verdict(model={field: 7})
    assert found.predicted == verdict().predicted
    assert any(f"model.{field} is not read" in note for note in found.notes)


def test_a_padded_vocabulary_stands_for_one_that_is_unsaid():
    model = case(run(model={"vocab_size": None, "padded_vocab_size": 50304})).scenario.model
    assert model.vocab_size == 50304


@pytest.mark.parametrize(
    ("pattern", "every"),
    [
        ("5 local : 1 global", 6), ("5:1", 6), (6, 6), ("every 4 layers", 4), ("LLLLLG", 6), ("alternating", 2),
        (["sliding_attention", "full_attention"], 2), ("GL", None), ("LGLLG", None), ([""], None), ("some", None),
    ],
)  # fmt: skip
def test_a_pattern_of_windows_tells_every_how_many_layers_one_sees_all(pattern, every):
    assert full_layer_every(pattern) == every


def test_a_pattern_that_is_not_understood_is_told():
    model = {"sliding_window": 1024, "sliding_window_pattern": "some"}
    assert "a window in every layer: 'some' names no other pattern" in verdict(model=model).notes


def test_the_notes_give_a_window_its_width():
    model = {"seq_length": 8192, "position": "rope", "notes": "sliding window of 4,096 tokens"}
    assert case(run(model=model)).scenario.model.sliding_window == 4096


def test_key_and_value_heads_that_are_unsaid_are_told():
    assert "num_query_groups 16 assumed" in verdict(model={"num_query_groups": None}).notes


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--use-distributed-optimizer", "--ddp-bucket-size 40000000"],
         {"use_distributed_optimizer": True, "ddp_bucket_size": 4e7}),
        (["grad_reduce_dtype=bf16", "tp_comm_overlap: False"],
         {"grad_reduce_dtype": "bf16", "tp_comm_overlap": False}),
        (["--no-overlap-grad-reduce"], {"overlap_grad_reduce": False}),
    ],
)  # fmt: skip
def test_a_list_of_flags_is_a_table(flags, named):
    assert table(flags) == named


def test_a_line_of_flags_counts_as_a_table_of_them_does():
    line, told = "--no-overlap-grad-reduce --use-distributed-optimizer", {"overlap_grad_reduce": False}
    assert verdict(stack={"flags": line}).predicted == verdict(stack={"flags": told}).predicted
    assert verdict(stack={"flags": line}).predicted > verdict().predicted


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("fp8 delayed scaling", "fp8"), ("fp8 (blockwise)", "fp8-block"), ("mixed", "bf16"), ("bf16 mixed", "bf16"),
        ("nf4", "bf16"), ("MXFP8", "mxfp8"), ("AMP", "bf16"),
    ],
)  # fmt: skip
def test_a_precision_in_a_writers_words(words, name):
    row = run(cluster={"accelerator": "b200"}, strategy={"precision": words})
    assert case(row).scenario.precision == name


@pytest.mark.parametrize("note", ["TF32", "fp32 (TF32 tensor cores)", "tf32 matmul"])
def test_products_in_fp32_go_through_tf32_where_the_note_speaks_of_it(note):
    plain = verdict(strategy={"precision": "fp32"}).predicted
    assert verdict(strategy={"precision": "fp32", "precision_note": note}).predicted < plain
    assert verdict(strategy={"precision": "tf32"}).predicted < plain
    for against in ("no TF32", "TF32 use not stated", "TF32 disabled", "allow_tf32=False"):
        assert verdict(strategy={"precision": "fp32", "precision_note": against}).predicted == plain


@pytest.mark.parametrize(
    ("words", "ours"),
    [("CPU offload", "optimizer"), ("cpu_offload", "optimizer"), ("fsdp cpu_offload", "optimizer+params"),
     ("model states", "optimizer+params"), ("NVMe", "optimizer"), ("activation CPU offload", "activations"),
     ("optimizer and master weights", "optimizer"), ("fsdp activation offloading", "activations")],
)  # fmt: skip
def test_what_is_offloaded_in_a_writers_words(words, ours):
    plan = {"pp": 1, "vpp": 1, "dp": 8, "schedule": "none", "sharding_degree": 8, "zero_stage": 3}
    stack = {"framework": "DeepSpeed"}
    said, known = (verdict(stack=stack, strategy={**plan, "offload": word}) for word in (words, ours))
    assert said.predicted == known.predicted
    assert any("disks" in note for note in said.notes) == (words == "NVMe")


@pytest.mark.parametrize(
    ("detail", "same"),
    [
        ("12/24 layers", "12 of 24 layers"), ("first 12 layers", "full recompute of layers per stage [12, 0]"),
        ("last 5 layers", "full recompute of layers per stage [0, 5]"),
        ("every 2nd layer", "12 of 24 layers"), ("block 3", "block, 3 layers"),
    ],
)  # fmt: skip
def test_so_many_layers_are_recomputed_however_it_is_put(detail, same):
    said, known = (verdict(strategy={"recompute_detail": words}).predicted for words in (detail, same))
    assert said == known < verdict().predicted


def test_modules_may_be_joined_by_a_plus():
    said, known = (
        verdict(strategy={"recompute": "selective", "recompute_detail": words}).predicted
        for words in ("core_attn+mlp", "core_attn, mlp")
    )
    assert said == known


@pytest.mark.parametrize(
    ("words", "kind"),
    [("head-parallel", "a2a"), ("DISTFLASHATTN", "p2p"), ("2D-Attention (Double-Ring + head parallel)", "a2a+p2p"),
     ("multi-head ring attention", "p2p"), ("LoongTrain", "a2a+p2p"),
     ("TE", None), ("context parallel", None)],
)  # fmt: skip
def test_context_parallelism_in_a_writers_words(words, kind):
    plan = {"cp": 2, "dp": 2, "sharding_degree": 4, "micro_batch_size": 1}
    said, known = (verdict(strategy={**plan, "cp_kind": name}) for name in (words, kind))
    assert said.predicted == known.predicted


@pytest.mark.parametrize(
    ("words", "name", "vpp"),
    [("DualPipeV", "dualpipe-v", 1), ("zero-bubble", "zb-1p", 1), ("virtual pipeline", "interleaved-1f1b", 2),
     ("looped bfs", "breadth-first", 2)],
)  # fmt: skip
def test_a_schedule_in_a_writers_words(words, name, vpp):
    said, known = (verdict(strategy={"schedule": word, "vpp": vpp}).predicted for word in (words, name))
    assert said == known


def test_states_shared_in_a_node_are_of_its_gpus():
    plan = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "schedule": "none", "zero_stage": 3, "sharding_degree": None}
    said = case(run(strategy={**plan, "sharding_note": "HSDP: sharded within a node"}))
    assert said.rows.sharding_degree[0] == 8
    split = {"tp": 2, "dp": 8, "sharding_note": "HSDP: sharded within a node"}
    assert case(run(strategy={**plan, **split})).rows.sharding_degree[0] == 4
    bare = case(run(strategy={**plan, "sharding_note": "hsdp"}))
    assert bare.rows.sharding_degree[0] == 16
    assert "states sharded over all 16 ranks assumed" in bare.notes


def test_a_stage_may_be_named_as_zero_is():
    assert case(run(strategy={"zero_stage": "ZeRO-1"})).rows.zero_stage[0] == 1


def test_adam_in_8_bits_trains_all_weights():
    stack = case(run(stack={"notes": "bitsandbytes 8-bit AdamW"})).scenario.stack
    assert (stack.switches.adapters, stack.switches.optimizer, stack.states.frozen_bytes) == (None, "adam-8bit", 0.0)


def test_a_share_beside_a_figure_in_bytes_is_no_unit_of_it():
    percent = run(measured={"memory": 50.0, "memory_kind": "per cent of the device"}, cluster={"memory_gb": 80})
    beside = run(measured={"memory": 40.0, "memory_kind": "GB, 50 % of the device"}, cluster={"memory_gb": 80})
    assert only(judge_row(percent), "memory").measured == 40.0 * 2**30
    assert only(judge_row(beside), "memory").measured == 40.0e9


def test_the_degree_that_alone_is_unsaid_makes_up_the_gpus():
    found = case(run(strategy={"tp": None}))
    assert found.rows.tp[0] == 2
    assert "tp 2, which makes up 16 gpus with the other degrees" in found.notes


@pytest.mark.parametrize("said", [[5, 6, 7, 6], [[5, 7], [6, 6]]])
def test_layers_of_chunks_add_up_to_those_of_stages(said):
    assert case(run(strategy={"layers_per_stage": said})).assignment.layers.tolist() == [12, 12]


def test_stages_are_balanced_beside_a_layer_that_predicts_further_tokens():
    plan = {"vpp": 1, "schedule": "1f1b"}
    found = case(run(model={"mtp_layers": 1}, strategy=plan))
    first, last = found.assignment.layers
    assert first > last
    assert "layers per stage balanced beside the layer that predicts further tokens, assumed" in found.notes
    said = case(run(model={"mtp_layers": 1}, strategy={**plan, "layers_per_stage": [12, 12]}))
    assert said.assignment.layers.tolist() == [12, 12]


@pytest.mark.parametrize(
    "words", [{"task": "qlora"}, {"task": "lora", "strategy": {"precision_note": "NF4 base weights"}}]
)
def test_frozen_weights_of_four_bits_are_priced_as_adapters_and_told(words):
    found = verdict(**words)
    assert found.predicted == verdict(task="lora").predicted
    assert any("frozen weights of 4 bits take their memory" in note for note in found.notes)
    assert case(run(**words)).scenario.stack.states.frozen_bytes == pytest.approx(0.516)


@pytest.mark.parametrize("note", ["load_in_4bit: false", "4 bits of the optimizer's states", "mxfp4 products"])
def test_other_words_on_four_bits_freeze_nothing(note):
    assert case(run(strategy={"precision_note": note})).scenario.stack.switches.adapters is None


@pytest.mark.parametrize("task", ["LoRA", "lora fine-tuning", "PEFT (LoRA)", "Adapter"])
def test_adapters_are_trained_however_the_task_is_put(task):
    assert verdict(task=task).predicted == verdict(task="lora").predicted


@pytest.mark.parametrize("task", ["SFT", "full fine-tuning", "fine_tune", "continued pre-training", "Pretraining"])
def test_all_weights_are_trained_however_the_task_is_put(task):
    found = verdict(task=task)
    assert found.predicted == verdict().predicted
    assert not any("task" in note for note in found.notes)


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ("stage-3", 3), ("ZeRO stage 2", 2), ("zero_3", 3), ("3 (FSDP)", 3), ("FULL_SHARD", 3), ("HSDP", 3),
        ("SHARD_GRAD_OP", 2), ("Pos", 1), ("Pos+g", 2), ("Pos+g+p", 3), ("ZeRO++", 3), ("ZeRO-Infinity", 3),
        ("NO_SHARD", 0), ("none", 0), ("distributed optimizer", 1), ("_HYBRID_SHARD_ZERO2", 2),
    ],
)  # fmt: skip
def test_a_stage_is_named_in_many_ways(said, stage):
    plan = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "schedule": "none", "sharding_degree": None}
    assert case(run(stack={"framework": "FSDP"}, strategy={**plan, "zero_stage": said})).rows.zero_stage[0] == stage


@pytest.mark.parametrize("said", ["some", "zero", "z-loss 2e-4", "7"])
def test_words_that_name_no_stage_are_refused(said):
    assert verdict(strategy={"zero_stage": said}).reason.startswith(f"strategy.zero_stage: there is no stage {said!r}")


@pytest.mark.parametrize(
    ("framework", "stage"),
    [
        ("PyTorch DDP", 0),
        ("DistributedDataParallel", 0),
        ("PyTorch DDP + ZeroRedundancyOptimizer", 1),
        ("Megatron DDP", 0),
    ],
)
def test_data_parallelism_of_pytorchs_keeps_all_states_on_every_device(framework, stage):
    plan = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "schedule": "none", "zero_stage": None, "sharding_degree": None}
    assert case(run(stack={"framework": framework}, strategy=plan)).rows.zero_stage[0] == stage


@pytest.mark.parametrize(("framework", "source", "stage"), [
    ("Megatron-LM", "measured 2022", 0), ("Megatron-LM", "measured 2025", 0), ("NeMo", "measured 2025", 1),
    ("Megatron-DeepSpeed", "measured 2023", 1),
])  # fmt: skip
def test_megatron_lm_shards_states_where_its_flag_is_given(framework, source, stage):
    found = case({**run(stack={"framework": framework}, strategy={"zero_stage": None}), "source": source})
    assert found.rows.zero_stage[0] == stage
    assert f"ZeRO stage {stage} assumed" in found.notes


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"optimizer": "cpu", "param": "none"}, "optimizer"), ({"params": True, "optimizer": True}, "optimizer+params"),
        ({"activations": False}, "none"), ("none (checkpoints on NFS)", "none"), ("no CPU offload", "none"),
        ("zero3_bf16_cpuoffload_all.json", "optimizer+params"),
        ("host offload of layer inputs", "activations"), ("offloaded checkpoints", "activations"),
    ],
)  # fmt: skip
def test_what_is_offloaded_in_a_table_or_a_files_name(said, code):
    plan = {"pp": 1, "vpp": 1, "dp": 8, "schedule": "none", "sharding_degree": 8, "zero_stage": 3}
    told, known = (verdict(stack={"framework": "DeepSpeed"}, strategy={**plan, "offload": one}) for one in (said, code))
    assert told.predicted == known.predicted


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        ("global_batch_size", {"tokens_per_iteration": 64 * 2048}), ("global_batch_size", {"num_microbatches": 8}),
        ("micro_batch_size", {"num_microbatches": 8}),
    ],
)  # fmt: skip
def test_a_size_of_the_batch_that_is_left_out_is_that_of_the_others(left_out, told):
    row = run(strategy={left_out: None, **told}, measured={"iteration_time_s": None, "samples_per_s": 32.0})
    found = only(judge_row(row), "iteration_time")
    assert (found.predicted, found.measured) == (verdict().predicted, 2.0)
    assert any(left_out in note and "by the other sizes" in note for note in found.notes)


def test_a_micro_batch_that_the_number_of_them_does_not_make_whole_is_assumed():
    assert "micro-batch size 1 assumed" in verdict(strategy={"micro_batch_size": None, "num_microbatches": 7}).notes


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [("interleaved-1f1b", 2), ("interleaved (v=3)", 3), ("interleaved 1F1B, vpp=4", 4),
     ("1F1B with 6 virtual stages", 6),
     ("1f1b", 1), ("non-interleaved 1F1B", 1), ("zb-v", 1)],
)  # fmt: skip
def test_chunks_of_a_stage_that_are_unsaid_are_those_of_the_schedules_words(schedule, chunks):
    found = case(run(strategy={"schedule": schedule, "vpp": None}))
    assert found.rows.vpp[0] == chunks
    assert any("chunks a stage" in note for note in found.notes) is (chunks > 1)


@pytest.mark.parametrize("said", ["[13, 11]", "13,11", "13/11"])
def test_layers_of_stages_may_be_written_as_a_line(said):
    plan = {"vpp": 1, "schedule": "1f1b", "layers_per_stage": said}
    assert case(run(strategy=plan)).assignment.layers.tolist() == [13, 11]


@pytest.mark.parametrize("said", ["about 12", "12 to 13", "even"])
def test_words_on_layers_of_stages_that_list_none_are_told(said):
    found = case(run(strategy={"vpp": 1, "schedule": "1f1b", "layers_per_stage": said}))
    assert any("an even split is priced" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["decoder-only transformer", "GPT", "Dense", "LLaMA-style"])
def test_a_kind_of_model_in_a_writers_words(kind):
    assert verdict(model={"kind": kind}).predicted == verdict().predicted


@pytest.mark.parametrize("kind", ["hybrid Mamba transformer", "RWKV", "diffusion transformer", "CNN"])
def test_kinds_of_models_that_are_none_of_ours_are_refused(kind):
    assert verdict(model={"kind": kind}).predicted is None


@pytest.mark.parametrize(
    ("note", "degree"),
    [
        ("HSDP: shard groups of 4 GPUs", 4), ("fsdp=8", 8), ("HSDP, sharded across 2 nodes", 16), ("dp_shard: 4", 4),
        ("HSDP, intra-node sharding", 8), ("HSDP, sharded within nodes", 8), ("FSDP 2.0", 16), ("HSDP", 16),
        ("FULL_SHARD, 4-bit shards of weights", 16), ("ZeRO stage 3 of 4 stages", 16), ("HSDP over 5 nodes", 16),
    ],
)  # fmt: skip
def test_words_on_sharding_say_how_many_ranks_share_states(note, degree):
    plan = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "schedule": "none", "zero_stage": 3, "sharding_degree": None}
    assert case(run(strategy={**plan, "sharding_note": note})).rows.sharding_degree[0] == degree


def test_hai_llm_is_deepseeks_with_or_without_a_hyphen():
    assert case(run(stack={"framework": "HAI LLM"})).scenario.stack.name == "deepseek"


@pytest.mark.parametrize(
    ("note", "size"),
    [
        ("nvfp4; base weights pre-quantised", 1.125), ("prequantized frozen weights", 1.125), ("nvfp4", 0.0),
        ("weights quantised in every step", 0.0), ("base weights kept in bf16", 0.0),
    ],
)  # fmt: skip
def test_frozen_weights_that_are_only_there_in_nvfp4_take_its_bytes_twice(note, size):
    plan = {"precision": "nvfp4", "precision_note": note}
    row = run(task="lora", cluster={"accelerator": "b200"}, stack={"framework": "NeMo"}, strategy=plan)
    assert case(row).scenario.stack.states.frozen_bytes == size
