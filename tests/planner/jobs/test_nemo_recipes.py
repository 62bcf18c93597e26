"""NeMo 2's recipes: what the table says of them, what a script sets, and what it leaves open."""

from pathlib import Path

import pytest

from costmodels.model.catalogue import model
from planner.errors import BadRequest
from planner.jobs.nemo.python import known_recipes, recipes_in
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.readers import READERS

SCRIPT = """
from nemo.collections import llm

def configure(nodes: int = 2):
    recipe = llm.llama3_70b.pretrain_recipe(name="x", num_nodes=nodes, num_gpus_per_node=8)
    {}
    return recipe
"""


def read(text, **more):
    file = JobFile(Path("recipe.py"), text)
    (reader,) = (one for one in READERS if isinstance(one, DocumentReader) and one.recognises(file))
    return reader.read(file, Context(**more))


def test_every_recipe_of_the_table_is_of_a_known_model_whose_layers_its_stages_share_out():
    assert len(known_recipes()) > 40
    for name, row in known_recipes().items():
        layers = model(row["model"]).num_layers + 2 * row.get("ends", False)
        assert layers % (row.get("pp", 1) * row.get("vpp", 1)) == 0, name


def test_ends_that_count_as_layers_leave_the_outer_stages_fewer():
    words = ("nemo", "llm", "pretrain", "--factory", "llama31_405b(num_nodes=64)")
    (reader,) = (one for one in READERS if isinstance(one, CommandReader) and one.recognises(Launch(words)))
    assert reader.read(Launch(words), Context()).layers == (15, *[16] * 6, 15)


def test_what_a_script_leaves_to_the_recipe_is_the_recipe_s():
    job = read(SCRIPT.format("recipe.trainer.max_steps = 100"))
    assert (job.fields["model"], job.fields["gpus"], job.fields["global_batch_size"]) == ("llama3-70b", 16, 512)
    assert {"tp": 4, "pp": 4, "vpp": 5, "cp": 2, "sequence_parallel": "true"}.items() <= job.pins.items()
    assert (job.length.count, job.length.of) == (100, "iterations")


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("recipe.trainer.strategy.tensor_model_parallel_size = 8", "tp", 8),
        ("recipe.data.micro_batch_size = 2", "micro_batch_size", 2),
        ("recipe.data = run.Config(Module, seq_length=4096, micro_batch_size=4)", "micro_batch_size", 4),
        ("recipe.trainer.strategy.virtual_pipeline_model_parallel_size = None", "vpp", 1),
        ("recipe.model.config.recompute_granularity = 'selective'", "recompute", "selective"),
    ],
)
def test_what_a_script_sets_stands_above_the_recipe(line, name, value):
    assert read(SCRIPT.format(line)).pins[name] == value


def test_formats_are_those_of_the_plugins():
    line = "recipe.trainer.plugins = bf16_with_fp8_current_scaling_mixed()"
    assert read(SCRIPT.format(line)).fields["precision"] == "fp8-current"


@pytest.mark.parametrize(
    ("line", "field", "option"),
    [
        ("recipe.data.global_batch_size = size()", "global_batch_size", "--global-batch-size"),
        ("if fast:\n        recipe.trainer.strategy.context_parallel_size = 8", "pins.cp", "--cp"),
    ],
)
def test_what_is_no_constant_is_asked_for(line, field, option):
    job = read(SCRIPT.format(line))
    assert job.unsaid[field].startswith(option)
    assert field.removeprefix("pins.") not in {**job.fields, **job.pins}


def test_degrees_of_recipes_that_are_not_known_are_asked_for():
    job = read(SCRIPT.format("pass").replace("llama3_70b.pretrain", "llama3_70b.finetune"))
    assert {"pins.tp", "pins.pp", "pins.cp"} <= set(job.unsaid)
    assert job.fields["model"] == "llama3-70b"
    other = read(SCRIPT.format("pass").replace("llama3_70b", "own_3b"))
    assert {"pins.tp", "global_batch_size", "seq_length"} <= set(other.unsaid)
    assert "model" not in other.fields


def test_of_several_recipes_one_is_chosen():
    text = SCRIPT.format("pass") + SCRIPT.format("pass").replace("llama3_70b", "llama3_8b")
    assert "--launch N says which of its 2 recipes" in read(text).missing[0]
    assert read(text, launch=2).fields["model"] == "llama3-8b"
    with pytest.raises(BadRequest, match="there is no recipe 3"):
        read(text, launch=3)


def test_every_arm_that_calls_a_recipe_is_one():
    arms = "if big:\n    r = llm.llama3_70b.pretrain_recipe()\nelse:\n    r = llm.llama3_8b.pretrain_recipe()\n"
    found = recipes_in(f"{arms}r.data.seq_length = 4096\n")
    assert [(one.name, one.values["data.seq_length"]) for one in found] == [("llama3_70b", 4096), ("llama3_8b", 4096)]


def test_a_factory_of_the_command_line_is_a_recipe():
    words = ("nemo", "llm", "pretrain", "--factory", "llama3_8b(num_nodes=4)", "data.global_batch_size=256")
    (reader,) = (one for one in READERS if isinstance(one, CommandReader) and one.recognises(Launch(words)))
    job = reader.read(Launch(words), Context())
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.pins["cp"]) == (32, 256, 2)


BRIDGE = """
LENGTH: int = 16384

def llama3_8b_pretrain_16gpu_h100_bf16_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    cfg.dataset.seq_length = LENGTH
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.context_parallel_size = 2
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 512
    cfg.train.micro_batch_size = 1
    cfg.ddp.use_distributed_optimizer = True
    {}
    return cfg
"""


def test_a_recipe_of_megatron_bridge_is_what_it_sets():
    job = read(BRIDGE.format("cfg.mixed_precision = bf16_with_fp8_current_scaling_mixed()"))
    assert (job.fields["model"], job.fields["gpus"], job.fields["seq_length"]) == (
        "meta-llama/Meta-Llama-3-8B", 16, 16384
    )  # fmt: skip
    assert {"tp": 4, "cp": 2, "pp": 1, "sequence_parallel": "true", "zero_stage": 1}.items() <= job.pins.items()
    assert job.fields["precision"] == "fp8-current"
    assert not job.unsaid


def test_what_a_script_leaves_to_a_recipe_of_megatron_bridge_is_asked_for():
    job = read(
        "cfg = llama3_8b_pretrain_config()\ncfg.model.tensor_model_parallel_size = 2\ncfg.train.train_iters = 10\n"
    )
    assert (job.fields["model"], job.pins["tp"]) == ("llama3-8b", 2)
    assert {"pins.pp", "pins.cp", "global_batch_size", "seq_length"} <= set(job.unsaid)
    adapted = read(BRIDGE.format("pass").replace("_pretrain_common", "_peft_common"))
    assert adapted.unsaid["adapters"].startswith("--adapters")


def test_branches_without_end_are_read_up_to_a_number():
    arms = "".join(f"if x{at}:\n    r = llm.llama3_8b.pretrain_recipe()\n" for at in range(40))
    assert len(recipes_in(arms)) == 64
