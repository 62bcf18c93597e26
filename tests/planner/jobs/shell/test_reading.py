"""A script is read, never run; what it does not say is named."""

import pytest

from planner.errors import BadRequest
from planner.jobs.shell import read_script
from tests.each import each


def words(text: str, **given) -> list[str]:
    """The command lines of a script, as they would be typed."""
    return [" ".join(one.words) for one in read_script(text, **given).launches]


@each(
    "behind",
    [
        '<<< "yes" --foo 1',
        "< <(cat in) --foo 1",
        "2> >(tee err) > log --foo 1",
        "<<END --foo 1\nhi\nEND",
        "> log <<END --foo 1\nhi\nEND",
        "<<END > log --foo 1\nhi\nEND",
        "<<END \\\n  --foo 1 && echo done\nhi\nEND",
    ],
)
def test_options_behind_what_a_command_reads_or_writes_are_its_own(behind):
    assert words(f"torchrun train.py --tp 2 {behind}\n") == ["torchrun train.py --tp 2 --foo 1"]


@pytest.mark.parametrize(
    "line",
    [
        "touch marker",
        "X=$(touch marker)",
        "X=`touch marker`",
        'echo "$(touch marker)"',
        "cat <(touch marker)",
        "echo x > marker",
        "eval 'touch marker'",
        "bash -c 'touch marker'",
        "cat <<EOF\n$(touch marker)\nEOF",
        "trap 'touch marker' EXIT",
        'python -c \'open("marker", "w")\'',
        "(( a[$(touch marker)] ))",
        "[[ -v a[$(touch marker)] ]]",
    ],
)
def test_a_script_that_is_read_is_not_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words(f"{line}\ntorchrun train.py --x 1\n") == ["torchrun train.py --x 1"]
    assert list(tmp_path.iterdir()) == []


def test_a_branch_that_is_not_known_is_not_guessed():
    text = """
    ENV=$1
    if [ $ENV = dsw ]; then TP=2; elif [ $ENV = dlc ]; then TP=8; fi
    torchrun train.py --tp $TP
    """
    script = read_script(text)
    assert script.needs[0].option == "--arg dsw or dlc"
    assert [one.words[-1] for one in script.launches if "${" not in one.words[-1]] == ["2", "8"]
    assert words(text, arguments=["dlc"]) == ["torchrun train.py --tp 8"]


def test_all_that_a_branch_can_be_asked_for_is_said_at_once():
    text = """
    if [ $1 = 1B ]; then L=16; elif [ $1 = 7B ]; then L=32; else echo unknown; exit 1; fi
    case "$MODE" in full) R=full;; sel*|selective) R=selective;; esac
    if [ -z "$VP" ]; then V=""; else V="--vp $VP"; fi
    torchrun train.py --layers $L --recompute $R $V
    """
    script = read_script(text)
    assert [one.option for one in script.needs] == ["--arg 1B or 7B", "--env MODE=full or selective"]
    assert script.missing.startswith("not known from the script: --arg 1B or 7B (line 2: $1 = 1B), --env MODE=full")
    assert script.assumed == ('line 4: -z "${VP}" is assumed; the script also allows not -z "${VP}"',)
    given = {"arguments": ["7B"], "environment": {"MODE": "full", "VP": "2"}}
    assert words(text, **given) == ["torchrun train.py --layers 32 --recompute full --vp 2"]


def test_a_script_is_read_as_the_first_of_its_nodes_runs_it():
    script = read_script('if [ "$NODE_RANK" -eq 0 ]; then A=1; else A=2; fi; torchrun train.py --x $A')
    assert [one.words[-1] for one in script.launches] == ["1"]
    assert script.assumed == ("line 1: $NODE_RANK 0 is assumed; the script also allows $NODE_RANK other than 0",)


def test_arms_that_start_the_same_are_no_obstacle():
    script = read_script("if [ $A = b ]; then mkdir x; else echo no; fi; torchrun train.py --x 1")
    assert len(script.launches) == 1
    assert script.missing == ""


def test_a_usage_check_that_ends_the_script_is_not_taken():
    script = read_script('if [ $# -lt 2 ]; then echo "usage"; exit 1; fi\ntorchrun train.py --tp $1 --pp $2\n')
    (launch,) = script.launches
    assert launch.words == ("torchrun", "train.py", "--tp", "$1", "--pp", "$2")
    assert launch.unknown == {"$1": "--arg VALUE", "$2": "--arg VALUE"}


def test_a_value_of_a_command_is_given_under_its_variable():
    text = "NODES=$(cat hosts | wc -l)\ntorchrun --nnodes $NODES train.py --bs $((NODES * 8))"
    (launch,) = read_script(text).launches
    assert launch.words[2] == "${NODES}"
    assert launch.unknown["${NODES}"] == "--env NODES=VALUE"
    assert words(text, environment={"NODES": "4"}) == ["torchrun --nnodes 4 train.py --bs 32"]


def test_files_that_a_script_writes_come_with_its_launch():
    (launch,) = read_script(
        'S=2\ncat <<EOF > ds.json\n{"stage": $S}\nEOF\ndeepspeed train.py --deepspeed ds.json'
    ).launches
    assert launch.written == {"ds.json": '{"stage": 2}\n'}


def test_a_script_that_does_not_end_is_refused_by_its_line():
    with pytest.raises(BadRequest, match="line 2: a loop of more than"):
        read_script("i=0\nwhile true; do i=$((i+1)); done\ntorchrun train.py --x 1")


def test_slurm_says_how_many_nodes_there_are():
    text = "#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun torchrun --nnodes $SLURM_NNODES train.py --x 1"
    assert words(text) == ["torchrun --nnodes 4 train.py --x 1"]


@each(
    ("script", "expected"),
    [
        ("torchrun t.py --f $A/$B.txt", "torchrun t.py --f ${A}/${B}.txt"),
        ("x=1   y=2\ntorchrun t.py --x $x$y", "torchrun t.py --x 12"),
        ("X=${L:-Et*10|t*12,mL}\ntorchrun t.py --l $X", "torchrun t.py --l Et*10|t*12,mL"),
        ("P=<path to the model>\ntorchrun t.py --p $P", "torchrun t.py --p <path to the model>"),
        ('[ \\( a = b \\) -o "x" ] && T=2\ntorchrun t.py --t $T', "torchrun t.py --t 2"),
        ('A=abc; n=1\ntorchrun t.py --a "${A:$n+1}"', "torchrun t.py --a c"),
        ("$PY train.py --x 1", "${PY} train.py --x 1"),
        ("srun $OPTIONS -u bash -c 'torchrun t.py --x 1'", "torchrun t.py --x 1"),
        ("x=a`echo b`c\ntorchrun t.py --x $x", "torchrun t.py --x abc"),
        ("torchrun t.py \\\n  --a 1 \\\n  `# a note` \\\n  --b 2", "torchrun t.py --a 1 --b 2"),
        ("torchrun t.py \\\n  --a 1 \\\n  # --b 2 \\\n  --c 3", "torchrun t.py --a 1"),
        ("nohup env A=1 numactl --cpunodebind 0 torchrun t.py --x 1 > log 2>&1 &", "torchrun t.py --x 1"),
        ("docker run --gpus all -e A=1 image bash -c 'cd x && torchrun t.py --x 1'", "torchrun t.py --x 1"),
        ('ssh -p 22 host "cd x; torchrun t.py --x 1"', "torchrun t.py --x 1"),
        ("cat > run.sh <<'EOF'\ntorchrun t.py --x $1\nEOF\nbash run.sh 7", "torchrun t.py --x 7"),
        (
            "sbatch -N 2 <<EOF\n#!/bin/bash\nsrun torchrun --nnodes \\$SLURM_NNODES t.py\nEOF",
            "torchrun --nnodes 2 t.py",
        ),
        ('sbatch --wrap "torchrun t.py --x 1"', "torchrun t.py --x 1"),
        ("tmux send-keys -t a 'cd x; torchrun t.py --x 1' C-m", "torchrun t.py --x 1"),
        ("own-launcher --fast torchrun t.py --x 1", "torchrun t.py --x 1"),
        ('if [[ "a" == *"--help"* ]]; then exit; fi; torchrun t.py --x 1', "torchrun t.py --x 1"),
        ('case abc in *"x"*) T=1;; *"b"*) T=2;; esac; torchrun t.py --t $T', "torchrun t.py --t 2"),
        ("nsys profile -w true -o out torchrun t.py --x 1", "torchrun t.py --x 1"),
        ("echo 'torchrun t.py --x $1' > run.sh; chmod +x run.sh; ./run.sh 3", "torchrun t.py --x 3"),
        ('C="cd <path/to/repo> && torchrun t.py --x 1"; eval "$C"', "torchrun t.py --x 1"),
        ('echo "torchrun t.py --x 1" | bash', "torchrun t.py --x 1"),
        ("X=1\r\ntorchrun t.py --x $X\r\n", "torchrun t.py --x 1"),
        (
            "eval \"$(conda shell.bash hook)\"; N=$(python -c 'print(4)')\ntorchrun t.py --n $N",
            "torchrun t.py --n ${N}",
        ),
    ],
)
def test_what_the_grammar_stumbles_over_is_read_as_the_shell_takes_it(script, expected):
    assert words(script) == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "python preprocess_data.py --x 1",
        "python -m lm_eval --model x",
        "pip install -r x",
        "python -m pip install x",
        "echo torchrun",
        "torchrun --nproc-per-node 8 generate_samples_gpt.py --num-layers 2",
        "deepspeed tools/hf2megads_weight_converter.py --num-layers 2",
        "accelerate launch --num_processes 8 merge_sft.py --x 1",
        "python -m torch.distributed.run --nproc_per_node 8 examples/evaluate.py --x 1",
    ],
)
def test_what_trains_nothing_is_no_launch(line):
    assert words(line) == []


@each(
    "program",
    ["internvl_chat_pretrain.py", "internvl_chat_mpo.py", "llava_chat_finetune_lora.py", "run_train_and_eval.py"],
)
def test_a_program_whose_name_begins_or_ends_in_training_trains(program):
    assert words(f"torchrun {program} --x 1") == [f"torchrun {program} --x 1"]


def test_a_script_that_ends_for_want_of_arguments_says_where():
    script = read_script('M=""\nwhile [ $# -gt 0 ]; do M=$1; shift; done\n[ -z "$M" ] && exit 1\ntorchrun t.py --m $M')
    assert script.launches == ()
    assert script.wanted[0].startswith("line 3 ends the script before it starts a training; give what")


def test_a_script_that_is_given_is_read_where_it_is_run():
    files = {"scripts/args.sh": "TP=4\n", "inner.sh": 'torchrun t.py --tp "$1" --env "$E"\n'}
    text = "source $(dirname $0)/args.sh\nexport E=e\nbash ./inner.sh $TP"
    assert words(text, files=files) == ["torchrun t.py --tp 4 --env e"]
    assert read_script(text).wanted == (
        "line 1 sources ./args.sh, which is not known",
        "line 3 runs ./inner.sh, which is not known",
    )


@pytest.mark.parametrize(
    "growing",
    [
        "x=aaaaaaaaaa\n" + "x=$x$x$x$x\n" * 40,
        "x=(a b c)\n" + 'x=("${x[@]}" "${x[@]}" "${x[@]}")\n' * 40,
        "x=(a b c)\n" + 'x+=("${x[@]}" "${x[@]}")\n' * 40,
        "set -- a b c\n" + 'set -- "$@" "$@"\n' * 40,
        "x=$(printf %1000000000d 3)\n",
        "printf '%.1000000000d' 3 > f\n",
        "echo aaaaaaaaaa > f\n" + "cat f f f f > g\ncat g g g g > f\n" * 40,
        "echo " + "{a,b}" * 40 + "\n",
        "x=" + "$(echo " * 2000 + "a" + ")" * 2000 + "\n",
        "x=$((" + "(" * 5000 + "1" + ")" * 5000 + "))\n",
        "if $A; then\n" * 2000 + "echo\n" + "fi\n" * 2000,
    ],
    ids=lambda text: text[:20],
)
def test_a_script_that_grows_without_end_is_given_up(growing):
    with pytest.raises(BadRequest, match=r"more than|can be read|too deep"):
        words(growing + "torchrun train.py\n")


@pytest.mark.parametrize(
    "line",
    [
        "torchrun train.py --x 1 > log 2>&1 --y 2",
        "torchrun train.py < data --x 1 --y 2",
        "torchrun train.py --x 1 >> $HOME/log --y \\\n  2 &",
        "torchrun train.py >log --x 1 --y 2 <<EOF\ntext\nEOF",
        'sh -c "torchrun train.py --x 1 > log --y 2"',
    ],
)
def test_words_behind_a_redirection_are_the_commands(line):
    assert words(line) == ["torchrun train.py --x 1 --y 2"]


def test_places_to_be_filled_in_are_no_redirections():
    options = "--vocab-file <PATH TO vocab.json> \\\n --save <FOLDER> \\\n --fp16"
    told = ["torchrun train.py --vocab-file <PATH TO vocab.json> --save <FOLDER> --fp16"]
    assert words(f"torchrun train.py {options}\n") == told
    assert words(f'OPTIONS="{options}"\nsrun sh -c "torchrun train.py $OPTIONS"\n') == told
    assert words("torchrun train.py <data >log --x\n") == ["torchrun train.py --x"]


@each(
    "line",
    [
        'echo "${x//+(a|aa)b/}"',
        'echo "${x//+(+(a))b/}"',
        'echo "${x##*a*a*a*a*a*a*b}"',
        'echo "${x%%*a*a*a*a*a*a*b}"',
        "[[ $x =~ ^(a+)+$ ]]",
        "[[ $x =~ (a|a)*b ]]",
        "[[ $x =~ a*a*a*a*a*a*b ]]",
        "[[ aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa =~ " + "a?" * 30 + "a" * 30 + "b ]]",
        "case $x in *a*a*a*a*a*a*b) ;; esac",
        "case $x in " + "*" * 40 + "b) ;; esac",
    ],
)
def test_a_pattern_that_would_never_end_is_given_up(line):
    with pytest.raises(BadRequest, match="has too many ways to match"):
        words(f"x={'a' * 200}\n{line}\ntorchrun train.py --x 1\n")


@pytest.mark.parametrize(
    "line",
    [
        "case $x in *foo*|*bar*) ;; esac",
        "case $x in +([0-9])|*([[:space:]])) ;; esac",
        '[[ $x =~ ^([0-9]+)\\.([0-9]+)(\\.[0-9]+)?$ ]]; echo "${x%%:*} ${x##*/} ${x//,/ } ${x//[[:space:]]/}"',
        "[[ $x =~ (a100|h100|h200|b200|gb200|mi300x) ]]",
    ],
)
def test_a_pattern_of_every_day_is_tried_on_long_texts(line):
    assert words(f"x={'a/b:' * 50}\n{line}\ntorchrun train.py --x 1\n") == ["torchrun train.py --x 1"]


@pytest.mark.parametrize("word", ["{" * 20_000, "{a," * 101 + "}" * 101])
def test_braces_beyond_any_words_are_given_up(word):
    with pytest.raises(BadRequest, match="open braces; at most 100 can be read"):
        words(f"echo {word}\ntorchrun train.py --x 1\n")


@pytest.mark.parametrize("end", ["$(cat x", "`cat x", "<(cat x"])
def test_a_script_that_ends_inside_a_substitution_is_said(end):
    assert "line 1 is not understood" in read_script(f"torchrun train.py --x {end} --y 3\n").unread
