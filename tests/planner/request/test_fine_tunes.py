"""Fine-tunes as they are asked for: what is taken where nothing is said, and what is refused."""

import pytest
from click.testing import CliRunner

from planner import PlanRequest, predict
from planner.cli import main
from planner.errors import BadRequest
from planner.request.fine_tune import fine_tune_batch
from planner.request.resolve import resolve
from planner.search.question import resolve_search

SMALL = {"model": "qwen2.5-0.5b", "gpus": 8, "seq_length": 1024, "reasons": False}


def asked(**fields):
    return resolve(PlanRequest(**SMALL | fields))


def test_a_fine_tune_takes_a_fine_tunes_batch_tokens_and_framework():
    found = asked(task="sft")
    assert (found.scenario.global_batch_size, found.tokens, found.scenario.stack.name) == (64, 100_000_000, "fsdp")
    assert "global batch 64 sequences (a fine-tune: 64 or more)" in found.defaults
    assert "stack fsdp (a fine-tune)" in found.defaults
    assert any(line.startswith("every sequence is full") for line in found.defaults)
    assert asked().scenario.stack.name == "megatron-core"
    assert asked(task="sft", pins={"pp": 2}).scenario.stack.name == "megatron-core", "which has pipelines"


@pytest.mark.parametrize(
    ("stack", "framework"), [("fsdp", "accelerate"), ("nemo", "megatron-bridge"), ("megatron-core", "megatron-bridge")]
)
def test_a_search_with_adapters_keeps_to_what_the_framework_that_trains_them_starts(stack, framework):
    found = resolve_search(PlanRequest(**SMALL, adapters="16", stack=stack))
    assert found.scenario.framework == framework
    assert found.defaults[-1] == f"a plan that {framework} starts (--for any allows others)"


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({"model": "llama3-8b", "adapters": "16"}, 2048),
        ({"model": "llama3-8b", "task": "dpo"}, 2048),
        ({"model": "gpt2-xl", "task": "sft"}, 1024),
        ({"model": "llama3-8b", "task": "sft", "document_length": 4096}, 8192),
        ({"model": "llama3-8b", "task": "sft", "seq_length": 8192}, 8192),
        ({"model": "llama3-8b"}, 8192),
    ],
)
def test_sequences_of_a_fine_tune_are_as_long_as_its_recipes_take_them(fields, length):
    found = asked(**{"seq_length": None} | fields)
    assert found.scenario.seq_length == length
    said = any(line == "sequence length 2048 (a fine-tune's; --seq-len asks for more)" for line in found.defaults)
    assert said == (length == 2048)


@pytest.mark.parametrize(("gpus", "batch"), [(1, 64), (8, 64), (24, 96), (100, 100)])
def test_the_batch_is_gpus_times_a_power_of_two(gpus, batch):
    assert fine_tune_batch(gpus) == batch


def test_adapters_under_transformers_are_pefts_and_their_weights_have_16_bits():
    switches = asked(adapters="16").scenario.stack.switches
    assert (switches.adapters.kernels, switches.base_precision, switches.task) == ("autocast", "bf16", "finetune")
    said = asked(adapters="16/32-bit", base_precision="nf4").scenario.stack.switches
    assert (said.adapters.kernels, said.base_precision) == ("32-bit", "nf4")
    assert asked(adapters="16", stack="megatron-core").scenario.stack.switches.adapters.kernels == "summed"


def test_the_reference_is_the_adapters_off_or_a_copy():
    assert asked(task="dpo", adapters="16").scenario.stack.switches.reference_model == "adapters-off"
    found = asked(task="dpo")
    assert found.scenario.stack.switches.reference_model == "copy"
    assert "reference model: copy" in found.defaults
    assert "a sample of dpo is 2 sequences of 1024 tokens each" in found.defaults
    assert asked(task="dpo", reference_model="none").scenario.stack.switches.reference_model == "none"
    assert asked(task="orpo").scenario.stack.switches.reference_model == "none"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"base_precision": "nf4"}, "base_precision nf4 is for frozen weights, and all weights train; adapters 16"),
        ({"frozen_layers": 24}, "frozen_layers 24: qwen2.5-0.5b has 24 layers; 23 or fewer work"),
        ({"frozen_layers": 2, "adapters": "16"}, "freeze all weights; leave out frozen_layers, frozen_embeddings"),
        (
            {"task": "simpo", "reference_model": "copy"},
            "reference_model copy: task simpo has no reference model; dpo and kto have one",
        ),
        ({"task": "dpo", "reference_model": "adapters-off"}, "adapters-off needs adapters to switch off; copy works"),
    ],
)
def test_what_contradicts_itself_is_refused_with_what_works(fields, said):
    with pytest.raises(BadRequest, match=said):
        asked(**fields)


def test_generation_is_refused_in_a_line():
    with pytest.raises(BadRequest, match="generates its own samples"):
        PlanRequest(**SMALL, task="grpo")
    told = CliRunner().invoke(main, ["predict", "--model", "qwen2.5-0.5b", "--gpus", "8", "--task", "ppo"])
    assert told.exit_code == 2
    assert "generates its own samples, which has no price" in told.output


def test_four_bits_save_the_weights_and_nothing_else_on_the_command_line():
    line = ["predict", "--model", "llama3-70b", "--gpus", "8", "--adapters", "16", "--zero", "3", "--seq-len", "2048"]
    wide, narrow = (CliRunner().invoke(main, [*line, *more]) for more in ([], ["--base-precision", "nf4"]))
    assert narrow.exit_code == 0
    assert "likely to run out" in wide.output
    assert "likely to run out" not in narrow.output
    assert "frozen weights in bf16 (--base-precision)" in wide.output
    one, other = (
        predict(PlanRequest(**SMALL, adapters="16", base_precision=name, pins={"zero_stage": 3})).memory_bytes[0]
        for name in ("bf16", "nf4")
    )
    assert other.weights < one.weights
    assert other.gradients == one.gradients
    assert other.optimizer == one.optimizer


def test_an_answer_asks_the_same_again():
    first = predict(PlanRequest(**SMALL, task="dpo", adapters="16", base_precision="nf4", document_length=256))
    named = ("model", "cluster", "stack", "task", "adapters", "base_precision", "document_length", "global_batch_size")
    again = predict(PlanRequest(gpus=8, seq_length=1024, **{name: first.request[name] for name in named}))
    assert again.prediction.iteration_seconds == first.prediction.iteration_seconds
    assert again.memory_bytes == first.memory_bytes


def test_what_no_measured_run_trains_is_outside_the_validated_region():
    asked = PlanRequest(**SMALL, task="dpo", document_length=256, frozen_layers=4, pins={"zero_stage": 3})
    told = " ".join(predict(asked).warnings)
    for words in (
        "direct preference optimisation (measured: pretraining)",
        "packed documents",
        "frozen layers (no measured run)",
    ):
        assert words in told
    assert "against pretraining" not in " ".join(predict(PlanRequest(**SMALL, task="sft")).warnings)
