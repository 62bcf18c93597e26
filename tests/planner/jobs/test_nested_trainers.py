"""Trainers with tables within tables: torchtune, litgpt, oumi, LLaMA-Factory v1; what of a model is frozen."""

import json
from pathlib import Path

import pytest

from planner.errors import BadRequest
from planner.jobs.reader import Context, JobFile
from planner.jobs.readers import read_job
from planner.jobs.trainers.nested import model_of_builder

TUNE = """
model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 16, apply_lora_to_mlp: true,
        lora_attn_modules: [q_proj, v_proj, output_proj]}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: "${longest}"}
longest: 4096
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
batch_size: 2
gradient_accumulation_steps: 4
dtype: bf16
enable_activation_checkpointing: true
"""
LITGPT = """
checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B
precision: bf16-true
devices: 4
num_nodes: 2
lora_r: 32
lora_key: true
train: {global_batch_size: 32, micro_batch_size: 1, max_seq_length: 512}
"""
OUMI = """
model: {model_name: Qwen/Qwen3-8B, model_max_length: 2048, torch_dtype_str: bfloat16}
training: {trainer_type: TRL_DPO, per_device_train_batch_size: 2, enable_gradient_checkpointing: true, use_peft: true}
peft: {lora_r: 8, lora_target_modules: [q_proj, v_proj]}
fsdp: {enable_fsdp: true}
"""


def job_of(text, name="a.yaml", **more):
    return read_job([JobFile(Path(name), text)], Context(disk=False, **more)).job


def read_command(line, **files):
    given = [JobFile(Path("run.sh"), line), *(JobFile(Path(f"{name}.yaml"), text) for name, text in files.items())]
    return read_job(given, Context(disk=False)).job


def test_a_recipe_of_torchtune_shards_over_all_ranks_and_trains_adapters_of_16_bits():
    job = job_of(TUNE)
    assert (job.fields["model"], job.fields["seq_length"], job.fields["stack"]) == ("llama3.1-8b", 4096, "torchtitan")
    assert job.fields["adapters"] == "16:linear_qkv,linear_proj,linear_fc1,linear_fc2/summed"
    assert job.fields["changes"]["stack.states.weight_bytes"] == 2
    assert (job.pins["micro_batch_size"], job.pins["steps"]) == (2, 4)
    assert (job.pins["zero_stage"], job.pins["recompute"]) == (3, "full")
    assert "gpus" not in job.fields


def test_one_device_holds_all_states_and_4_bits_are_of_the_builder():
    text = TUNE.replace("lora_llama3_1_8b", "qlora_llama3_1_8b")
    job = job_of(text, "8B_qlora_single_device.yaml")
    assert (job.fields["gpus"], job.pins["zero_stage"], job.fields["base_precision"]) == (1, 0, "nf4-double")


def test_torchtune_trains_in_no_fp16():
    with pytest.raises(BadRequest, match="dtype: torchtune trains in bf16 and fp32, got 'fp16'"):
        job_of(TUNE.replace("dtype: bf16", "dtype: fp16"))


@pytest.mark.parametrize(("said", "same_as"), [("{loss: true}", "true"), ("{model: false}", "false")])
def test_parts_that_torchtune_compiles_are_read_one_by_one(said, same_as):
    found, plain = (job_of(f"{TUNE}compile: {word}\n") for word in (said, same_as))
    assert found == plain


def test_activations_offloaded_beside_states_are_said_to_have_no_price():
    full = TUNE.replace("lora_llama3_1_8b", "llama3_1_8b")
    job = job_of(f"{full}fsdp_cpu_offload: true\nenable_activation_offloading: true\n")
    assert job.pins["offload"] == "optimizer+parameters"
    assert any(line.startswith("enable_activation_offloading: activations move to the host") for line in job.unpriced)


def test_gradients_that_the_backward_pass_applies_are_not_kept():
    text = (
        TUNE.replace("lora_llama3_1_8b", "llama3_1_8b") + "optimizer_in_bwd: true\nenable_activation_offloading: true\n"
    )
    job = job_of(text)
    assert (job.fields["changes"]["stack.gradients.gradient_bytes"], job.pins["offload"]) == (0, "activations")
    assert job.fields["optimizer"] == "adam-bf16"
    assert job_of(TUNE).pins["offload"] == "none"


@pytest.mark.parametrize(
    ("builder", "name"),
    [
        ("torchtune.models.qwen2_5.lora_qwen2_5_0_5b", "qwen2.5-0.5b"),
        ("torchtune.models.qwen3.qwen3_8b_instruct", "qwen3-8b"),
        ("torchtune.models.gemma.qlora_gemma_2b", "gemma-2b"),
        ("torchtune.models.phi4.phi4_14b", "phi-4"),
        ("my.own_model", "my.own_model"),
    ],
)
def test_a_builder_says_the_model(builder, name):
    assert model_of_builder(builder) == name


def test_a_command_line_of_torchtune_says_ranks_and_stands_above_its_file():
    line = "tune run --nnodes 2 --nproc_per_node 8 lora_finetune_distributed --config own.yaml batch_size=4"
    job = read_command(f"{line} tokenizer.max_seq_len=1024", own=TUNE)
    assert (job.fields["gpus"], job.fields["seq_length"], job.pins["micro_batch_size"]) == (16, 1024, 4)
    lost = read_command("tune run --nproc_per_node 8 full_finetune_distributed --config llama3/8B_full")
    assert "llama3/8B_full has the options, but is not here; give that file too" in lost.missing


def test_a_file_of_torchtune_that_trains_nothing_is_not_taken_for_a_job():
    with pytest.raises(Exception, match="YAML of another kind"):
        job_of("model: {_component_: torchtune.models.llama3.llama3_8b}\ntokenizer: {path: a}\nmax_new_tokens: 300\n")


def test_litgpt_says_the_batch_of_all_ranks_and_which_modules_are_adapted():
    job = job_of(LITGPT)
    assert (job.fields["model"], job.fields["gpus"], job.fields["global_batch_size"]) == ("Meta-Llama-3-8B", 8, 32)
    assert job.fields["adapters"] == "32:linear_qkv/summed"
    assert (job.pins["zero_stage"], job.pins["recompute"], "steps" in job.pins) == (3, "full", False)
    assert job.fields["changes"]["stack.states.weight_bytes"] == 2


@pytest.mark.parametrize("more", ["devices: 4\nprecision: bf16-true", "devices: 1\nprecision: bf16-mixed"])
def test_litgpt_quantises_neither_over_several_gpus_nor_in_mixed_precision(more):
    document = "checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf\nlora_r: 8\nquantize: bnb.nf4\n"
    train = "train: {global_batch_size: 8, micro_batch_size: 2, max_seq_length: 512}\n"
    with pytest.raises(BadRequest, match="quantises on one GPU"):
        job_of(f"{document}{train}{more}\n")


def test_litgpt_pretrains_a_model_of_given_sizes_in_mixed_precision():
    sizes = "model_config: {n_layer: 12, n_embd: 768, n_head: 12, padded_vocab_size: 32000, mlp_class_name: LLaMAMLP}"
    job = job_of(
        f"{sizes}\nprecision: bf16-mixed\ntrain: {{global_batch_size: 64, micro_batch_size: 4, max_tokens: 1000}}"
    )
    assert (job.fields["model"]["num_layers"], job.fields["model"]["activation"]) == (12, "swiglu")
    assert (job.fields["task"], job.length.count, job.length.of) == ("pretrain", 1000, "tokens")
    assert "stack.states.weight_bytes" not in job.fields["changes"]
    with pytest.raises(BadRequest, match="n_expert: experts of litgpt are not priced"):
        job_of(f"{sizes[:-1]}, n_expert: 8}}\nprecision: 32-true\ntrain: {{global_batch_size: 8, micro_batch_size: 4}}")


def test_a_command_line_of_litgpt_names_the_model():
    job = read_command("litgpt finetune_full meta-llama/Llama-3.2-1B --devices 8 --train.micro_batch_size 2")
    assert (job.fields["model"], job.fields["gpus"]) == ("meta-llama/Llama-3.2-1B", 8)
    assert ("adapters" in job.fields, job.pins["micro_batch_size"]) == (False, 2)
    with pytest.raises(BadRequest, match="LLaMA-Adapter is not priced"):
        read_command("litgpt finetune_adapter meta-llama/Llama-3.2-1B --devices 2")


def test_oumi_has_options_of_transformers_in_tables():
    job = job_of(OUMI)
    assert (job.fields["model"], job.fields["task"], job.fields["precision"]) == ("Qwen/Qwen3-8B", "dpo", "bf16")
    assert job.fields["adapters"] == "8:linear_qkv/autocast"
    assert (job.pins["zero_stage"], job.pins["recompute"], job.pins["micro_batch_size"]) == (3, "full", 2)
    started = read_command("oumi distributed torchrun --nproc_per_node 4 -m oumi train -c own.yaml", own=OUMI)
    assert started.fields["gpus"] == 4


@pytest.mark.parametrize(
    ("said", "format_"),
    [("q_lora_bits: 8", "int8"), ("use_bnb_nested_quant: true", "nf4-double"), ("lora_r: 8", "nf4")],
)
def test_oumi_says_the_bits_of_frozen_weights(said, format_):
    job = job_of(OUMI.replace("lora_r: 8,", f"q_lora: true, {said},"))
    assert job.fields["base_precision"] == format_
    assert not job.unpriced


def test_oumi_shards_in_one_way():
    with pytest.raises(BadRequest, match="both enabled"):
        job_of(f"{OUMI}deepspeed: {{enable_deepspeed: true}}\n")


FACTORY = "finetuning_type: full\nper_device_train_batch_size: 1\nbf16: true\ncutoff_len: 4096\n"
TOWER = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
         "image_size": 336, "patch_size": 14}  # fmt: skip
TEXT = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}


@pytest.mark.parametrize("word", ["freeze_vision_tower", "freeze_vit"])
def test_a_vision_tower_that_trains_is_priced_with_an_image(tmp_path, word):
    model = {"model_type": "llava", "vision_config": TOWER, "text_config": TEXT}
    (tmp_path / "config.json").write_text(json.dumps(model))
    text = f"model_name_or_path: {tmp_path}\n{FACTORY}"
    trained = job_of(f"{text}{word}: false\n")
    assert (trained.fields["train_tower"], trained.fields["images_per_sample"]) == (True, 1)
    assert any("one image a sample is priced; --images-per-sample changes it" in line for line in trained.assumed)
    adapted = job_of(f"{text}{word}: false\n".replace("full", "lora"))
    assert "train_tower" not in adapted.fields
    assert "adapters of the vision tower are not priced: more time and memory" in adapted.unpriced
    frozen = job_of(f"{text}{word}: true\n")
    assert "train_tower" not in frozen.fields
    assert any("no images are priced, nor the vision tower" in line for line in frozen.assumed)


def test_the_last_layers_alone_train_where_a_recipe_freezes_the_others():
    text = f"model_name_or_path: llama3-8b\n{FACTORY}".replace("full", "freeze")
    assert job_of(text).fields["frozen_layers"] == 30
    assert job_of(f"{text}freeze_trainable_layers: 8\n").fields["frozen_layers"] == 24
    first = job_of(f"{text}freeze_trainable_layers: -8\n")
    assert "frozen_layers" not in first.fields
    assert any(line.startswith("freeze trains only some weights; all are priced") for line in first.unpriced)


V1 = """
model: Qwen/Qwen3-4B
model_class: llm
peft_config: {name: lora, r: 16, target_modules: all}
kernel_config: {name: liger_kernel}
quant_config: {name: bnb, quantization_bit: 4}
dist_config: {name: fsdp2, dcp_path: null}
micro_batch_size: 2
cutoff_len: 1024
"""


def test_plug_ins_of_llama_factory_v1_say_adapters_sharding_and_kernels():
    job = job_of(V1)
    assert job.fields["adapters"].startswith("16:")
    assert (job.fields["base_precision"], job.fields["loss"], job.fields["seq_length"]) == ("nf4", "fused", 1024)
    assert (job.pins["zero_stage"], job.pins["micro_batch_size"], job.pins["recompute"]) == (3, 2, "full")
    (liger,) = job.unpriced
    assert liger.startswith("Liger's loss is priced")


def test_a_command_line_of_llama_factory_v1_says_what_is_learnt():
    plain = V1.replace("peft_config: {name: lora, r: 16, target_modules: all}", "cp_size: 2")
    job = read_command("USE_V1=1 llamafactory-cli dpo v1.yaml", v1=plain)
    assert (job.fields["task"], job.pins["cp"], job.pins["cp_kind"]) == ("dpo", 2, "a2a")
    assert "adapters" not in job.fields
