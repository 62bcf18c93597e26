"""Files of a job as people have them: what they are is said, and every command takes them."""

import json
import re

import pytest
from click.testing import CliRunner

from planner.cli import main
from tests.each import each

LAUNCH = "#!/bin/bash\ntorchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 \\\n"
LAUNCH += (
    "  --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16 --num-layers 4 --hidden-size 1024 \\\n"
)
LAUNCH += "  --num-attention-heads 8 --vocab-size 32000 --position-embedding-type rope\n"
DEEPSPEED = json.dumps({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
                        "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}})  # fmt: skip
MODEL = {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4,
         "num_attention_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096}  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments], env={"COLUMNS": "80", "NO_COLOR": "1"})


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.sh").write_text(LAUNCH)
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    return tmp_path


def test_the_answer_comes_first_and_every_value_names_its_file(files, monkeypatch):
    monkeypatch.chdir(files)
    done = run("read", "ds.json", "config.json", "--gpus", 8)
    assert done.exit_code == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert " 132.7 M parameters, on 8 GPUs" in first
    assert "it can be priced" in first or "it can be priced" in lines[0]
    assert any("ds.json: a configuration of DeepSpeed" in line for line in lines)
    assert any("config.json: a Hugging Face model configuration" in line for line in lines)
    assert any(line.split() == ["zero", "3", "ds.json"] for line in lines)
    assert any(line.split() == ["gpus", "8", "--gpus"] for line in lines)
    assert any(line.split() == ["global-batch", "64", "follows"] for line in lines)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_of_a_model_that_sees_and_speaks_it_is_said_what_trains_and_what_is_not_counted(tmp_path):
    vision = {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "image_size": 32, "patch_size": 16, "vision_use_head": False}  # fmt: skip
    thinker = {"model_type": "llava", "text_config": MODEL, "vision_config": vision, "audio_config": {}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "omni", "thinker_config": thinker}))
    said = " ".join(run("read", tmp_path / "config.json", "--gpus", 8).stdout.split())
    assert "the model is counted without its audio tower and talker" in said
    assert "the decoder trains; its vision tower of 1.233 M parameters is without a price" in said
    trained = " ".join(run("read", tmp_path / "config.json", "--gpus", 8, "--train-tower").stdout.split())
    assert "its vision tower of 1.233 M parameters trains" in trained


def test_what_is_missing_is_said_all_at_once_and_is_no_failure_to_read(files):
    done = run("read", files / "ds.json")
    assert done.exit_code == 0
    assert "give --model" in done.stdout
    assert "give --gpus" in done.stdout
    done = run("predict", files / "ds.json")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "give --model; how many GPUs is not known; give --gpus" in done.stderr


TITAN_LOG = "[titan] INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]\n" + "".join(
    f"[titan] 2026-11-20 09:12:{step:02d},000 - step: {step}  loss: 9.0  memory: 30.00GiB(38.00%)  tps: 3,000\n"
    for step in range(1, 31)
)


def test_a_model_given_with_a_log_says_nothing_of_how_it_was_split(files):
    (files / "train.log").write_text(TITAN_LOG)
    done = run("read", files / "train.log", files / "config.json")
    assert done.exit_code == 0, done.stderr
    said = done.stdout.partition("Missing")[2]
    assert all(f"; give {option}" in said for option in ("--cluster", "--pp", "--micro-batch", "--recompute"))
    assert "--model" not in said
    assert "dgx-h100 is priced" not in said
    assert run("predict", files / "train.log", files / "config.json", "--cluster", "dgx-h100").exit_code == 2


def test_a_family_that_is_not_known_is_among_what_is_missing(files):
    (files / "config.json").write_text(json.dumps(MODEL | {"model_type": "qqzz"}))
    done = run("read", files / "config.json")
    assert "a model that is not priced: no price yet, 2 things are missing" in done.stdout.splitlines()[0]
    assert "family 'qqzz' is not supported" in done.stdout.partition("Missing")[2]


def test_a_price_begins_with_how_far_from_the_best_it_is(files):
    first = " ".join(run("predict", files / "train.sh").stdout.partition("\n\n")[0].split())
    assert re.search(r"The best plan takes \d+\.\d % less time\.$", first)


def test_what_is_as_in_any_job_takes_one_line_unless_all_is_asked_for(files):
    usual, whole = (run("read", files / "train.sh", *more).stdout for more in ([], ["-v"]))
    assert "at their defaults: " in usual
    assert not re.search(r"^  ep  +1", usual, re.MULTILINE)
    assert re.search(r"^  ep  +1", whole, re.MULTILINE)


def test_a_comparison_begins_with_which_is_faster(files):
    done = run("compare", files / "train.sh")
    lines = done.stdout.splitlines()
    assert "machines" not in done.stdout.partition("From A to B")[2]  # a search's margin is no change of machines
    assert lines[0].startswith("B is predicted to take ")
    assert max(map(len, lines)) <= 80


def test_a_question_that_would_be_refused_is_not_said_to_have_a_price(files):
    done = run("read", files / "train.sh", "--for", "torchtitan")
    assert done.exit_code == 0
    assert "it has no price: " in done.stdout.replace("\n", " ")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_document_is_a_question_whose_batch_follows_once_the_devices_are_known(files, form):
    written = files / f"job.{form}"
    done = run("read", files / "ds.json", files / "config.json", "--format", form, "-o", written)
    assert done.exit_code == 0, done.stderr
    asked = ("--gpus", 8, "--format", "json", "-q")
    again = json.loads(run("predict", "--config", written, *asked).stdout)
    direct = json.loads(run("predict", files / "ds.json", files / "config.json", *asked).stdout)
    assert again["request"]["global_batch_size"] == direct["request"]["global_batch_size"] == 2 * 4 * 8
    assert again["prediction"]["iteration_seconds"] == direct["prediction"]["iteration_seconds"]
    assert again["strategy"] == direct["strategy"]


def test_the_best_plan_for_the_job_of_a_file_is_free_of_its_strategy(files):
    found = json.loads(run("--from", files / "train.sh", "--format", "json", "-q").stdout)
    assert found["request"]["global_batch_size"] == 64
    assert found["strategy"]["tp"] == 1
    assert found["request"]["framework"] == "megatron-lm"
    pinned = json.loads(run("--from", files / "train.sh", "--tp", 2, "--format", "json", "-q").stdout)
    assert pinned["strategy"]["tp"] == 2


def test_every_other_command_takes_the_file(files):
    script = files / "train.sh"
    assert json.loads(run("why-not", script, "--format", "json", "-q").stdout)
    assert run("size", script, "--deadline", "400d", "-q").exit_code == 0
    alone = json.loads(run("compare", script, "--format", "json", "-q").stdout)
    assert alone["differences"]["tp"] == [2, 1]
    beside = run("compare", script, files / "ds.json", "--model", files / "config.json", "--gpus", 8, "-q")
    assert beside.exit_code == 0, beside.stderr


def test_the_stages_of_a_script_are_priced_as_it_has_them_until_an_option_asks_for_others():
    def seconds(*asked):
        return json.loads(run(*asked, "--format", "json", "-q").stdout)

    script = "examples/my-job/train.sh"
    price, objection = seconds("predict", script), seconds("why-not", script)
    assert [stage["layers"] for stage in objection["strategy"]["stages"]] == [12, 12]
    assert objection["iteration_seconds"] == price["prediction"]["iteration_seconds"]
    for command in ("predict", "why-not"):
        assert len(seconds(command, script, "--pp", 4)["strategy"]["stages"]) == 4
    assert seconds("why-not", script, "--tp", "..2")["iteration_seconds"] < objection["iteration_seconds"]


def test_the_best_plan_for_a_script_is_shown_before_its_own_launch_lines(tmp_path):
    script = tmp_path / "experts.sh"
    script.write_text(
        "torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --num-layers 48 --hidden-size 2048 --bf16 "
        "--num-attention-heads 32 --ffn-hidden-size 6144 --moe-ffn-hidden-size 768 --num-experts 128 "
        "--moe-router-topk 8 --moe-grouped-gemm --seq-length 4096 --max-position-embeddings 4096 --swiglu "
        "--position-embedding-type rope --disable-bias-linear --vocab-size 151936 --micro-batch-size 1 "
        "--global-batch-size 512 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
        "--expert-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer\n"
    )
    lines = run("predict", script, "-q").stdout.splitlines()
    place = lines.index("Alternatives")
    assert [line.split()[0] for line in lines[place + 2 : place + 4]] == ["1", "2"]


def test_files_that_contradict_each_other_are_named_and_an_option_settles_it(files):
    other = files / "other.json"
    other.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}))
    asked = ("predict", files / "train.sh", other)
    done = run(*asked)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "train.sh" in done.stderr
    assert "other.json" in done.stderr
    assert "tp is 2 by " in done.stderr
    assert "; say which with --precision" in done.stderr
    settled = run(
        *asked,
        "--tp",
        2,
        "--zero",
        0,
        "--micro-batch",
        1,
        "--seq-len",
        4096,
        "--precision",
        "bf16",
        "--stack",
        "generic",
    )
    assert settled.exit_code == 0, settled.stderr


def test_changes_of_two_files_add_up_and_only_what_differs_is_refused(files):
    titles = ("--overlap-grad-reduce --hidden-dropout 0 --attention-dropout 0", "--hidden-dropout 0.1")
    for name, more in zip(("one.sh", "other.sh"), titles, strict=True):
        (files / name).write_text(LAUNCH.rstrip("\n") + f" {more}\n")
    done = run("read", files / "one.sh", files / "other.sh")
    assert done.exit_code == 2
    assert f"stack.dropout is False by {files / 'one.sh'} and True by {files / 'other.sh'}" in done.stderr
    assert "; say which with --set stack.dropout=..." in done.stderr


@pytest.mark.parametrize("document", ["distributed_type: FSDP\nnum_processes: 8\n", "zero_optimization: {stage: 2}\n"])
def test_batch_and_length_of_a_script_that_is_not_there_are_asked_for(files, document):
    (files / "how.yaml").write_text(document)
    job = ("predict", files / "how.yaml", "--model", "llama3-8b", "--gpus", 8)
    done = run(*job)
    assert done.exit_code == 2
    assert "--global-batch-size says the batch" in done.stderr
    assert "--seq-length says the length of sequences" in done.stderr
    assert run(*job, "--global-batch", 16, "--seq-len", "2k").exit_code == 0


def test_the_model_of_a_script_and_of_a_config_may_be_the_same_one(files):
    (files / "config.json").write_text(json.dumps(MODEL | {"num_hidden_layers": 5}))
    done = run("predict", files / "train.sh", files / "config.json")
    assert done.exit_code == 2
    assert "model is" in done.stderr


@each(
    ("arguments", "said"),
    [
        (("read",), "read needs a FILE"),
        (("predict", "--from", "deepspeed"), "--from deepspeed needs a FILE"),
        (("predict", "--from", "nonsense"), "there is no file and no kind 'nonsense'"),
        (("predict", "--from", "hf", "--from", "deepspeed", "a.json"), "files have one kind each; leave --from out"),
        (("predict", "--env", "TP=2", "--model", "8b", "--gpus", "8"), "--env is about a script, and no FILE is given"),
        (("predict", "x.sh", "--env", "TP"), "expected NAME=VALUE, got 'TP'"),
        (("train.sh",), "no such command 'train.sh'"),
    ],
)
def test_half_a_command_is_refused_in_a_line(arguments, said):
    done = run(*arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_a_file_where_a_command_is_expected_is_said_so(files):
    done = run(files / "train.sh")
    assert done.exit_code == 2
    assert "is a file: plan read" in done.stderr.replace("\n", " ")


def test_no_file_is_ignored(files):
    done = run("predict", "--from", "hf", files / "train.sh", "--model", "8b", "--gpus", 8)
    assert done.exit_code == 2
    assert "it looks like arguments of Megatron-LM; leave --from out" in done.stderr


def test_a_price_of_one_s_own_decides_the_cost():
    asked = ("predict", "--model", "8b", "--gpus", 64, "--tp", 2, "--zero", 1, "--format", "json", "-q")
    cheap, dear = (json.loads(run(*asked, "--price", price).stdout)["prediction"] for price in ("1", "$2.50/h"))
    assert dear["cost_dollars"] == pytest.approx(2.5 * cheap["cost_dollars"])


@pytest.mark.parametrize(("written", "tokens"), [("8k", 8192), ("1M", 1_048_576)])
def test_lengths_are_written_in_multiples_of_1024(written, tokens):
    asked = ("predict", "--model", "8b", "--gpus", 64, "--tp", 2, "--zero", 1, "--global-batch", 64, "--format", "json")
    assert json.loads(run(*asked, "--seq-len", written, "-q").stdout)["request"]["seq_length"] == tokens


def test_files_that_files_name_are_listed_and_each_value_has_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--model_name_or_path llama3-8b --per_device_train_batch_size 2 --model_max_length 2048 --bf16 True"
    (tmp_path / "train.sh").write_text(f"accelerate launch --config_file acc.yaml train.py {words}\n")
    named = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 8,
        "deepspeed_config": {"deepspeed_config_file": "d.json"},
    }
    (tmp_path / "acc.yaml").write_text(json.dumps(named))
    zero = {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}
    (tmp_path / "d.json").write_text(json.dumps(zero))
    for given in (["train.sh"], ["train.sh", "d.json", "acc.yaml"]):
        done = run("read", *given)
        assert done.exit_code == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        assert {"train.sh:", "acc.yaml:", "d.json:"} <= {word for line in lines for word in line}
        origins = {line[0]: line[-1] for line in lines if line}
        whose = {"gpus": "acc.yaml", "zero": "d.json", "precision": "train.sh", "micro-batch": "train.sh"}
        assert {name: origins[name] for name in whose} == whose
    (tmp_path / "d.json").write_text(json.dumps(zero | {"bf16": {"enabled": True}}))
    assert "bf16       d.json" in run("read", "train.sh").stdout


def test_a_launch_behind_variables_is_a_script(files):
    overrides = "actor_rollout_ref.model.path=llama3-8b actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    (files / "run.sh").write_text(f"PYTHONUNBUFFERED=1 python3 -m verl.trainer.main_ppo \\\n {overrides}\n")
    done = run("predict", files / "run.sh")
    assert done.exit_code == 0, done.stderr


def test_a_script_for_other_devices_than_its_degrees_take_is_not_said_to_have_a_price(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 "
        "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 "
        "--micro-batch-size 1 --global-batch-size 1536 --bf16 --vocab-size 50257\n"
    )
    said = " ".join(run("read", path).stdout.split())
    assert "takes 128 GPUs, so 8 are not enough; --gpus 128 holds one" in said
    assert run("predict", path).exit_code == 2
    assert run("predict", path, "--gpus", "128").exit_code == 0


def test_a_batch_that_replicas_do_not_divide_is_not_said_to_have_a_price(files):
    said = " ".join(run("read", files / "train.sh", "--global-batch", "250").stdout.split())
    assert "it has no price: micro-batch 1 x dp 4 does not divide the global batch of 250; 248 would" in said
    assert run("predict", files / "train.sh", "--global-batch", "250").exit_code == 2
    assert run("predict", files / "train.sh", "--global-batch", "252").exit_code == 0


def test_experts_over_more_devices_than_there_are_are_not_said_to_have_a_price(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 "
        "--num-experts 8 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 "
        "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 256 --bf16 --vocab-size 50257\n"
    )
    said = " ".join(run("read", path).stdout.split())
    assert "one copy of its experts takes 32 GPUs, so 8 are not enough; --gpus 32 holds one" in said
    assert run("predict", path).exit_code == 3
    assert run("predict", path, "--gpus", "32").exit_code == 0


def test_an_answer_is_read_with_bandwidths_as_people_write_them(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(run("--model", "llama3.2-1b", "--gpus", 16, "--no-reasons", "--format", "json").stdout)
    said = " ".join(run("read", path).stdout.split())
    assert "bandwidth 450 GB/s" in said
    assert ".0 B/s" not in said
