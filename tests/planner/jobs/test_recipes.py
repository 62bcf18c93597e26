"""Recipes of trainers on Transformers: what was written is read back as the same plan, or was refused."""

from collections import Counter

import pytest

from planner import PlanRequest, predict
from planner.jobs.imported import complete
from planner.jobs.job import Inexpressible, assumed_stack
from planner.jobs.reader import Context
from planner.jobs.readers import read_job
from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans

ONE = (("tp", "1"), ("pp", "1"), ("ep", "1"), ("etp", "1"))
ALONE = {"pins": (*ONE, ("cp", "1"))}
HOSTED = {"pins": (*ALONE["pins"], ("offload", "any"))}
SPLIT = {"pins": ONE}
KERNELS = {"deepspeed": "16-bit", "accelerate": "autocast"}


def choices(framework):
    low_rank = {**ALONE, "adapters": f"16:linear_qkv,linear_proj/{KERNELS[framework]}+dropout"}
    return (
        ALONE, HOSTED, {**ALONE, "seq_length": 8192}, {**ALONE, "optimizer": "adafactor"},
        {**ALONE, "optimizer": "adam-8bit"},
        {**ALONE, "loss": "fused"}, low_rank, {**low_rank, "base_precision": "nf4"},
        {**low_rank, "base_precision": "nf4-double"}, {**ALONE, "task": "dpo"}, {**ALONE, "optimizer": "lamb"}, SPLIT,
    )  # fmt: skip


DENSE = ("llama3-8b", "qwen2.5-7b", "llama3.2-3b", "mistral-7b")
WRITTEN = [
    *((name, "deepspeed", "deepspeed") for name in ("trl", "llamafactory", "axolotl", "swift")),
    *((name, "accelerate", "transformers") for name in ("trl", "llamafactory")),
]
STATES = ("switches.optimizer", "switches.loss", "switches.adapters")
ASKED = ("precision", "seq_length", "global_batch_size", "gpus", "task", "base_precision")

USUAL = {"task": "finetune"}
"""What a recipe says where a plan does not."""


def read_back(plan, target, folder):
    made = export(plan, target)
    for name, text in made.files.items():
        (folder / name).write_text(text)
    names = [name for name in made.files if name != "ds_config.json"]
    job = read_job([folder / name for name in names], Context()).job
    assert not job.lacks
    assert not job.missing
    fields, pins = complete({"gpus": plan.request["gpus"], **job.fields}, job.pins)
    asked = PlanRequest(**{"cluster": plan.request["cluster"], **fields}, framework=job.framework, pins=pins,
                        reasons=False, top=0)  # fmt: skip
    return predict(asked)


def plain(plan):
    """A strategy without what only some stacks have a word for."""
    return plan.strategy.model_copy(update={"stages": ()})


@pytest.mark.parametrize(("target", "framework", "stack"), WRITTEN)
def test_a_recipe_is_read_back_as_the_same_plan(target, framework, stack, tmp_path, pytestconfig):
    count = 20 * pytestconfig.getoption("--examples")
    plans = random_plans(
        framework, count, seed=5, models=DENSE, precisions=("bf16", "fp16"), choices=choices(framework), stack=stack
    )
    seen = Counter()
    for plan in plans:
        try:
            found = read_back(plan, target, tmp_path)
        except Inexpressible as refused:
            seen[str(refused).split(": ")[-1][:16]] += 1
            continue
        assert plain(found) == plain(plan), label(plan)
        for field in ASKED:
            values = [one.request.get(field) or USUAL.get(field) for one in (plan, found)]
            assert values[0] == values[1], (field, label(plan))
        priced, again = (assumed_stack(one.request) for one in (plan, found))
        assert {one: priced.value(one) for one in STATES} == {one: again.value(one) for one in STATES}, label(plan)
        seen["written"] += 1
    assert seen["written"] >= count // 4, seen


def test_a_recipe_says_how_it_is_started():
    asked = {"model": "llama3-8b", "gpus": 8, "pins": {"zero_stage": 3}}
    sharded, zero = (predict(PlanRequest(**asked, stack=stack)) for stack in ("transformers", "deepspeed"))
    started = "start it on every machine with"
    assert f"{started} accelerate launch --config_file accelerate.yaml src/train.py recipe.yaml" in (
        export(sharded, "llamafactory").remarks
    )
    assert f"{started} torchrun --nproc-per-node 8 -m axolotl.cli.train recipe.yaml" in export(zero, "axolotl").remarks


@pytest.mark.parametrize("framework", ["trl", "axolotl", "llamafactory", "swift"])
def test_a_model_asked_for_by_its_name_on_a_hub_is_written_by_it(framework):
    asked = {"gpus": 8, "stack": "deepspeed", "task": "sft", "pins": {"zero_stage": 3}}
    named, short = (predict(PlanRequest(**asked, model=model)) for model in ("Qwen/Qwen3-8B", "qwen3-8b"))
    made = export(type(named).model_validate_json(named.to_json()), framework)
    assert "Qwen/Qwen3-8B" in f"{made.program} {list(made.files.values())}"
    assert not any("catalogue's name" in one for one in made.remarks)
    assert any("qwen3-8b is the catalogue's name" in one for one in export(short, framework).remarks)
    assert named.prediction == short.prediction


def test_what_a_trainer_lacks_is_refused_by_name():
    asked = {"model": "llama3-8b", "gpus": 8, "stack": "deepspeed", "reasons": False, "top": 0}
    two = predict(PlanRequest(**asked, pins={"tp": 2, "sequence_parallel": "false"}))
    with pytest.raises(Inexpressible, match="trl cannot start this plan: no tensor ranks 2"):
        export(two, "trl")
    sharded = predict(PlanRequest(**asked | {"stack": "transformers"}, pins={"zero_stage": 3}))
    with pytest.raises(Inexpressible, match="axolotl cannot start this plan: accelerate shards its states"):
        export(sharded, "axolotl")


def test_what_a_recipe_does_not_have_is_said():
    asked = {"model": "llama3-8b", "gpus": 8, "stack": "deepspeed", "reasons": False, "top": 0, "loss_block": 512}
    made = export(predict(PlanRequest(**asked, pins={"zero_stage": 3})), "llamafactory")
    assert any("loss_block 512 tokens" in one for one in made.remarks)


@pytest.mark.parametrize(
    ("target", "stack", "file", "written"),
    [
        ("trl", "transformers", "sft.yaml", "bnb_4bit_quant_storage: bfloat16"),
        ("trl", "deepspeed", "sft.yaml", "bnb_4bit_quant_storage: bfloat16"),
        ("swift", "deepspeed", "recipe.yaml", "bnb_4bit_quant_storage: bfloat16"),
        ("accelerate", "transformers", "accelerate.yaml", "bnb_4bit_quant_storage=torch.bfloat16"),
    ],
)
def test_frozen_weights_of_4_bits_are_packed_into_what_is_sharded(target, stack, file, written):
    asked = {"model": "llama3-8b", "gpus": 8, "stack": stack, "adapters": "16", "reasons": False, "top": 0}
    for stage in (2, 3):
        plan = predict(PlanRequest(**asked, base_precision="nf4", pins={"zero_stage": stage}))
        assert (written in export(plan, target).files[file]) is (stage == 3)
