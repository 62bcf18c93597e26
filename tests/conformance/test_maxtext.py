"""MaxText: its configuration from exported YAML over its base.yml, and the mesh of JAX's simulated devices."""

import os
import subprocess

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=256"

import jax
import numpy as np
import pytest
from maxtext.configs import pyconfig
from maxtext.utils import elastic_utils, max_utils

from planner.frameworks.maxtext import MAXTEXT
from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans

MODELS = (*sorted(MAXTEXT), "llama-7b", "llama-65b", "llama3.2-3b")
PLANS = random_plans("maxtext", 220, seed=23, models=MODELS, precisions=("bf16", "bf16", "fp8", "fp8-current", "fp32"))
ON_TPU = {"cluster": "tpu-v5p", "stack": "maxtext"}
PLANS += random_plans("maxtext", 24, seed=29, models=MODELS, precisions=("int8",), **ON_TPU)
QUANTIZED = {"bf16": "", "fp32": "", "int8": "int8"}
QUANTIZED |= {"fp8": "te_fp8_delayedscaling", "fp8-current": "te_fp8_currentscaling"}
PARAMETERS = 3


@pytest.fixture
def understood(monkeypatch, tmp_path):
    """What MaxText makes of a plan's exported file, on as many devices as the plan has ranks, each host a slice."""

    def read(plan):
        world = jax.devices()[: plan.request["gpus"]]
        monkeypatch.setattr(jax, "devices", lambda *_: world)
        hosts = range(max(plan.request["gpus"] // 8, 1))
        monkeypatch.setattr(elastic_utils, "live_slice_indices", lambda *_: set(hosts))
        path = tmp_path / "maxtext.yml"
        path.write_text(export(plan, "maxtext").files["maxtext.yml"], encoding="utf-8")
        return pyconfig.initialize_pydantic(["train", str(path)])

    return read


def sizes(config, axes):
    """Ranks along several axes of the mesh together."""
    given = dict(zip(config.mesh_axes, config.ici_parallelism, strict=True))
    return int(np.prod([given[axis] for axis in axes]))


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_maxtext_understands_the_plan(plan, understood):
    at, config = plan.strategy, understood(plan)
    assert sizes(config, config.mesh_axes) == plan.request["gpus"], label(plan)
    assert (config.num_slices, set(config.dcn_parallelism)) == (1, {1})
    assert sizes(config, ("tensor", "tensor_sequence")) == at.tp, label(plan)
    assert sizes(config, ("tensor_sequence",)) == (at.tp if at.sequence_parallel else 1)
    assert (sizes(config, ("context",)), sizes(config, ("stage",)), sizes(config, ("expert",))) == (at.cp, at.pp, at.ep)
    assert sizes(config, ("data", "fsdp", "expert")) == at.dp
    if at.zero_stage == PARAMETERS:
        assert sizes(config, ("fsdp", "context", "expert")) == at.sharding_degree
    else:
        assert sizes(config, ("fsdp", "context", "expert")) == 1
    assert config.shard_optimizer_over_data == (at.zero_stage == 1)
    assert config.global_batch_size_to_train_on == at.global_batch_size, label(plan)
    assert config.max_target_length == plan.request["seq_length"]
    together = config.global_batch_size_to_train_on // config.gradient_accumulation_steps
    rounds = config.num_pipeline_microbatches if at.pp > 1 else 1
    assert together // rounds == at.micro_batch_size * at.dp
    assert config.quantization == QUANTIZED[plan.request["precision"]]
    assert config.remat_policy == {"none": "minimal_with_context", "selective": "save_qkv_proj"}.get(
        at.recompute, "full"
    )
    same_model(config, plan.request["model"])
    if at.pp > 1:
        assert config.num_layers_per_pipeline_stage * config.num_pipeline_repeats == at.stages[0].layers
    neighbours(config, plan)


def same_model(config, model):
    """The sizes behind MaxText's name, or those that were written out."""
    named = {"num_layers": "num_decoder_layers", "hidden_size": "emb_dim", "num_heads": "num_query_heads",
             "num_query_groups": "num_kv_heads", "head_dim": "head_dim"}  # fmt: skip
    width = named.pop("head_dim") if model.get("mla") else None  # of latent attention its own widths count
    assert width is None or config.qk_nope_head_dim + config.qk_rope_head_dim == model["head_dim"], model["name"]
    pairs = 2 if model["name"].startswith("gemma2-") else 1  # it counts pairs of them
    for ours, theirs in named.items():
        times = pairs if ours == "num_layers" else 1
        assert getattr(config, theirs) * times == model[ours], (model["name"], ours)
    # GPT-3's and Gemma's are padded, Gemma 3's has the words of images beside it, Mixtral's is a later release's.
    assert abs(config.vocab_size / model["vocab_size"] - 1) < 0.03, model["name"]
    moe = model.get("moe")
    if moe is None:
        assert config.mlp_dim == model["ffn_hidden_size"], model["name"]
        assert config.num_experts == 1
    else:
        assert (config.num_experts, config.num_experts_per_tok) == (moe["num_experts"], moe["top_k"]), model["name"]


def neighbours(config, plan):
    """The grid of devices: filled to the last rank, tensor ranks next to each other, stages outermost."""
    filled = max_utils.fill_unspecified_mesh_axes(
        list(config.ici_parallelism), plan.request["gpus"] // config.num_slices, "ICI"
    )
    grid = np.arange(plan.request["gpus"]).reshape(filled)
    axes, at = list(config.mesh_axes), plan.strategy
    inner = "expert" if at.ep > 1 else "tensor_sequence" if at.sequence_parallel else "tensor"
    line = np.moveaxis(grid, axes.index(inner), -1).reshape(-1, max(at.ep, at.tp))[0]
    assert line.tolist() == list(range(max(at.ep, at.tp)))
    stages = np.moveaxis(grid, axes.index("stage"), 0).reshape(at.pp, -1)
    assert stages[0].tolist() == list(range(plan.request["gpus"] // at.pp))


def test_a_key_that_maxtext_does_not_know_is_refused(tmp_path):
    path = tmp_path / "other.yml"
    text = export(PLANS[0], "maxtext").files["maxtext.yml"]
    path.write_text(text.replace("ici_expert_parallelism", "ici_experts_parallelism"), encoding="utf-8")
    with pytest.raises(ValueError, match="ici_experts_parallelism"):
        pyconfig.initialize_pydantic(["train", str(path)])


def test_the_script_tells_maxtext_which_process_it_is(tmp_path):
    """As torchrun starts it on the second of two nodes; ``python3`` prints what MaxText's start-up reads."""
    exported = export(PLANS[0], "maxtext")
    (tmp_path / "maxtext.sh").write_text(exported.files["maxtext.sh"], encoding="utf-8")
    fake = tmp_path / "python3"
    names = "JAX_COORDINATOR_IP JAX_COORDINATOR_PORT NNODES NODE_RANK SLURM_STEP_GPUS"
    fake.write_text(f'#!/bin/bash\nfor n in {names}; do echo "$n=${{!n}}"; done\necho "$@"\n', encoding="utf-8")
    fake.chmod(0o755)
    torchrun = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "16", "RANK": "9", "LOCAL_RANK": "1"}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **torchrun}
    told = subprocess.run(["bash", "maxtext.sh", "steps=3"], cwd=tmp_path, env=environment, check=True,
                          capture_output=True, text=True).stdout.splitlines()  # fmt: skip
    assert told[:5] == ["JAX_COORDINATOR_IP=10.0.0.1", "JAX_COORDINATOR_PORT=29501", "NNODES=16", "NODE_RANK=9",
                        "SLURM_STEP_GPUS=1"]  # fmt: skip
    assert told[5] == "-m maxtext.trainers.pre_train.train maxtext.yml steps=3"
