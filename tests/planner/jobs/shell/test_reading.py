"""A script is read, never run; what it does not say is named."""

import pytest

from planner.errors import BadRequest
from planner.jobs.shell import read_script


def words(text: str, **given) -> list[str]:
    """The command lines of a script, as they would be typed."""
    return [" ".join(one.words) for one in read_script(text, **given).launches]


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


def test_blanks_between_expansions_in_quotes_part_words():
    script = 'A="--tp 2"\nX=""\nCMD="torchrun train.py $A ${B:-3} ${A} \\\n  $X ${C:-4}"\neval $CMD\n'
    words = read_script(script).launches[0].words
    assert words == ("torchrun", "train.py", "--tp", "2", "3", "--tp", "2", "4")
