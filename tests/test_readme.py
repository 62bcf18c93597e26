"""README and guides say what is true: commands run, the screen has today's shape, the first blocks are what CI runs."""

import json
import re
import shlex
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.render import catalogue
from planner.render.terminal.panels import TERMS
from planner.runs.files import json_lines
from planner.runs.judge import shipped

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").glob("*.md"))
    if path.stem != "cli"  # written from the parser
}
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def part(name, text=README):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)[1]


def commands(text):
    lines = [line for block in blocks("console", text) for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ plan")]


COMMANDS = {
    (tuple(shlex.split(command, comments=True)[1:]), re.search(r"# exit code (\d+)|$", command)[1])
    for text in (README, *GUIDES.values())
    for command in commands(text)
}
"""What is shown with one remark or another, once: words and the exit code that is told, if one is."""


def run(*arguments):
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "100", "NO_COLOR": "1"})


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_first_block_does_the_main_job_on_a_fresh_machine():
    (command,) = blocks("bash")[0].splitlines()
    *setup, job = command.split(" && ")
    assert setup == ["python3 -m venv .venv", ".venv/bin/pip install -q ."]
    assert job == ".venv/bin/plan --model 175b --gpus 12288"


def test_the_second_block_runs_the_tests_on_a_fresh_machine():
    (command,) = blocks("bash")[1].splitlines()
    assert command.split(" && ")[::2] == ["python3 -m venv .venv", ".venv/bin/pytest -q -n auto"]


@pytest.mark.parametrize("number", [1, 2])
def test_ci_runs_the_first_two_blocks_as_they_stand(number):
    reader = re.search(r"^readme\(\) \{.*?^\}", CI, re.DOTALL | re.MULTILINE)[0]
    read = subprocess.run(["bash", "-c", f"{reader}\nreadme {number}"], capture_output=True, text=True, check=True)
    assert read.stdout == blocks("bash")[number - 1]
    name = ("first", "second")[number - 1]
    assert f"{name}=$(readme {number})" in CI
    assert f'eval "${name}"' in CI


def test_readme_and_guides_show_enough_commands_to_be_worth_testing():
    assert len(commands(README)) >= 5
    assert len(COMMANDS) >= 40


def test_the_readme_leads_to_the_index_and_the_index_to_every_guide():
    assert "](docs/README.md)" in README
    assert set(re.findall(r"\]\(([\w-]+)\.md", GUIDES["README"])) == {*GUIDES, "cli"} - {"README"}


@pytest.fixture(scope="module")
def some_runs(tmp_path_factory):
    """Some of those that are shipped; test_same_prices prices them all."""
    some = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    some.write_text("".join(json.dumps(run) + "\n" for _, run in islice(json_lines(*shipped()), 100)))
    return some


@pytest.mark.parametrize(("words", "code"), sorted(COMMANDS, key=str), ids=lambda told: " ".join(told or "0"))
def test_every_shown_command_ends_as_it_says(words, code, monkeypatch, some_runs):
    monkeypatch.setattr("planner.runs.report.shipped", lambda: [some_runs])
    monkeypatch.setattr("planner.analyses.robust.STEPS", 0)  # every halving prices all corners anew
    done = run(*words)
    assert done.exit_code == int(code or 0), done.stderr
    assert done.stdout or done.exit_code == 2


def headings(screen):
    """First words of the lines that are not indented: what the screen consists of, and in which order."""
    return [line.split()[0] for line in screen.splitlines() if line[:1].strip() and line[0] != "$" and line[0] != "`"]


def test_the_screen_has_the_shape_of_a_fresh_one():
    shown = part("screen")
    command = re.search(r"^\$ (plan .*)$", shown, re.MULTILINE)[1]
    assert command.split()[1:] == blocks("bash")[0].split()[-4:]
    fresh = headings(run(*command.split()[1:]).stdout)
    parts = ["Strategy", "Time", "Training", "Memory", "Risk", "Alternatives", "Why", "Launch", "Assumed"]
    assert [word for word in headings(shown) if word in parts] == parts
    assert [word for word in fresh if word in parts] == parts
    assert headings(shown)[0] == fresh[0] == "Use"


def test_the_screen_names_only_terms_that_exist():
    shown = re.findall(r"^  ([a-z][a-z ()-]*?) {2,}[\d.]+ s +[\d.]+ %", part("screen"), re.MULTILINE)
    assert shown
    assert set(shown) <= {*TERMS.values(), "all other terms"}


def test_every_source_of_the_accuracy_tables_is_a_group_of_the_shipped_runs():
    groups = {row["group"] for path in shipped() for _, row in json_lines(path)}
    shown = part("sources", GUIDES["accuracy-by-source"])
    named = re.findall(r"^\| ([a-z][\w.-]+)(?: \(.*?\))? \|", shown, re.MULTILINE)
    assert len(named) > 80
    assert set(named) - {"source"} <= groups


def test_readme_or_guides_show_every_command_of_the_program():
    shown = "\n".join((README, *GUIDES.values()))
    for name in main.commands:
        assert re.search(rf"\bplan {name}\b", shown) or name == "solve", name


def test_every_exit_code_is_explained():
    from planner.cli import ending

    codes = (ending.OK, ending.UNEXPECTED, ending.BAD_REQUEST, ending.INFEASIBLE, ending.OUT_OF_TIME)
    assert all(f"\n| {code} |" in GUIDES["schedulers"] for code in (*codes, ending.INTERRUPTED))


def test_the_python_example_runs(capsys):
    (program,) = blocks("python")
    exec(compile(program, "README.md", "exec"), {})  # noqa: S102 - the repository's own text
    assert '"schema": "plan/1"' in capsys.readouterr().out


def test_the_shown_files_are_the_files():
    for name in ("my-model", "my-cluster"):
        assert (ROOT / "examples" / f"{name}.toml").read_text().strip() in part(name, GUIDES["machines"])


def test_the_shown_run_is_the_run():
    assert (ROOT / "examples" / "run.json").read_text().strip() in part("run", GUIDES["calibrate"])


def test_the_shown_study_is_the_study():
    assert (ROOT / "examples" / "sweep.toml").read_text().strip() in part("sweep", GUIDES["studies"])


def test_the_kinds_of_the_catalogue_are_counted():
    counted = [kind for _, kind in re.findall(r"(\d+) (\w+)", part("catalogue"))]
    assert sorted(counted) == sorted(catalogue.KINDS)
