"""llm-foundry's YAML: MPT by its sizes, Transformers' models by name, and the variables that it refers to."""

from pathlib import Path

import pytest

from costmodels.model.parameters import parameters
from planner.errors import BadRequest
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.readers import READERS
from planner.request.tables import model_of

MPT = """
variables: {max_seq_len: 2048}
max_seq_len: ${variables.max_seq_len}
model: {name: mpt_causal_lm, d_model: 2048, n_heads: 16, n_layers: 24, vocab_size: 50368,
        attn_config: {attn_impl: triton}}
global_train_batch_size: 512
device_train_microbatch_size: 8
precision: amp_bf16
optimizer: {name: decoupled_lionw}
max_duration: 1000ba
fsdp_config: {sharding_strategy: SHARD_GRAD_OP, mixed_precision: PURE, activation_checkpointing: true}
"""


def read(text, *, known=()):
    file = JobFile(Path("a.yaml"), text)
    (reader,) = (one for one in READERS if isinstance(one, DocumentReader) and one.recognises(file))
    return reader.read(file, Context(known=known))


def test_an_mpt_is_read_with_the_variables_that_it_refers_to():
    job = read(MPT)
    assert (job.fields["seq_length"], job.fields["global_batch_size"], job.fields["precision"]) == (2048, 512, "bf16")
    assert (job.pins["micro_batch_size"], job.pins["zero_stage"], job.pins["recompute"]) == (8, 2, "full")
    assert job.fields["optimizer"] == "lion"
    assert job.fields["changes"]["stack.attention_backend"] == ["flash-1"]
    assert job.length.tokens(512, 2048) == 1000 * 512 * 2048
    # Embedding and positions, and layers of 12 squares of the width with their biases and norms.
    layers = 24 * (12 * 2048**2 + 13 * 2048)
    assert parameters(model_of(job.fields["model"])) == (50368 + 2048) * 2048 + layers + 2 * 2048


def test_a_model_of_the_hub_is_tuned_unless_it_starts_untrained():
    text = MPT.replace("name: mpt_causal_lm", "name: hf_causal_lm, pretrained_model_name_or_path: llama3-8b")
    assert (read(text).fields["model"], read(text).fields["task"]) == ("llama3-8b", "finetune")
    adapted = read(text.replace("llama3-8b,", "llama3-8b, peft_config: {r: 8, target_modules: [q_proj, v_proj]},"))
    assert adapted.fields["adapters"] == "8:linear_qkv/autocast"


def test_a_micro_batch_that_is_found_while_it_runs_is_asked_for():
    assert "--micro-batch-size says it" in read(MPT.replace("microbatch_size: 8", "microbatch_size: auto")).missing[0]


def test_experts_of_mpt_are_refused_by_name():
    text = MPT.replace("attn_config:", "ffn_config: {ffn_type: mb_dmoe}, attn_config:")
    with pytest.raises(BadRequest, match="mb_dmoe: experts of MPT are not priced"):
        read(text)
    assert "model" not in read(text, known={"model"}).fields


def test_a_command_line_overrides_its_file():
    words = "composer train/train.py a.yaml global_train_batch_size=64 model.n_layers=2 max_duration=1ep"
    launch = Launch(tuple(words.split()), written={"a.yaml": MPT})
    (reader,) = (one for one in READERS if isinstance(one, CommandReader) and one.recognises(launch))
    job = reader.read(launch, Context())
    assert (job.fields["global_batch_size"], job.fields["model"]["num_layers"], job.length) == (64, 2, None)
