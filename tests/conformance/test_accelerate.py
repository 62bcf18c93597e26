"""Accelerate: its loader and launcher on exported YAML, the variables that a script gets, the mesh that they make."""

import os
from types import SimpleNamespace

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils.launch import prepare_multi_gpu_env

from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans
from tests.conformance.world import rank_of

PLANS = random_plans("accelerate", 240, seed=11, precisions=("bf16", "bf16", "fp16", "fp32"))
NARROW = random_plans("accelerate", 60, seed=12, precisions=("fp8", "fp8-current", "fp8-rowwise"))


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """The launcher counts devices, of which there are none here."""
    for name in [name for name in os.environ if name.startswith(("FSDP", "PARALLELISM", "ACCELERATE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)


def variables(plan, folder):
    """What a script finds in its environment when it is launched with the exported file."""
    path = folder / "accelerate.yaml"
    path.write_text(export(plan, "accelerate").files["accelerate.yaml"], encoding="utf-8")
    loaded = load_config_from_file(str(path))
    arguments = launch_command_parser().parse_args(
        ["--config_file", str(path), "--main_process_ip", "10.0.0.1", "train.py"]
    )
    validated, _, _ = _validate_launch_command(arguments)
    return loaded, prepare_multi_gpu_env(validated)


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_accelerate_understands_the_plan(plan, tmp_path, monkeypatch):
    at = plan.strategy
    loaded, environment = variables(plan, tmp_path)
    shard = at.sharding_degree // at.cp if at.zero_stage else 1
    assert (loaded.num_processes, loaded.num_machines) == (plan.request["gpus"], plan.request["cluster"]["nodes"])
    for name in [name for name in environment if name.startswith(("FSDP", "PARALLELISM", "ACCELERATE"))]:
        monkeypatch.setenv(name, environment[name])
    config = ParallelismConfig()
    sizes = (config.dp_replicate_size, config.dp_shard_size, config.tp_size, config.cp_size, config.sp_size)
    assert sizes == (at.dp // shard, shard, at.tp, at.cp, 1), label(plan)
    assert config.total_size == plan.request["gpus"]
    if at.cp > 1:
        wanted = "allgather" if at.cp_kind == "all-gather" else "alltoall"
        assert config.cp_handler.cp_comm_strategy == wanted
    if at.zero_stage:
        assert environment["FSDP_VERSION"] == "2"
        assert environment["FSDP_RESHARD_AFTER_FORWARD"].lower() == str(at.zero_stage == 3).lower()
        assert environment["FSDP_ACTIVATION_CHECKPOINTING"].lower() == str(at.recompute == "full").lower()
        assert environment["FSDP_OFFLOAD_PARAMS"].lower() == str(at.offload != "none").lower()
    assert environment["ACCELERATE_MIXED_PRECISION"] == {"fp32": "no"}.get(
        plan.request["precision"], plan.request["precision"]
    )
    _accepted(config, at)


@pytest.mark.parametrize("plan", [*PLANS[:60], *NARROW], ids=range(120))
def test_other_launchers_start_a_script_with_what_accelerate_makes_of_the_file(plan, tmp_path):
    _, environment = variables(plan, tmp_path)
    told = {name: value for name, value in environment.items() if name.startswith(("FSDP", "PARALLEL", "ACCELERATE"))}
    ours = dict(export(plan, "accelerate").environment)
    assert ours.pop("ACCELERATE_GRADIENT_ACCUMULATION_STEPS") == str(plan.strategy.num_microbatches)
    assert {name: told.get(name, "").lower() for name in ours} == {name: value.lower() for name, value in ours.items()}
    left = {name: value for name, value in told.items() if name not in ours}
    assert not {name for name, value in left.items() if value.lower() == "true"} - USUAL, label(plan)


USUAL = {"FSDP_SYNC_MODULE_STATES", "FSDP_USE_ORIG_PARAMS"}
"""What the launcher says of FSDP 1, on whatever the file says, and FSDP 2 does not read."""


@pytest.mark.parametrize("plan", NARROW, ids=range(60))
def test_a_script_in_8_bits_gets_the_backend_that_scales_as_the_plan_does(plan, tmp_path):
    _, environment = variables(plan, tmp_path)
    backend = {"fp8": "TE"}.get(plan.request["precision"], "AO")
    assert environment["ACCELERATE_FP8_BACKEND"] == backend
    if plan.strategy.zero_stage and backend == "AO":
        assert environment["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false", "TorchAO refuses it beside FSDP2"


def _accepted(config, at):
    """The check that an Accelerator makes of it, and the mesh of one rank of the whole world."""
    kind = "FSDP" if at.zero_stage else "MULTI_GPU"
    accelerator = SimpleNamespace(
        num_processes=config.total_size, is_fsdp2=at.zero_stage > 0, distributed_type=kind, multi_device=True,
        state=SimpleNamespace(num_processes=config.total_size), project_configuration=None,
    )  # fmt: skip
    config._validate_accelerator(accelerator)
    with rank_of(0, config.total_size):
        mesh = config.build_device_mesh("cpu") if config.active_mesh_dims else None
    if mesh is not None:
        assert mesh.size() == config.total_size


def test_a_name_that_accelerate_drops_in_silence_would_be_seen(tmp_path):
    plan = next(plan for plan in PLANS if plan.strategy.tp > 1)
    text = export(plan, "accelerate").files["accelerate.yaml"].replace("config_tp_size", "config_tpsize")
    path = tmp_path / "accelerate.yaml"
    path.write_text(text)
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "--main_process_ip", "1", "t.py"])
    validated, _, _ = _validate_launch_command(arguments)
    assert prepare_multi_gpu_env(validated)["PARALLELISM_CONFIG_TP_SIZE"] == "1"
