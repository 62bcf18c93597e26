"""Files take every word of the command line."""

import json

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.cli.ask import FIELDS
from planner.request.axes import PIN_AXES
from planner.request.spelling import own_name

ASKED = {"model": "llama3-8b", "gpus": 64}


def dry(folder, document):
    """What a configuration is read as: each field, or the line that refuses it."""
    (folder / "ask.json").write_text(json.dumps(ASKED | document))
    done = CliRunner().invoke(main, ["--config", str(folder / "ask.json"), "--dry-run", "--format", "json"])
    return json.loads(done.stdout) if done.exit_code == 0 else done.stderr


def test_every_word_of_the_command_line_is_known_by_the_name_of_its_field():
    options = [param for param in main.commands["solve"].params if param.name in (*FIELDS, *PIN_AXES)]
    words = {word[2:]: param.name for param in options for word in param.opts if word.startswith("--")}
    assert len(words) > len(options) > 40
    assert {word: own_name(word) for word in words} == words


def test_a_configuration_takes_them(tmp_path):
    words = {"global_batch": 128, "seq-len": 4096, "for": "megatron-lm", "pins": {"zero": 1, "micro_batch": 2}}
    own = {"global_batch_size": 128, "seq_length": 4096, "framework": "megatron-lm"}
    assert dry(tmp_path, words) == dry(tmp_path, own | {"pins": {"zero_stage": 1, "micro_batch_size": 2}})


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"global_batch": 64, "global_batch_size": 64}, "global_batch and global_batch_size say the same thing twice"),
        ({"pins": {"zero": 1, "zero_stage": 1}}, "zero and zero_stage say the same thing twice"),
        ({"zero": 1}, "there is no field 'zero'; it belongs under [pins]: zero_stage = ..."),
        ({"global_bach": 64}, "there is no field 'global_bach'; did you mean global_batch_size?"),
    ],
)
def test_what_is_said_twice_or_in_the_wrong_place_is_refused_in_one_line(tmp_path, document, said):
    refused = dry(tmp_path, document)
    assert said in refused
    assert refused.count("\n") == 1
