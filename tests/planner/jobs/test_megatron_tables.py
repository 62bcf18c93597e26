"""Configurations in YAML and JSON of programs on Megatron-Core are read by their own names, or refused by them."""

import json
from pathlib import Path

import pytest

from planner.errors import BadRequest
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.readers import READERS, read_job

NEOX = {
    "pipe_parallel_size": 4, "model-parallel-size": 2, "num_layers": 44, "hidden_size": 6144,
    "num_attention_heads": 64, "seq_length": 2048, "max_position_embeddings": 2048, "pos_emb": "rotary",
    "rotary_pct": 0.25, "no_weight_tying": True, "gpt_j_residual": True, "rope_fusion": False,
    "scaled_upper_triang_masked_softmax_fusion": True, "bias_gelu_fusion": True,
    "zero_optimization": {"stage": 1, "overlap_comm": True}, "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 32, "checkpoint_activations": True, "fp16": {"enabled": True},
}  # fmt: skip
PRIMUS = """
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${PRIMUS_MODEL:llama3.1_8B}.yaml
    overrides:
      seq_length: 8192
      micro_batch_size: 2
      global_batch_size: 128
      tensor_model_parallel_size: ${PRIMUS_TP:2}
      overlap_grad_reduce: true
      gradient_accumulation_fusion: false
      recompute_granularity: null
"""
NEMO = """
trainer: {num_nodes: 16, devices: 8, precision: bf16, max_steps: 1000}
model:
  mcore_gpt: true
  micro_batch_size: 1
  global_batch_size: 256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 5
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 80
  hidden_size: 8192
  ffn_hidden_size: 28672
  num_attention_heads: 64
  num_query_groups: 8
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  hidden_dropout: 0.0
  attention_dropout: 0.0
  bias_dropout_add_fusion: true
  activations_checkpoint_granularity: null
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 0
  sequence_parallel: true
  ub_tp_comm_overlap: true
  fp8: true
  fp8_hybrid: true
  fp8_e4m3: false
  optim: {name: mcore_distributed_optim, overlap_grad_sync: true, overlap_param_sync: false}
"""
FLAGSCALE = """
system:
  tensor_model_parallel_size: 8
  pipeline_model_parallel_size: 4
  sequence_parallel: True
  use_distributed_optimizer: True
  disable_bias_linear: True
  precision: {bf16: True}
model:
  num_layers: 80
  hidden_size: 8192
  num_attention_heads: 64
  hidden_dim_multiplier: 1.3
  multiple_of: 4096
  swiglu: true
  seq_length: 4096
  max_position_embeddings: 4096
  micro_batch_size: 2
  global_batch_size: 1056
  use_rotary_position_embeddings: true
data:
  tokenizer: {tokenizer_type: AquilaTokenizerFS, vocab_size: 100008}
"""
BRIDGE = """
model: {tensor_model_parallel_size: 2, seq_length: 4096, add_bias_linear: false, num_layers: 4, hidden_size: 512,
  num_attention_heads: 8, gated_linear_unit: true, ffn_hidden_size: 1024, position_embedding_type: rope,
  vocab_size: 1024}
train: {micro_batch_size: 2, global_batch_size: 32}
ddp: {overlap_grad_reduce: true, use_distributed_optimizer: false}
mixed_precision: bf16_with_mxfp8_mixed
checkpoint: {save: x}
"""
ARGUMENTS = """
ENV_VARS: {NVTE_FLASH_ATTN: 0, NVTE_FUSED_ATTN: 0}
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --max-position-embeddings: 1024
  --micro-batch-size: 4
  --global-batch-size: 32
  --tensor-model-parallel-size: 2
  --sequence-parallel: true
  --bf16: true
  --use-distributed-optimizer: false
  --no-gradient-accumulation-fusion: true
"""


def read(text, name="job.yaml", *others):
    file = JobFile(Path(name), text)
    (reader,) = (one for one in READERS if isinstance(one, DocumentReader) and one.recognises(file))
    return reader, reader.read(file, Context(files=tuple(others)))


@pytest.mark.parametrize(
    ("text", "form", "pins", "fields"),
    [
        (json.dumps(NEOX), "gpt-neox", {"tp": 2, "pp": 4, "zero_stage": 1, "micro_batch_size": 4, "steps": 32,
                                        "recompute": "full"}, {"precision": "fp16", "stack": "gpt-neox"}),
        (PRIMUS, "primus", {"tp": 2, "zero_stage": 1, "micro_batch_size": 2},
         {"precision": "bf16", "model": "llama3.1_8B", "cluster": "mi300x-8x"}),
        (NEMO, "nemo", {"tp": 4, "pp": 4, "vpp": 5, "zero_stage": 1, "recompute": "none", "sequence_parallel": "true"},
         {"gpus": 128, "precision": "fp8", "seq_length": 4096}),
        (FLAGSCALE, "flagscale", {"tp": 8, "pp": 4, "zero_stage": 1}, {"precision": "bf16", "global_batch_size": 1056}),
        (BRIDGE, "megatron-bridge", {"tp": 2, "zero_stage": 0, "micro_batch_size": 2}, {"precision": "mxfp8"}),
        (ARGUMENTS, "megatron-args", {"tp": 2, "zero_stage": 0, "sequence_parallel": "true"}, {"precision": "bf16"}),
    ],
)  # fmt: skip
def test_a_configuration_is_known_by_its_content_and_read_by_its_own_names(text, form, pins, fields):
    reader, found = read(text)
    assert reader.form == form
    assert pins.items() <= found.pins.items()
    assert fields.items() <= found.fields.items()
    assert not any(line.startswith("not read") for line in found.unpriced), found.unpriced


def test_switches_of_tables_are_on_and_off_as_they_say():
    changes = read(NEMO)[1].fields["changes"]
    assert changes["stack.overlap_grad_reduce"] is True
    assert changes["stack.overlap_param_gather"] is False
    assert changes["stack.tp_comm_overlap"] is True
    assert read(PRIMUS)[1].fields["changes"]["stack.gradients.accumulate_traffic"] == 10
    assert read(ARGUMENTS)[1].fields["changes"]["stack.attention_backend"] == "unfused"
    assert read(BRIDGE)[1].fields["changes"]["stack.overlap_grad_reduce"] is True


def test_widths_are_those_that_the_programs_compute():
    def width(text):
        return read(text)[1].fields["model"]["ffn_hidden_size"]

    assert width(FLAGSCALE) == 28672
    assert width(json.dumps(NEOX)) == 4 * 6144
    llama = {**NEOX, "hidden_size": 4096, "intermediate_size": 32768, "mlp_multiple_of": 256, "activation": "swiglu"}
    assert width(json.dumps(llama)) == 11008


def test_a_variable_s_value_takes_the_place_of_the_usual_one():
    file = JobFile(Path("job.yaml"), PRIMUS)
    (reader,) = (one for one in READERS if isinstance(one, DocumentReader) and one.recognises(file))
    assert reader.read(file, Context(environment={"PRIMUS_TP": "4"})).pins["tp"] == 4


def test_gpt_neox_takes_one_job_from_several_files():
    sizes = {name: NEOX[name] for name in ("num_layers", "hidden_size", "num_attention_heads", "pos_emb")}
    rest = {name: value for name, value in NEOX.items() if name not in sizes}
    _, found = read(json.dumps(sizes), "model.json", JobFile(Path("train.yml"), json.dumps(rest)))
    assert (found.fields["model"]["num_layers"], found.pins["pp"], found.fields["seq_length"]) == (44, 4, 2048)
    assert found.fields["model"]["parallel_block"]


def test_layers_of_gpt_neox_that_are_no_full_attention_are_said_or_refused():
    sparse = json.dumps(NEOX | {"attention_config": [[["local", "global"], "all"]]})
    assert any("layers of local are priced with full attention" in line for line in read(sparse)[1].unpriced)
    assert not any("full attention" in line for line in read(json.dumps(NEOX))[1].unpriced)
    with pytest.raises(BadRequest, match="layers of gmlp are not priced"):
        read(json.dumps(NEOX | {"attention_config": [[["gmlp"], "all"]]}))


@pytest.mark.parametrize("name", ["intermediate_size", "expansion_factor", "mlp_multiple_of"])
def test_a_width_of_gpt_neox_that_is_no_number_is_refused(name):
    with pytest.raises(BadRequest, match=rf"{name} wide.*: expected numbers"):
        read(json.dumps(NEOX | {name: "wide"}))


def test_gpt_neox_without_a_pipeline_module_has_one_stage():
    assert read(json.dumps({**NEOX, "pipe_parallel_size": 0}))[1].pins["pp"] == 1


def test_encoders_of_nemo_are_refused_and_bert_s_are_said():
    model = {"micro_batch_size": 1, "num_layers": 2, "hidden_size": 256, "num_attention_heads": 2}
    model |= {"encoder_seq_length": 512, "max_position_embeddings": 512}
    trainer = {"devices": 8, "num_nodes": 1}
    bert = json.dumps({"trainer": trainer, "model": model | {"bert_binary_head": True}})
    assert any("bidirectional" in line for line in read(bert)[1].unpriced)
    parts = {"encoder": {"num_layers": 2}, "decoder": {"num_layers": 2}}
    with pytest.raises(BadRequest, match=r"model\.encoder with model\.decoder is not priced"):
        read(json.dumps({"trainer": trainer, "model": model | parts}))


def test_blocks_of_another_kind_are_refused():
    with pytest.raises(BadRequest, match="gmlp: other layers than attention"):
        read(json.dumps({**NEOX, "gmlp": True}))


def test_overrides_of_a_recipe_are_read_with_its_model():
    words = "torchrun run_recipe.py --recipe llama3_8b_pretrain_config model.tensor_model_parallel_size=2 "
    words += "model.seq_length=8192 train.global_batch_size=128 train.micro_batch_size=2 mixed_precision=bf16_mixed"
    launch = Launch(tuple(words.split()))
    (reader,) = (one for one in READERS if isinstance(one, CommandReader) and one.recognises(launch))
    found = reader.read(launch, Context())
    assert reader.form == "megatron-bridge"
    assert found.fields["model"] == "llama3-8b"
    assert (found.pins["tp"], found.pins["micro_batch_size"]) == (2, 2)
    assert (found.fields["global_batch_size"], found.fields["seq_length"]) == (128, 8192)
    assert any("other settings of the recipe are not read" in line for line in found.assumed)


def test_the_actor_of_verl_is_read_from_overrides():
    actor = "actor_rollout_ref.actor."
    words = (
        "python3", "-m", "verl.trainer.main_ppo", "--config-path=config", "data.max_prompt_length=1024",
        "data.max_response_length=3072", "trainer.nnodes=4", "trainer.n_gpus_per_node=8",
        "actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B", f"{actor}ppo_mini_batch_size=128",
        "actor_rollout_ref.rollout.n=4",
        f"{actor}megatron.tensor_model_parallel_size=2", f"{actor}megatron.expert_model_parallel_size=8",
        f"{actor}megatron.virtual_pipeline_model_parallel_size=null", f"{actor}megatron.param_offload=True",
        f"+{actor}megatron.override_transformer_config.recompute_granularity=full",
        f"+{actor}megatron.override_transformer_config.recompute_method=uniform",
        f"+{actor}megatron.override_transformer_config.recompute_num_layers=1",
    )  # fmt: skip
    launch = Launch(words)
    (reader,) = (one for one in READERS if isinstance(one, CommandReader) and one.recognises(launch))
    found = reader.read(launch, Context())
    assert (found.fields["gpus"], found.fields["seq_length"], found.fields["precision"]) == (32, 4096, "bf16")
    assert (found.pins["tp"], found.pins["ep"], found.pins["recompute"]) == (2, 8, "full")
    assert found.fields["global_batch_size"] == 512
    assert any(line.startswith("--verl.param-offload is not priced") for line in found.unpriced)


INTERNEVO = """
SEQ_LEN = 2048
LAYERS = 16 * 2
data = dict(seq_len=SEQ_LEN, micro_num=4, micro_bsz=1, total_steps=20)
hybrid_zero_optimizer = dict(overlap_sync_grad=True, overlap_sync_param=False)
model = dict(
    checkpoint=True, num_layers=LAYERS, hidden_size=4096, num_attention_heads=32, num_kv_attention_heads=8,
    vocab_size=92544, mlp_ratio=3.5, no_bias=True, dtype="torch.bfloat16", odd_option=3,
)
parallel = dict(zero1=dict(size=8), tensor=dict(size=2, mode="msp"), pipeline=dict(size=2), weight=dict(size=1))
"""


def test_tables_of_internevo_are_read_without_running_them():
    reader, found = read(INTERNEVO, "job.py")
    assert reader.form == "internevo"
    sizes = {"num_layers": 32, "ffn_hidden_size": 14336, "num_query_groups": 8}
    assert sizes.items() <= found.fields["model"].items()
    pins = {"tp": 2, "pp": 2, "steps": 4, "zero_stage": 1, "sharding_degree": 8, "recompute": "full"}
    assert pins.items() <= found.pins.items()
    assert found.pins["sequence_parallel"] == "true"
    assert found.fields["changes"]["stack.overlap_grad_reduce"] is True
    assert "not read, so their effect on time and memory is not priced: --model.odd-option" in found.unpriced


def test_ranks_that_share_weights_alone_are_refused_in_internevo():
    with pytest.raises(BadRequest, match=r"parallel\.tensor\.mode: 'isp' is not priced; mtp, msp, fsp are"):
        read(INTERNEVO.replace("msp", "isp"), "job.py")


ABOVE = "model: {tensor_model_parallel_size: 2}\ntrain: {global_batch_size: 64, micro_batch_size: 1}\n"
NARROW = "use_precision_aware_optimizer: true, exp_avg_dtype: torch.bfloat16, exp_avg_sq_dtype: torch.bfloat16"


def test_settings_above_a_recipe_of_megatron_bridge_train_in_its_16_bits_unless_they_say_another():
    _, plain = read(f"{ABOVE}optimizer: {{{NARROW}}}\n")
    assert (plain.fields["precision"], plain.fields["optimizer"]) == ("bf16", "adam-bf16")
    assert any(line.startswith("mixed_precision is not given; bf16 is priced") for line in plain.assumed)
    _, other = read(f"{ABOVE}ddp: {{}}\nmixed_precision: fp16_mixed\n")
    assert other.fields["precision"] == "fp16"


SWIFT = """
model: Qwen/Qwen3-30B-A3B
tuner_type: lora
lora_rank: 8
max_length: 2048
micro_batch_size: 2
global_batch_size: 16
expert_model_parallel_size: 4
sequence_parallel: true
train: {gpus: 4, tensor_model_parallel_size: 2}
"""


def test_a_configuration_of_ms_swift_on_megatron_is_read_alone_and_from_its_command_line():
    alone = read_job([JobFile(Path("sft.yaml"), SWIFT)], Context(disk=False)).job
    assert {"tp": 2, "ep": 4, "micro_batch_size": 2, "zero_stage": 1}.items() <= alone.pins.items()
    assert (alone.fields["gpus"], alone.fields["global_batch_size"], alone.fields["adapters"]) == (4, 16, "8")
    script = JobFile(Path("run.sh"), "NPROC_PER_NODE=8 \\\nmegatron sft \\\n    sft.yaml --lora_rank 16\n")
    started = read_job([script, JobFile(Path("sft.yaml"), SWIFT)], Context(disk=False)).job
    assert (started.fields["adapters"], started.pins["tp"]) == ("16", 2)
    lost = read_job([script], Context(disk=False)).job
    assert lost.missing == ("sft.yaml has the options, but is not here; give that file too",)


def test_an_experiment_of_flagscale_names_the_file_that_has_the_options():
    experiment = """
    defaults: [_self_, {train: 70b}]
    experiment: {task: {type: train, backend: megatron}, runner: {nnodes: 4, nproc_per_node: 8}}
    """
    file = JobFile(Path("train.yaml"), experiment)
    found = read_job([file, JobFile(Path("train/70b.yaml"), FLAGSCALE)], Context(disk=False)).job
    assert (found.fields["gpus"], found.fields["model"]["num_layers"]) == (32, 80)
    assert "train/70b.yaml has the options" in read_job([file], Context(disk=False)).job.missing[0]


def test_a_recipe_of_llama_factory_with_degrees_of_megatron_trains_on_it():
    recipe = """
    {model_name_or_path: Qwen/Qwen3-30B-A3B, stage: sft, finetuning_type: full, cutoff_len: 4096, bf16: true,
     per_device_train_batch_size: 1, gradient_accumulation_steps: 8, pipeline_model_parallel_size: 4,
     expert_model_parallel_size: 2, use_distributed_optimizer: true, recompute_granularity: full}
    """
    _, found = read(recipe)
    assert {"pp": 4, "ep": 2, "steps": 8, "recompute": "full", "zero_stage": 1}.items() <= found.pins.items()
    assert (found.fields["seq_length"], found.unpriced) == (4096, ())


def test_outer_stages_of_a_model_that_is_named_are_those_of_its_layers():
    text = SWIFT.replace("sequence_parallel: true", "{pipe}").replace("expert_model_parallel_size: 4", "pad: 1")
    pipe = "pipeline_model_parallel_size: 4\nnum_layers_in_last_pipeline_stage: 9"
    assert read(text.replace("{pipe}", pipe))[1].layers == (13, 13, 13, 9)
    unknown = read(text.replace("{pipe}", pipe).replace("Qwen/Qwen3-30B-A3B", "some/model"))[1]
    assert any("not priced without --num-layers: stages are even" in line for line in unknown.unpriced)
