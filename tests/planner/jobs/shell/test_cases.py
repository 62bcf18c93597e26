"""Scripts as people write them, each of a kind that is easily misread."""

from pathlib import Path

import pytest

from planner.jobs.shell import read_script
from tests.each import each

CASES = Path(__file__).parents[1] / "cases"


def options(name: str, **given) -> dict[str, str]:
    """The options of a script's only launch with their values."""
    (launch,) = read_script((CASES / name).read_text(), **given).launches
    found: dict[str, str] = {}
    for place, word in enumerate(launch.words):
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            after = launch.words[place + 1] if place + 1 < len(launch.words) else "--"
            found[name] = value or ("" if after.startswith("--") else after)
    return found


@each(
    ("name", "expected"),
    [
        ("branches.sh", {"num-layers": "24", "hidden-size": "2048", "use-distributed-optimizer": ""}),
        ("dead_branch.sh", {"tensor-model-parallel-size": "2"}),
        (
            "if_one_line.sh",
            {"tensor-model-parallel-size": "8", "pipeline-model-parallel-size": "2", "micro-batch-size": "4"},
        ),
        ("append_string.sh", {"pipeline-model-parallel-size": "4", "sequence-parallel": ""}),
        ("inline_array.sh", {"tensor-model-parallel-size": "8", "pipeline-model-parallel-size": "2"}),
        ("inline_array_flag2.sh", {"sequence-parallel": "", "recompute-granularity": "full"}),
        ("quoted_pair.sh", {"fp8-format": "hybrid", "fp8-recipe": "tensorwise"}),
        ("arithmetic.sh", {"global-batch-size": "64", "num-layers-per-virtual-pipeline-stage": "3"}),
        ("dashes.sh", {"tensor-model-parallel-size": "2"}),
        ("escaped_quotes.sh", {"tensor-model-parallel-size": "2"}),
        ("quoted_default.sh", {"context-parallel-size": "2", "cp-comm-type": "a2a"}),
        ("commented.sh", {"tensor-model-parallel-size": "2"}),
        ("positional_default.sh", {"tensor-model-parallel-size": "4", "micro-batch-size": "2"}),
        ("cmd_string.sh", {"tensor-model-parallel-size": "4", "pipeline-model-parallel-size": "2"}),
        ("no_position_embedding_rope.sh", {"no-position-embedding": "", "position-embedding-type": "rope"}),
        ("swift_lora.sh", {"train_type": "lora", "expert_model_parallel_size": "4"}),
        ("last_stage_pp1.txt", {"decoder-last-pipeline-num-layers": "1"}),
    ],
)
def test_the_words_of_a_launch_are_those_that_bash_makes(name, expected):
    assert options(name).items() >= expected.items()


@pytest.mark.parametrize("name", ["branches.sh", "dead_branch.sh", "commented.sh"])
def test_what_does_not_run_is_not_read(name):
    assert options(name).keys().isdisjoint({"num-experts", "recompute-granularity", "recompute-method"})


def test_a_branch_on_a_variable_that_nobody_set_is_told_and_can_be_given():
    script = read_script((CASES / "if_one_line.sh").read_text())
    assert script.assumed == ("line 3: $GPU other than a100 is assumed; the script also allows $GPU a100",)
    assert options("if_one_line.sh", environment={"GPU": "a100"})["tensor-model-parallel-size"] == "2"


def test_arguments_replace_defaults():
    assert options("positional_default.sh", arguments=["8", "1"])["tensor-model-parallel-size"] == "8"
