"""YAML of Accelerate, nanotron and MaxText as questions: what is read, filled in, and refused."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadFile, BadRequest
from planner.jobs.accelerate import options as accelerate_options
from planner.jobs.accelerate.read import accelerate_job
from planner.jobs.imported import complete
from planner.jobs.maxtext import options as maxtext_options
from planner.jobs.maxtext.read import maxtext_job
from planner.jobs.nanotron import options as nanotron_options
from planner.jobs.nanotron.read import nanotron_job
from planner.jobs.reader import Context, JobFile
from planner.jobs.readers import read_job
from planner.jobs.yaml_text import yaml_text
from tests.each import each
from tests.planner.jobs.scripts import import_job

FSDP1 = {
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "num_processes": 8,
    "fsdp_config": {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_sharding_strategy": "FULL_SHARD"},
}
SMALL = {"parallelism": {"dp": 2, "pp": 2, "tp": 2}, "tokens": {"sequence_length": 256, "micro_batch_size": 2}}
TPU = {"model_name": "llama2-7b", "per_device_batch_size": 4, "max_target_length": 4096}


def asked(job, **fields):
    return complete(job.fields | fields, job.pins)


def test_what_accelerate_config_writes_shards_over_all_ranks():
    job = accelerate_job(FSDP1)
    assert job.fields == {"gpus": 8, "precision": "bf16", "stack": "fsdp"}
    assert (job.pins["zero_stage"], "dp" in job.pins, "sharding_degree" in job.pins) == (3, False, False)
    assert (job.pins["recompute"], job.pins["offload"]) == ("none", "none")
    lower = accelerate_job(FSDP1 | {"fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP"}})
    assert lower.pins["zero_stage"] == 2
    newer = {"fsdp_version": 2, "fsdp_reshard_after_forward": False, "fsdp_activation_checkpointing": True}
    job = accelerate_job(FSDP1 | {"fsdp_config": newer})
    assert (job.pins["zero_stage"], job.pins["recompute"]) == (2, "full")


def test_an_accumulation_that_the_trainer_fills_in_is_none(tmp_path):
    (tmp_path / "ds.json").write_text('{"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 3}}')
    file = tmp_path / "accelerate.yaml"
    named = "deepspeed_config: {deepspeed_config_file: ds.json}"
    file.write_text(f"distributed_type: DEEPSPEED\nnum_processes: 8\n{named}\n")
    job = read_job([file], Context()).job
    assert job.pins["zero_stage"] == 3
    assert "steps" not in job.pins


def test_accelerate_without_fsdp_shares_nothing():
    assert accelerate_job({"distributed_type": "MULTI_GPU", "num_processes": 4}).pins["zero_stage"] == 0
    assert accelerate_job({"mixed_precision": "no"}).fields["precision"] == "fp32"


@each(
    ("document", "message"),
    [
        ({"a": 1}, "it has no key of Accelerate, such as distributed_type"),
        ({"distributed_type": "XLA"}, "distributed_type: 'XLA' is not priced; FSDP, MULTI_GPU, NO, DEEPSPEED"),
        (FSDP1 | {"num_processes": "8"}, "num_processes: expected a whole number from 1 on, got '8'"),
        (FSDP1 | {"fsdp_config": 3}, "fsdp_config: expected a table with keys such as fsdp_version, got 3"),
        (
            FSDP1 | {"fsdp_config": {"fsdp_reshard_after_forward": "SOMETIMES"}},
            "fsdp_config.fsdp_reshard_after_forward: 'SOMETIMES' is not priced; FULL_SHARD",
        ),
        (
            FSDP1 | {"fsdp_config": {"fsdp_sharding_strategy": "SOME_SHARD"}},
            "fsdp_config.fsdp_sharding_strategy: 'SOME_SHARD' is not priced",
        ),
    ],
)
def test_accelerate_refuses_what_is_not_priced(document, message):
    with pytest.raises(BadRequest, match=message):
        accelerate_job(document)


def deepspeed_plugin(**plugin):
    return {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "num_processes": 8, "deepspeed_config": plugin}


def test_accelerate_with_deepspeed_s_plugin_is_deepspeed_s_job():
    job = accelerate_job(deepspeed_plugin(zero_stage=3, offload_optimizer_device="cpu", offload_param_device="none"))
    assert (job.framework, job.fields["stack"], job.fields["precision"]) == ("deepspeed", "deepspeed", "bf16")
    assert (job.pins["zero_stage"], job.pins["offload"], "steps" in job.pins) == (3, "optimizer", False)
    assert not job.unpriced


def test_accumulation_without_a_micro_batch_makes_no_batch():
    job = accelerate_job(deepspeed_plugin(zero_stage=3, gradient_accumulation_steps=1))
    fields, pins = asked(job)
    assert "global_batch_size" not in fields
    assert "micro_batch_size" not in pins
    assert complete(job.fields, {**job.pins, "micro_batch_size": 2}, asked=["pins.micro_batch_size"])[0][
        "global_batch_size"
    ] == 16  # fmt: skip
    assert asked(job, global_batch_size=64)[1]["micro_batch_size"] == 8


def test_accelerate_names_deepspeed_s_file():
    document = deepspeed_plugin(deepspeed_config_file="ds.json")
    there = JobFile(Path("ds.json"), json.dumps({"zero_optimization": {"stage": 1}, "fp16": {"enabled": "auto"}}))
    assert accelerate_job(document, lambda name: there if name == "ds.json" else None).pins["zero_stage"] == 1
    missing = accelerate_job(document).missing
    assert missing[0].startswith("deepspeed_config_file ds.json says how states are sharded, but is not here")


def test_accelerate_with_megatron_is_megatron_s_job():
    plugin = {"megatron_lm_tp_degree": 4, "megatron_lm_pp_degree": 2, "megatron_lm_num_micro_batches": 8}
    plugin |= {"megatron_lm_sequence_parallelism": "true", "megatron_lm_recompute_activations": True}
    job = accelerate_job({"distributed_type": "MEGATRON_LM", "mixed_precision": "bf16", "megatron_lm_config": plugin})
    assert (job.framework, job.pins["tp"], job.pins["pp"], job.pins["steps"]) == ("megatron-lm", 4, 2, 8)
    assert (job.pins["recompute"], job.pins["sequence_parallel"]) == ("selective", "true")


@pytest.mark.parametrize(("nodes", "degree"), [(1, 8), (4, 8)])
def test_accelerate_shards_within_a_node_where_it_is_told_to(nodes, degree):
    document = FSDP1 | {"num_machines": nodes, "num_processes": 8 * nodes}
    fields, pins = asked(accelerate_job(document | {"fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}}))
    assert (fields["gpus"], pins["zero_stage"], pins.get("sharding_degree", degree)) == (8 * nodes, 3, degree)


def test_accelerate_s_words_of_yaml_and_its_compiler_are_read():
    document = {"distributed_type": False, "mixed_precision": False, "dynamo_backend": "INDUCTOR"}
    job = accelerate_job(document)
    assert (job.fields["precision"], job.pins["zero_stage"]) == ("fp32", 0)
    assert job.fields["changes"] == {"stack.fused_elementwise": True}


def test_nanotron_has_the_schedule_of_its_default_and_steps_of_every_rank():
    job = nanotron_job(SMALL | {"tokens": {**SMALL["tokens"], "batch_accumulation_per_replica": 4}})
    assert job.pins["schedule"] == "gpipe"
    assert job.pins["sequence_parallel"] == "false"
    fields, pins = asked(job)
    assert (fields["gpus"], fields["global_batch_size"], pins["micro_batch_size"]) == (8, 2 * 4 * 2, 2)


def test_nanotron_reads_the_run_and_names_a_slip():
    job = nanotron_job(SMALL | {"tokens": {"train_steps": 10}, "optimizer": {"zero_stages": 1}})
    assert (job.length.count, job.length.of) == (10, "iterations")
    assert "optimizer.zero_stages is not known; did you mean optimizer.zero_stage?" in job.remarks
    other = nanotron_job(SMALL | {"model": {"model_config": {"is_starcoder2_config": True, "num_hidden_layers": 4}}})
    assert "model" not in other.fields
    assert other.lacks == "model.model_config.is_starcoder2_config is not read; give the model with --model"
    with pytest.raises(BadRequest, match=r"parallelism\.tp is missing"):
        nanotron_job({"parallelism": {"dp": 2, "pp": 2}})
    with pytest.raises(BadRequest, match="it has no table of nanotron, such as parallelism"):
        nanotron_job({})
    with pytest.raises(BadRequest, match=r"model\.dtype: 'float16' is not priced"):
        nanotron_job(SMALL | {"model": {"dtype": "float16"}})


def test_maxtext_fills_in_what_its_base_has():
    job = maxtext_job(TPU)
    fields, pins = asked(job, gpus=16)
    assert fields["model"] == "llama2-7b"
    assert (pins["zero_stage"], pins["sharding_degree"], pins["recompute"]) == (3, 16, "full")
    assert (pins["micro_batch_size"], fields["global_batch_size"]) == (4, 64)
    assert "dcn_data_parallelism is left to MaxText; one slice is priced" in job.assumed


def test_maxtext_counts_sequences_of_a_device_over_the_ranks_of_a_replica():
    ranks = {"ici_tensor_parallelism": 2, "ici_fsdp_parallelism": 4, "dcn_data_parallelism": 2, "num_slices": 2}
    job = maxtext_job(TPU | ranks | {"per_device_batch_size": 0.5, "gradient_accumulation_steps": 3})
    assert (job.fields["gpus"], job.pins["dp"], job.pins["sharding_degree"]) == (16, 8, 4)
    fields, pins = asked(job)
    assert (pins["micro_batch_size"], fields["global_batch_size"]) == (1, 24)


def test_maxtext_divides_its_batch_over_the_pipeline():
    ranks = {"ici_pipeline_parallelism": 4, "ici_fsdp_parallelism": 1, "dcn_data_parallelism": 1}
    job = maxtext_job(TPU | ranks | {"num_pipeline_microbatches": 8, "num_pipeline_repeats": 2})
    assert (job.pins["schedule"], job.pins["vpp"], job.pins["zero_stage"]) == ("breadth-first", 2, 0)
    assert (job.pins["micro_batch_size"], job.pins["steps"]) == (2, 8)


@each(
    ("document", "message"),
    [
        ({"a": 1}, "it has no key of MaxText, such as ici_fsdp_parallelism"),
        (TPU | {"ici_sequence_parallelism": 2}, "ici_sequence_parallelism: 2 is not priced; 1 is"),
        (TPU | {"ici_tensor_parallelism": -1}, "-1 for tensor cannot be read"),
        (TPU | {"per_device_batch_size": 0.5}, r"per_device_batch_size 0\.5 makes 0\.5 sequences"),
        (TPU | {"per_device_batch_size": "many"}, "per_device_batch_size: expected a number of sequences"),
        (TPU | {"weight_dtype": "float16"}, "weight_dtype: 'float16' is not priced; float32, bfloat16 are"),
        (TPU | {"decoder_block": "gemma", "model_name": "default"}, "decoder_block: 'gemma' is not priced"),
    ],
)
def test_maxtext_refuses_what_is_not_priced(document, message):
    with pytest.raises(BadRequest, match=message):
        maxtext_job(document)


def test_maxtext_s_own_shape_and_names_that_are_not_known():
    job = maxtext_job({"base_emb_dim": 1024, "base_num_query_heads": 8, "base_num_kv_heads": 8})
    assert (job.fields["model"]["hidden_size"], job.fields["model"]["num_layers"]) == (1024, 16)
    assert maxtext_job({"base_emb_dim": 1024, "num_experts": 8}).lacks.startswith("num_experts is not read")
    assert maxtext_job({"model_name": "gemma9-4b"}).lacks.startswith("model 'gemma9-4b' is not known")


def test_maxtext_s_own_shape_grows_by_powers_of_two():
    base = {"max_target_length": 2048, "per_device_batch_size": 1}
    model = maxtext_job(base | {"global_parameter_scale": 128}).fields["model"]
    grown = (model["hidden_size"], model["num_heads"], model["ffn_hidden_size"], model["num_layers"])
    assert grown == (4 * 2048, 8 * 16, 8 * 7168, 4 * 16)
    with pytest.raises(BadRequest, match="global_parameter_scale: 100 is no power of two; 64 is"):
        maxtext_job(base | {"global_parameter_scale": 100})


def test_sizes_beside_a_name_are_changes_of_that_model():
    job = maxtext_job(TPU | {"base_num_decoder_layers": 4})
    assert job.fields["changes"] == {"model.num_layers": 4}
    narrow = maxtext_job(TPU | {"weight_dtype": "bfloat16"})
    assert (narrow.fields["optimizer"], narrow.fields["changes"]["stack.states.weight_bytes"]) == ("adam-bf16", 2)


@pytest.mark.parametrize(
    ("policy", "priced"), [("minimal", "selective"), ("custom", "full"), ("minimal_flash", "none")]
)
def test_a_policy_between_those_that_are_priced_is_said(policy, priced):
    job = maxtext_job(TPU | {"remat_policy": policy})
    assert job.pins["recompute"] == priced
    assert job.unpriced == (f"remat_policy {policy} is priced as {priced} recomputation",)


def read(tmp_path, text):
    path = tmp_path / "run.sh"
    path.write_text(text)
    return read_job([path], Context()).job


def test_words_of_maxtext_s_command_line_stand_above_its_file(tmp_path):
    (tmp_path / "job.yml").write_text("model_name: llama2-7b\nper_device_batch_size: 4\n")
    job = read(tmp_path, "python3 -m MaxText.train job.yml per_device_batch_size=2 ici_tensor_parallelism=4 odd=1")
    assert (job.fields["model"], job.pins["tp"], job.pins["micro_batch_size"]) == ("llama2-7b", 4, 8)
    assert any("not priced: odd" in line for line in job.remarks)
    base = read(tmp_path, "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama2-7b")
    assert "base.yml is not here; that of MaxText 0.2.5 is taken" in base.assumed
    assert base.missing == ("hardware is tpu; say which one with --cluster, such as tpu-v5p-pod",)
    line = "python3 -m MaxText.train_compile base.yml model_name=llama2-7b compile_topology=v5p-256"
    compiled = read(tmp_path, line)
    assert (compiled.fields["cluster"], compiled.missing) == ("tpu-v5p-pod", ())
    assert not read(tmp_path, "python3 -m MaxText.train base.yml model_name=llama2-7b hardware=gpu").missing
    (absent,) = read(tmp_path, "python3 -m MaxText.train other.yml model_name=llama2-7b").missing
    assert absent.startswith("other.yml, which the command line names, is not here")


def test_a_script_that_starts_maxtext_with_its_file_alone_is_read(tmp_path):
    (tmp_path / "maxtext.yml").write_text("model_name: deepseek3-671b\nper_device_batch_size: 4\n")
    job = read(tmp_path, '#!/usr/bin/env bash\nexec python3 -m maxtext.trainers.pre_train.train maxtext.yml "$@"')
    assert job.fields["model"] == "deepseek-v3"


def test_nanotron_s_command_line_names_its_file(tmp_path):
    (tmp_path / "small.yaml").write_text(yaml_text(SMALL))
    job = read(tmp_path, "torchrun --nproc_per_node=8 run_train.py --config-file small.yaml")
    assert (job.fields["gpus"], job.pins["tp"]) == (8, 2)
    assert "parallelism.pp_engine is not given; afab is priced" in job.assumed
    (absent,) = read(tmp_path, "torchrun --nproc_per_node=8 run_train.py --config-file absent.yaml").missing
    assert absent.startswith("absent.yaml has the options, but is not here")


def test_a_file_of_another_kind_is_named(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("a: [1, 2\n")
    with pytest.raises(BadFile, match="looks like YAML that does not parse: while parsing a flow sequence"):
        import_job("nanotron", path)
    path.write_text("[training]\nsteps = 1\n")
    with pytest.raises(BadFile, match="it looks like a configuration of torchtitan; leave --from out"):
        import_job("accelerate", path)
    path.write_text("parallelism: {dp: 1, tp: 1, pp: 1, 3: 4}\n5: on\n")
    assert "not read, so their effect on time and memory is not priced: 5" in import_job("nanotron", path).remarks
    path.write_text("distributed_type: FSDP\n")
    with pytest.raises(BadFile, match="looks like a configuration of Accelerate; leave --from out"):
        import_job("deepspeed", path)


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 9), st.floats(), st.sampled_from(["", "8", "FSDP", "full", "no"]),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.sampled_from(["a", "tp", "dp"]), st.integers(), max_size=2),
)  # fmt: skip
READERS = {
    "accelerate": (accelerate_job, FSDP1, accelerate_options.OPTIONS),
    "nanotron": (nanotron_job, SMALL, nanotron_options.OPTIONS),
    "maxtext": (maxtext_job, TPU, maxtext_options.OPTIONS),
}


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_whatever_stands_in_a_file_is_read_or_refused(name, data):
    read, usual, options = READERS[name]
    document = json.loads(json.dumps(usual))
    for row in data.draw(st.lists(st.sampled_from(list(options)), max_size=4)):
        *path, key = row.word.split(".")
        at = document
        for table in path:
            at = at.setdefault(table, {})
            if not isinstance(at, dict):
                break
        else:
            at[key] = data.draw(ODD)
    with suppress(BadRequest):
        job = read(document)
        complete(job.fields, job.pins)


def test_a_train_py_with_a_run_name_is_not_maxtext_s(tmp_path):
    with pytest.raises(BadFile, match="of an unknown framework"):
        read(tmp_path, "#!/bin/bash\nfabric run train.py run_name=a max_seq_len=4096")


def test_biases_and_packed_documents_of_nanotron_are_read_and_its_usual_keys_are_not_listed():
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 256, "tie_word_embeddings": True}  # fmt: skip
    config = sizes | {"is_qwen2_config": True, "attention_bias": True, "_use_doc_masking": True, "hidden_act": "silu"}
    job = nanotron_job(SMALL | {"model": {"model_config": config}})
    assert (job.fields["model"]["qkv_bias"], job.remarks) == (True, ())
    assert any("documents do not attend to each other" in line for line in job.unpriced)
    plain = nanotron_job(SMALL | {"model": {"model_config": sizes}})
    assert "qkv_bias" not in plain.fields["model"]


def test_nanotron_s_own_cut_of_the_layers_is_read():
    sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
             "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False}  # fmt: skip
    piped = SMALL | {"parallelism": SMALL["parallelism"] | {"pp": 4}, "model": {"model_config": sizes}}
    assert nanotron_job(piped).layers == (9, 9, 8, 6)
    assert nanotron_job(piped | {"parallelism": SMALL["parallelism"] | {"pp": 1}}).layers is None
