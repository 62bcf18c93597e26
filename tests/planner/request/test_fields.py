"""One table of fields: what it says is what the command line, files, studies and answers know."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.request.fields import FIELDS, PIN_AXES, QUESTION, STACK_CHOICES, own_name
from planner.request.request import PlanRequest

ASKED = {"model": "llama3-8b", "gpus": 64}


def dry(folder, document):
    """What a configuration is read as: each field, or the line that refuses it."""
    (folder / "ask.json").write_text(json.dumps(ASKED | document))
    done = CliRunner().invoke(main, ["--config", str(folder / "ask.json"), "--dry-run", "--format", "json"])
    return json.loads(done.stdout) if done.exit_code == 0 else done.stderr


def test_every_word_of_the_command_line_is_known_by_the_name_of_its_field():
    options = [param for param in main.commands["solve"].params if param.name in FIELDS]
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
        ({"global_batch": 64, "global_batch_size": 64}, "global_batch and global_batch_size are the same option"),
        ({"pins": {"zero": 1, "zero_stage": 1}}, "zero and zero_stage are the same option"),
        ({"zero": 1}, "there is no field 'zero'; it belongs under [pins]: zero_stage = ..."),
        ({"global_bach": 64}, "there is no field 'global_bach'; did you mean global_batch_size?"),
    ],
)
def test_what_is_said_twice_or_in_the_wrong_place_is_refused_in_one_line(tmp_path, document, said):
    refused = dry(tmp_path, document)
    assert said in refused
    assert refused.count("\n") == 1


def test_the_table_and_the_record_have_the_same_fields_and_defaults():
    fields = {name: field for name, field in PlanRequest.model_fields.items() if name != "pins"}
    assert set(fields) == set(QUESTION)
    given = {name: field.get_default(call_default_factory=True) or None for name, field in fields.items()}
    needed = {name: None for name, field in fields.items() if field.is_required()}
    assert given | needed == {name: FIELDS[name].default or None for name in QUESTION}


def test_words_mean_one_field_each():
    words = [word for field in FIELDS.values() for word in (*field.words, *field.also)]
    assert len(words) == len(set(words))
    assert not set(PIN_AXES) & set(QUESTION)
    assert set(STACK_CHOICES) < set(QUESTION)


ROW = """    Field("flavour", "A toy of a test.", "NAME", ("flavour", "taste"), left_out=10),
    Field("tokens","""
LINE = """    flavour: str | None = None
    top: Annotated"""
TRIED = """
import json
from click.testing import CliRunner
from planner import PlanRequest, predict
from planner.cli import main
from planner.explain.nearest import cli_flag, given_options
from planner.studies.study import points_of
from planner.studies.study_file import study_of
from planner.studies.question import key_of

asked = PlanRequest(model="llama3-8b", gpus=8, flavour="sweet")
study = study_of({"model": "llama3-8b", "gpus": 8, "tastes": ["sweet", "sour"]})
run = CliRunner()
print(json.dumps({
    "help": " ".join(run.invoke(main, ["solve", "--help-all"]).stdout.split()),
    "option": run.invoke(main, ["--config", "ask.json", "--taste", "sour", "--dry-run", "--format", "json"]).exit_code,
    "file": json.loads(run.invoke(main, ["predict", "--config", "ask.json", "--format", "json"]).stdout)["request"],
    "study": [dict(point.axes) for point in points_of(study)],
    "keys": len({key_of(point.fields, "search") for point in points_of(study)}),
    "saved": predict(asked).request,
    "left out": cli_flag(asked, given_options(asked)[-1]),
}))
"""


def test_a_new_field_is_a_row_of_the_table_and_a_line_of_the_record(tmp_path):
    shutil.copytree(Path(__file__).parents[3] / "planner", tmp_path / "planner")
    for name, before, after in (("fields", '    Field("tokens",', ROW), ("request", "    top: Annotated", LINE)):
        path = tmp_path / "planner" / "request" / f"{name}.py"
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))
    (tmp_path / "ask.json").write_text(json.dumps(ASKED | {"gpus": 8, "taste": "sweet"}))
    command = [sys.executable, "-c", TRIED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "--flavour NAME A toy of a test. [also --taste]" in found["help"]
    assert found["option"] == 0
    assert found["file"]["flavour"] == found["saved"]["flavour"] == "sweet"
    assert found["study"] == [{"flavour": "sweet"}, {"flavour": "sour"}]
    assert found["keys"] == 2
    assert found["left out"] == "--flavour sweet"
