"""A file of another kind, or of a model that is not known, is refused with what it looks like and who reads it."""

import pytest
from click.testing import CliRunner

from planner.cli import main

SCRIPT = "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 2\n"
TITAN = '[model]\nname = "{name}"\nflavor = "{flavor}"\n[parallelism]\n'


def predict(form, text, tmp_path, *arguments):
    path = tmp_path / "file"
    path.write_text(text)
    return CliRunner().invoke(main, ["predict", "--from", form, str(path), "--gpus", "8", *arguments])


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("deepspeed", SCRIPT, "no JSON: it looks like a script or a command line, which --from megatron-args reads"),
        ("deepspeed", "[training]\nsteps = 3\n", "no JSON: it looks like TOML, which --from torchtitan reads"),
        ("deepspeed", "zero_optimization:\n  stage: 3\n", "no JSON: it looks like YAML"),
        ("deepspeed", "", "no JSON: it looks like an empty file"),
        ("deepspeed", "hello", "no JSON: it looks like plain text"),
        ("deepspeed", '{"bf16": ', "no JSON: Expecting value: line 1 column 10"),
        ("torchtitan", '{"bf16": {}}', "no TOML: it looks like JSON, which --from deepspeed reads"),
        ("torchtitan", SCRIPT, "which --from megatron-args reads"),
        ("torchtitan", "[training]\nsteps = \n", "no TOML: "),
    ],
)
def test_a_file_of_another_kind_is_named(form, text, said, tmp_path):
    done = predict(form, text, tmp_path, "--model", "llama3-8b")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("name", "flavor", "said"),
    [
        ("llama3", "71B", "flavor '71B' of llama3 is not known here; did you mean 70B? --model says any other"),
        ("llama3", "debugmodel", "flavor 'debugmodel' of llama3 is not known here; 8B, 70B, 405B are; --model says"),
        ("llama4", "17bx16e", "model 'llama4' is not known here; llama3 8B, llama3 70B"),
    ],
)
def test_a_model_that_is_not_known_is_named(name, flavor, said, tmp_path):
    text = TITAN.format(name=name, flavor=flavor)
    done = predict("torchtitan", text, tmp_path)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert predict("torchtitan", text, tmp_path, "--model", "llama3-8b").exit_code == 0
