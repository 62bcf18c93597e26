"""torchtitan's configurations of every version, in TOML, in Python and on command lines, as one question each."""

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.errors import BadRequest
from planner.jobs.imported import complete
from planner.jobs.reader import Context
from planner.jobs.readers import read_job
from planner.jobs.torchtitan.read import torchtitan_job

CASES = Path(__file__).parent / "cases"
MODEL = '[model]\nname = "llama3"\nflavor = "70B"\n'
OLDEST = (
    MODEL
    + """
[training]
batch_size = 2
seq_len = 8192
data_parallel_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
compile = true
"""
)
OLDER = (
    MODEL
    + """
[training]
batch_size = 8
seq_len = 8192
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 8
[experimental]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "interleaved_1f1b"
pipeline_parallel_split_points = "layers.10,layers.20,layers.30,layers.40,layers.50,layers.60,layers.70"
context_parallel_degree = 1
[float8]
enable_float8_linear = true
"""
)
REGISTRY = """
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer

from . import model_registry


def llama3_8b() -> Trainer.Config:
    model_spec = model_registry("8B")
    return Trainer.Config(
        model_spec=model_spec,
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192, steps=1000),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        compile=CompileConfig(enable=True),
        activation_checkpoint=FullAC.Config(),
    )


def llama3_8b_wide():
    config = llama3_8b()
    config.parallelism.tensor_parallel_degree = 4
    config.training.steps = STEPS
    config.activation_checkpoint = None
    return config


def qwen35_4b():
    return Trainer.Config(model_spec=model_registry("4B", moe_comm_backend="deepep"))


def llama3_8b_narrow():
    config = llama3_8b()
    config.model_spec = model_registry("8B", converters=[NVFP4LinearConverter.Config(fqns=["layers"])])
    return config


def apply(config):
    config.training.steps = 1
    return config
"""


def job(text):
    return torchtitan_job(tomllib.loads(text))


def settled(given, **fields):
    return complete(given.fields | fields, given.pins)


def test_degrees_of_the_first_version_stood_under_training():
    given = job(OLDEST)
    assert (given.fields["model"], given.pins["tp"], given.pins["micro_batch_size"]) == ("llama3-70b", 8, 2)
    assert "stack.fused_elementwise" not in given.fields.get("changes", {})


def test_later_they_stood_under_experimental_and_stages_were_split_at_points():
    given = job(OLDER)
    assert (given.pins["pp"], given.pins["vpp"], given.pins["schedule"]) == (4, 2, "interleaved-1f1b")
    assert given.layers == (20, 20, 20, 20)
    assert (given.pins["dp"], given.pins["micro_batch_size"], given.fields["precision"]) == (8, 2, "fp8-current")


def test_split_points_that_make_no_stages_are_refused():
    with pytest.raises(BadRequest, match="makes no chunks of 4 stages and 80 layers"):
        job(OLDER.replace(",layers.70", ""))


@pytest.mark.parametrize(
    ("more", "eager_layers", "eager_loss"),
    [
        ("[compile]\nenable = true\n", False, False),
        ('[compile]\nenable = true\ncomponents = ["model"]\n', False, True),
        ('[compile]\nenable = true\ncomponents = ["loss"]\n', True, False),
        ("[compile]\nenable = false\n", True, True),
        ("", True, True),
    ],
)
def test_what_is_not_compiled_is_priced_eager(more, eager_layers, eager_loss):
    changes = job(f"{MODEL}[training]\nlocal_batch_size = 1\n{more}").fields.get("changes", {})
    assert ("stack.fused_elementwise" in changes, "stack.logits.cross_entropy_bytes" in changes) == (
        eager_layers, eager_loss,
    )  # fmt: skip


def predicted(*arguments):
    asked = ["predict", *map(str, arguments), "--format", "json", "-q"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def peak(told):
    return max(stage["total"] for stage in told["memory_bytes"])


def test_kernels_that_nothing_compiled_take_longer_and_more_memory(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(f"{MODEL}[training]\nlocal_batch_size = 1\n[compile]\nenable = true\n")
    fused = predicted(path, "--gpus", 64)
    path.write_text(path.read_text().replace("true", "false"))
    eager = predicted(path, "--gpus", 64)
    assert eager["prediction"]["iteration_seconds"] > 1.03 * fused["prediction"]["iteration_seconds"]
    assert peak(eager) > peak(fused)


def test_training_in_bfloat16_has_states_of_16_bits(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(f"{MODEL}[training]\nlocal_batch_size = 1\n")
    wide = predicted(path, "--gpus", 64)
    path.write_text(path.read_text() + 'dtype = "bfloat16"\n')
    narrow = predicted(path, "--gpus", 64)
    (wide_states, narrow_states) = (one["memory_bytes"][0] for one in (wide, narrow))
    for part in ("gradients", "optimizer"):
        assert narrow_states[part] == pytest.approx(wide_states[part] / 2, rel=0.05), part
    assert narrow_states["weights"] < wide_states["weights"]


def test_fsdp_under_a_pipeline_reduces_gradients_once_and_is_priced():
    told = predicted(CASES / "titan_pp_fsdp.toml", "--gpus", 512)
    assert told["prediction"]["iteration_seconds"] == pytest.approx(13.5, rel=0.02)
    assert (told["strategy"]["zero_stage"], told["strategy"]["sharding_degree"]) == (1, 4)


def test_experts_that_are_not_spread_are_split_over_the_tensor_ranks():
    text = '[model]\nname = "qwen3"\nflavor = "30B-A3B"\n[parallelism]\ntensor_parallel_degree = 4\n'
    assert job(text).pins["etp"] == 4
    assert job(text + "expert_parallel_degree = 4\n").pins["etp"] == 1
    assert job(text + "expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 4\n").pins["etp"] == 4
    assert job(f"{MODEL}[parallelism]\ntensor_parallel_degree = 4\n").pins["etp"] == 1


def test_one_layer_in_so_many_is_recomputed_whole():
    text = f"{MODEL}[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '2'\n[training]\nsteps = 3\n"
    given = job(text)
    assert (given.pins["recompute"], given.layers, given.recomputed) == ("partial", (80,), (40,))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.toml").write_text(f"{MODEL}[training]\nlocal_batch_size = 1\nseq_len = 4096\n")
    (tmp_path / "config_registry.py").write_text(REGISTRY)
    return tmp_path


def read(folder, text, **known):
    path = folder / "run.sh"
    path.write_text(text)
    files = [path, folder / "job.toml", folder / "config_registry.py"]
    return read_job(files[: known.pop("count", 3)], Context(**known)).job


def test_words_of_a_command_line_stand_above_the_file(folder):
    line = "torchrun --nnodes 2 --nproc_per_node=8 -m torchtitan.train --job.config_file ./job.toml"
    words = " --training.local_batch_size 4 --parallelism.tensor-parallel-degree=2 --compile.enable"
    given = read(folder, line + words, count=2)
    assert (given.fields["gpus"], given.pins["micro_batch_size"], given.pins["tp"]) == (16, 4, 2)
    assert (given.fields["seq_length"], "changes" in given.fields) == (4096, False)
    assert not given.missing


def test_a_file_that_a_command_line_names_and_nobody_gave_is_named(folder):
    line = "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file ./absent.toml"
    (said,) = read(folder, line, count=1).missing
    assert said.startswith("./absent.toml, which --job.config_file names, is not here")


def test_a_python_configuration_is_read_by_its_syntax(folder):
    line = "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b --training.steps 7"
    given = read(folder, line, count=1)
    assert (given.fields["model"], given.fields["seq_length"], given.pins["tp"]) == ("llama3-8b", 8192, 2)
    assert (given.pins["micro_batch_size"], given.pins["recompute"], given.length.count) == (2, "full", 7)
    other = read_job([folder / "config_registry.py"], Context(launch=2)).job
    assert (other.pins["tp"], other.pins["recompute"]) == (4, "none")
    assert other.missing == (
        "training.steps is not a constant in llama3_8b_wide; give --training.steps on its command line",
    )
    (asked,) = read_job([folder / "config_registry.py"], Context()).job.missing
    listed = "1: llama3_8b, 2: llama3_8b_wide, 3: qwen35_4b, 4: llama3_8b_narrow"
    assert asked == f"it has 4 configurations ({listed}); --launch N chooses one"


def test_a_python_configuration_of_what_is_not_known_is_named(folder):
    path = folder / "config_registry.py"
    assert read_job([path], Context(launch=3)).job.lacks.startswith("model 'qwen35' is not known here")
    with pytest.raises(BadRequest, match=r"model\.converters: 'NVFP4LinearConverter' is not priced"):
        read_job([path], Context(launch=4))


def test_a_model_of_a_hub_needs_no_flavor_and_one_of_torchtitans_own_does():
    training = {"training": {"local_batch_size": 2}}
    hub = torchtitan_job({"model": {"name": "meta-llama/Llama-3.1-8B"}, **training})
    assert hub.fields["model"] == "meta-llama/Llama-3.1-8B"
    assert torchtitan_job({"model": {"name": "llama3"}, **training}).lacks.startswith(
        "llama3 is named without its flavor"
    )


def test_options_that_are_off_are_not_listed_as_not_read():
    off = {"expert_tensor_parallel_degree": 1, "enable_async_tensor_parallel": False}
    assert torchtitan_job({"training": {"local_batch_size": 2}, "parallelism": off}).remarks == ()
