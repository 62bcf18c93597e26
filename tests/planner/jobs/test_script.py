"""Scripts of jobs: which launch is meant, and what depends on values that nobody said, all of it at once."""

import pytest

from planner.errors import BadFile, BadRequest
from planner.jobs.assemble import readers_of
from planner.jobs.reader import Context, job_file
from planner.jobs.readers import READERS, read_job

SIZES = "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --vocab-size 32000"
SIZES += " --max-position-embeddings 1024 --micro-batch-size 1 --bf16"


def read(tmp_path, text, *, form=None, **known):
    path = tmp_path / "train.sh"
    path.write_text(text)
    return read_job([path], Context(**known), form)


def test_all_values_that_are_not_known_are_asked_for_at_once_each_with_its_option(tmp_path):
    text = f"torchrun --nnodes $NODES --nproc-per-node 8 pretrain_gpt.py {SIZES} --global-batch-size $1"
    text += " --tensor-model-parallel-size ${TP:-2} --data-path $DATA"
    job = read(tmp_path, text).job
    assert job.missing == ("--arg VALUE: global_batch_size depends on $1",)
    assert job.unsaid["gpus"].endswith("give --env NODES=VALUE or --gpus")
    assert "gpus" not in job.fields
    assert "global_batch_size" not in job.fields
    assert job.pins["tp"] == 2
    known = read(tmp_path, text, environment={"NODES": "4", "TP": "4"}, arguments=["64"]).job
    assert (known.missing, known.fields["gpus"], known.fields["global_batch_size"]) == ((), 32, 64)
    assert known.pins["tp"] == 4


def test_of_several_launches_the_one_is_read_that_is_named(tmp_path):
    line = f"python pretrain_gpt.py {SIZES} --tensor-model-parallel-size"
    text = f"#!/bin/bash\n{line} 2\n\n{line} 4\n"
    (asked,) = read(tmp_path, text).job.missing
    assert asked.startswith("it starts 2 trainings (1: line 2 ")
    assert "; 2: line 4 " in asked
    found = read(tmp_path, text, launch=2)
    assert (found.job.pins["tp"], found.parts[0].line) == (4, 4)
    with pytest.raises(BadRequest, match=r"train\.sh: there is no launch 3"):
        read(tmp_path, text, launch=3)


def test_the_only_arm_that_trains_is_assumed_where_nobody_says_which(tmp_path):
    text = f'if [ "$1" = convert ]; then\n  python convert.py --x 1\nelse\n  python pretrain_gpt.py {SIZES}\nfi\n'
    job = read(tmp_path, text).job
    assert job.missing == ()
    assert job.fields["seq_length"] == 1024
    (said,) = [line for line in job.assumed if "nothing else trains" in line]
    assert said.startswith("line 4 trains where $1 other than convert (line 1)")


def test_launches_are_not_listed_where_many_values_are_asked_for(tmp_path):
    arms = "".join(f'if [ "${name}" = a ]; then O="$O --{name} 1"; else O="$O --{name} 2"; fi\n' for name in "ABCD")
    (*asked, last) = read(tmp_path, f"{arms}python pretrain_gpt.py {SIZES} $O\n").job.missing
    assert len(asked) == 3
    assert last.startswith("--env D=a")


def test_what_is_missing_is_named_as_the_script_writes_it(tmp_path):
    line = "deepspeed train.py --model_name_or_path m --per_device_train_batch_size 1 --deepspeed $CONFIG --fp16 True"
    assert any(one.startswith("deepspeed ${CONFIG} says how") for one in read(tmp_path, line).job.missing)


def test_a_script_that_comes_to_no_training_says_why_where_that_is_known(tmp_path):
    with pytest.raises(
        BadFile, match=r"no training: line 2 ends the script before it starts a training; give what it asks for"
    ):
        read(tmp_path, f'M="${{1:-}}"\n[ -z "$M" ] && exit 1\npython pretrain_gpt.py {SIZES} --load $M\n')


def test_a_script_that_runs_another_one_beside_it_is_that_one_s_job(tmp_path):
    (tmp_path / "inner.sh").write_text(f"torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py {SIZES} --bf16\n")
    job = read(tmp_path, "#!/bin/bash\nexport A=1\nbash inner.sh\n").job
    assert job.fields["gpus"] == 16


def test_a_file_of_nothing_but_options_is_read_as_a_command_line(tmp_path):
    for text in (SIZES, f"ARGS=(\n  {SIZES}\n)\n", f'ARGS="{SIZES}"\n'):
        assert read(tmp_path, text, form="megatron-args").job.fields["seq_length"] == 1024


def test_what_a_script_starts_is_named_where_nobody_here_reads_it(tmp_path):
    with pytest.raises(BadFile, match=r"which starts deepspeed odd\.py --alpha 3 \(line 2\), of an unknown framework"):
        read(tmp_path, "#!/bin/bash\ndeepspeed odd.py --alpha 3\n")


def test_an_option_of_the_shell_among_others_is_no_argument_of_the_script(tmp_path):
    text = f"set -euox pipefail\npython pretrain_gpt.py {SIZES} --tensor-model-parallel-size ${{1:-4}}\n"
    assert read(tmp_path, text).job.pins["tp"] == 4


def test_a_script_is_read_and_never_run(tmp_path):
    read(tmp_path, f"touch {tmp_path}/ran\n$(touch {tmp_path}/ran)\npython pretrain_gpt.py {SIZES}\n")
    assert not (tmp_path / "ran").exists()


def test_every_reader_knows_its_kind_by_content_alone(tmp_path):
    path = tmp_path / "anything"
    path.write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}')
    takes = [one.form for one in readers_of(job_file(path), READERS)]
    assert takes == ["deepspeed"]


def test_a_model_that_is_not_known_is_asked_for_in_the_script_s_own_words(tmp_path):
    line = "python train.py --model_name_or_path models/$1 --per_device_train_batch_size 1 --bf16"
    job = read(tmp_path, line).job
    assert job.missing == ("--arg VALUE: model depends on $1",)
    assert job.lacks == ""


def test_nodes_that_only_the_scheduler_knows_are_a_number_of_gpus_that_an_option_says(tmp_path):
    line = f"torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py {SIZES}"
    job = read(tmp_path, line).job
    assert job.missing == ()
    assert job.unsaid["gpus"] == "gpus depends on ${SLURM_NNODES}; give --env SLURM_NNODES=VALUE or --gpus"
    assert "gpus" not in job.fields


TRAINER = "deepspeed --num_gpus 8 train.py --model_name_or_path llama3-8b --bf16 --per_device_train_batch_size 1"
STAGE = '{"zero_optimization": {"stage": %s}, "bf16": {"enabled": true}}'


def test_what_a_script_writes_for_deepspeed_stands_above_what_is_on_disk(tmp_path):
    (tmp_path / "ds.json").write_text(STAGE % 3)
    line = f"{TRAINER} --deepspeed ./ds.json"
    assert read(tmp_path, line).job.pins["zero_stage"] == 3
    assert read(tmp_path, f"cat > ds.json <<EOF\n{STAGE % 2}\nEOF\n{line}").job.pins["zero_stage"] == 2
    unknown = read(tmp_path, f"python make_config.py > ds.json\n{line}").job
    assert "zero_stage" not in unknown.pins
    assert any("ds.json says how states are sharded, but is not here" in line for line in unknown.missing)


VERL = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=$DATA/models/Qwen3-14B-Base"
SIZED = "trainer.nnodes=2 actor_rollout_ref.actor.ppo_mini_batch_size=64 data.max_prompt_length=512"


@pytest.mark.parametrize("engine", ["megatron.tensor_model_parallel_size=2", "ulysses_sequence_parallel_size=2"])
def test_a_model_is_known_by_the_folder_that_it_lies_in_which_is_shown_as_the_script_has_it(tmp_path, engine):
    job = read(tmp_path, f"{VERL} actor_rollout_ref.actor.{engine} {SIZED} data.max_response_length=512\n").job
    assert job.fields["model"] == "Qwen3-14B-Base"
    said = next(line for line in job.assumed if "is taken to be" in line)
    assert said.startswith("${DATA}/models/Qwen3-14B-Base is taken to be Qwen3-14B-Base")


def test_addresses_of_hosts_do_not_make_two_trainings_of_one(tmp_path):
    text = f"""#!/bin/bash
head_node_ip=$(srun hostname --ip-address)
if [[ "$head_node_ip" == *" "* ]]; then head_node_ip=${{head_node_ip%% *}}; fi
export ip_head=$head_node_ip:6379
torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py {SIZES} --tensor-model-parallel-size 2
"""
    assert read(tmp_path, text).job.missing == ()


def test_layers_beside_another_programs_sizes_are_not_taken_for_options_of_megatron(tmp_path):
    text = (
        "torchrun --nproc_per_node=8 train.py --num_layers=32 --num_heads=32 --hidden_width=4096 --train_batch_size=1"
    )
    with pytest.raises(BadFile, match="of an unknown framework"):
        read(tmp_path, text)
