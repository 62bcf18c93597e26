"""A file of another kind, or of a model that is not known, is refused with what it looks like and who reads it."""

import pytest
from click.testing import CliRunner

from planner.cli import main
from tests.each import each

SCRIPT = "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 2\n"
TITAN = '[model]\nname = "{name}"\nflavor = "{flavor}"\n[parallelism]\n'


def predict(form, text, tmp_path, *arguments):
    path = tmp_path / "file"
    path.write_text(text)
    return CliRunner().invoke(main, ["predict", "--from", form, str(path), "--gpus", "8", *arguments])


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("deepspeed", SCRIPT, "it looks like arguments of Megatron-LM; leave --from out"),
        ("deepspeed", "[training]\nsteps = 3\n", "it looks like a configuration of torchtitan; leave --from out"),
        ("deepspeed", "distributed_type: FSDP\n", "it looks like a configuration of Accelerate; leave --from out"),
        ("deepspeed", "", "no configuration of DeepSpeed: it looks like an empty file"),
        ("deepspeed", "hello", "no configuration of DeepSpeed: it looks like plain text"),
        ("deepspeed", '{"bf16": ', "it looks like JSON that does not parse: Expecting value: line 1 column 10"),
        ("torchtitan", '{"train_batch_size": 8}', "it looks like a configuration of DeepSpeed; leave --from out"),
        ("torchtitan", SCRIPT, "it looks like arguments of Megatron-LM; leave --from out"),
        ("torchtitan", "[training]\nsteps = \n", "it looks like TOML that does not parse: Invalid value"),
    ],
)
def test_a_file_of_another_kind_is_named(form, text, said, tmp_path):
    done = predict(form, text, tmp_path, "--model", "llama3-8b")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


NESTED = {
    "json": lambda n: "[" * n + "]" * n,
    "toml": lambda n: f"a = {'[' * n}{']' * n}",
    "yaml": lambda n: "- " * n + "1",
}
ASKED = ("--model", "llama3-8b", "--gpus", "8")
TAKE = (
    *(("json", command) for command in (("validate",), ("report",), ("read",))),
    *((syntax, (*ASKED, option)) for syntax in ("json", "toml") for option in ("--cluster", "--stack")),
    *((syntax, ("--gpus", "8", "--model")) for syntax in ("json", "toml")),
    *((syntax, command) for syntax in NESTED for command in (("predict", "--config"), ("sweep",))),
)


@pytest.mark.parametrize("depth", [900, 100_000])
@each(("syntax", "command"), TAKE)
def test_what_is_nested_too_deeply_says_so_in_one_line(syntax, command, depth, tmp_path):
    path = tmp_path / f"deep.{syntax}"
    path.write_text(NESTED[syntax](depth))
    done = CliRunner().invoke(main, [*command, str(path)])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"{syntax.upper()} nested too deeply" in done.stderr or (depth == 900 and command[0] in {"read", "report"})


def test_a_key_of_very_many_dots_is_nested_too_deeply_at_once(tmp_path):
    path = tmp_path / "dots.toml"
    path.write_text(f"{'a.' * 100_000}a = 1")
    done = CliRunner().invoke(main, ["predict", "--config", str(path)])
    assert (done.exit_code, "TOML nested too deeply" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "flavor", "said"),
    [
        ("llama3", "71B", "flavor '71B' of llama3 is not known here; did you mean 70B? --model says any other"),
        ("llama3", "debugmodel", "flavor 'debugmodel' of llama3 is not known here; 8B, 70B, 405B are; --model says"),
        ("mamba", "3B", "model 'mamba' is not known here; llama3 8B, llama3 70B"),
    ],
)
def test_a_model_that_is_not_known_is_named(name, flavor, said, tmp_path):
    text = TITAN.format(name=name, flavor=flavor)
    done = predict("torchtitan", text, tmp_path)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert predict("torchtitan", text, tmp_path, "--model", "llama3-8b").exit_code == 0
