"""What was written is read back as the same plan: strategy, layers, batch, sequence, precision and optimizer."""

import pytest

from planner import PlanRequest, predict
from planner import plan as ask
from planner.analyses.read_job import read_job
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.imported import complete
from planner.jobs.job import Inexpressible, assumed_stack, broken, job_of
from planner.jobs.reader import CommandReader, DocumentReader
from planner.jobs.readers import READERS
from planner.jobs.registry import TARGETS, export
from tests.conformance.plans import label, random_plans
from tests.planner.jobs.scripts import import_job

READ = {
    one.framework or one.form: one.form for one in reversed(READERS) if isinstance(one, DocumentReader | CommandReader)
}
READ = {name: form for name, form in READ.items() if name in FRAMEWORKS and TARGETS[name].write}
READ.pop("megatron-bridge")  # its recipes have sizes and habits that its overrides leave out
PLANS = 20
VERSIONS = {"torchtitan": "0.2"}
"""Those that are read, where they are not the usual ones."""
HOSTED = {"pins": (("offload", "any"),)}
CHOICES = {
    "megatron-lm": (
        {}, HOSTED, {"offload_fraction": 0.5, **HOSTED}, {"optimizer": "adam-bf16"}, {"optimizer": "adam-8bit"},
        {"optimizer": "sgd"}, {"optimizer": "muon"}, {"main_params": "fp16"}, {"main_grads": "bf16"},
        {"expert_capacity": 1.5}, {"seq_length": 8192}, {"fp8_param_gather": True},
    ),
    "deepspeed": ({}, HOSTED, {"seq_length": 8192}),
    "torchtitan": ({}, HOSTED, {"seq_length": 8192}),
    "accelerate": ({}, HOSTED),
    "nanotron": ({}, {"optimizer": "sgd"}, {"seq_length": 8192}),
    "maxtext": ({}, HOSTED, {"optimizer": "muon"}, {"seq_length": 8192}, {"cluster": "tpu-v5p-pod"}),
}  # fmt: skip
PRECISIONS = {
    "megatron-lm": ("bf16", "fp16", "fp32", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4"),
    "deepspeed": ("bf16", "fp16", "fp32"),
    "torchtitan": ("bf16", "fp32", "fp8-current", "fp8-rowwise", "mxfp8"),
    "accelerate": ("bf16", "fp16", "fp32", "fp8", "fp8-current"),
    "nanotron": ("bf16", "fp32"),
    "maxtext": ("bf16", "fp32", "int8", "fp8", "fp8-current", "mxfp8"),
}
MODELS = {"torchtitan": ("llama3-8b", "llama3-70b"), "megatron-lm": ("llama3-8b", "qwen2.5-7b", "mixtral-8x7b")}
MODELS |= {"nanotron": ("llama3-8b", "llama2-7b", "llama3-70b"), "maxtext": ("llama3-8b", "llama-7b", "mixtral-8x7b")}
OF_THE_SCRIPT = {
    "deepspeed": ("pp", "vpp", "schedule", "ep", "etp", "recompute", "recompute_num_layers"),
    "accelerate": ("micro_batch_size", "sequence_parallel", "recompute"),
}
"""Axes that are set in a training script, not in a framework's files."""
STATES = ("switches.optimizer", "switches.main_params", "gradients.gradient_bytes", "switches.expert_capacity")
SHARDED = ("switches.fp8_param_gather",)
OFFLOADED = ("switches.offload_fraction",)


def read_back(plan, name, path):
    """The question that the written file asks, predicted."""
    made = export(plan, name, version=VERSIONS.get(name))
    path.write_text(next(iter(made.files.values())))
    job = import_job(READ[name], path)
    own = {axis: getattr(plan.strategy, axis) for axis in OF_THE_SCRIPT.get(name, ())}
    fields, pins = complete(job.fields | {"gpus": plan.request["gpus"]}, own | job.pins)
    usual = {"model": plan.request["model"], "cluster": plan.request["cluster"]}
    if name in OF_THE_SCRIPT:
        usual |= {field: plan.request[field] for field in ("seq_length", "global_batch_size")}
    asked = PlanRequest(**(usual | fields), framework=name, pins=pins, reasons=False, top=0)
    return predict(asked, layers=job.layers, recomputed=job.recomputed)


def states(plan, name):
    """What a framework's files say of the optimizer and of its states."""
    stack = assumed_stack(plan.request)
    named = [*(STATES if name == "megatron-lm" else ()), *(SHARDED if name == "megatron-lm" and sharded(plan) else ())]
    named += OFFLOADED if plan.strategy.offload.startswith("optimizer") else ()
    return {one: stack.value(one) for one in named}


def sharded(plan):
    """Weights in 8 bits are gathered by the distributed optimizer alone; without it a remark says that they are not."""
    return plan.strategy.zero_stage > 0


def writable(plan, name):
    """All but what the framework's version lacks; Megatron-LM adds gradients of fp32 up in fp32."""
    if name in VERSIONS:
        return not any(broken(job_of(plan), name, version=VERSIONS[name]))
    return (plan.request.get("main_grads"), plan.request["precision"]) != ("bf16", "fp32")


def test_every_framework_with_a_reader_and_a_writer_is_tried():
    assert set(READ) == set(CHOICES) == set(PRECISIONS)


@pytest.mark.parametrize("name", READ)
def test_a_plan_that_was_written_is_read_back_as_the_same_plan(name, tmp_path, pytestconfig):
    count = PLANS * pytestconfig.getoption("--examples")
    more = {"models": MODELS[name]} if name in MODELS else {}
    plans = random_plans(name, count, seed=11, precisions=PRECISIONS[name], choices=CHOICES[name], **more)
    tried = [plan for plan in plans if writable(plan, name)]
    for plan in tried:
        found = read_back(plan, name, tmp_path / "job")
        assert found.strategy == plan.strategy, label(plan)
        for field in ("precision", "seq_length", "global_batch_size", "gpus"):
            assert found.request[field] == plan.request[field], (field, label(plan))
        assert states(found, name) == states(plan, name), label(plan)
    assert len(tried) >= count // 2
    assert len({plan.strategy.model_dump_json() for plan in tried}) > count // 3


def test_what_only_the_newer_torchtitan_starts_is_refused_and_not_written_otherwise():
    pins = {"tp": 4, "sequence_parallel": True, "pp": 2, "zero_stage": 0}
    asked = PlanRequest(model="llama3-8b", gpus=8, framework="torchtitan", pins=pins, reasons=False, top=0)
    plan = predict(asked)
    assert export(plan, "torchtitan").files
    assert not writable(plan, "torchtitan")
    with pytest.raises(Inexpressible, match="no ZeRO stage 0 with 4 tensor ranks and 2 pipeline stages"):
        export(plan, "torchtitan", version=VERSIONS["torchtitan"])


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "gpt-oss-20b", "gpus": 1, "cluster": "azure-nd-h200-v5"},  # a GPU alone that offloads its optimizer
        {
            "model": "yuan2-51b",
            "gpus": 8,
            "cluster": "dgx-h100",
            "seq_length": 1000,
        },  # ranks without replicas, likewise
        {"model": "olmoe-1b-7b", "gpus": 32, "pins": {"ep": 1}},  # experts that no rank is apart from
    ],
)
def test_a_default_plan_for_megatron_is_read_back_with_its_price(asked, tmp_path):
    found = ask(PlanRequest(**asked, reasons=False))
    path = tmp_path / "megatron-args.sh"
    path.write_text(export(found, "megatron-lm").files["megatron-args.sh"])
    known = {name: found.request[name] for name in ("model", "cluster", "gpus")}
    again = predict(read_job(path, **known).request)
    assert again.strategy == found.strategy
    assert again.prediction.iteration_seconds == pytest.approx(found.prediction.iteration_seconds, rel=1e-3)


def test_states_on_the_host_of_a_lone_data_rank_are_read_back_at_the_same_price(tmp_path):
    asked = {"model": "llama3-8b", "gpus": 2, "stack": "megatron-core"}
    plan = ask(PlanRequest(**asked, pins={"tp": 2, "offload": "optimizer"}, reasons=False, top=0))
    found = read_back(plan, "megatron-lm", tmp_path / "job")
    assert found.prediction.iteration_seconds == plan.prediction.iteration_seconds
