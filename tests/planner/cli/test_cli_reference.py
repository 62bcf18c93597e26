"""The written reference, what a shell completes, and how wide help is."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from planner.cli import main
from tests.each import each

ROOT = Path(__file__).parents[3]
SHELLS = [name for name in ("bash", "zsh", "fish") if shutil.which(name)]


def test_the_reference_is_what_the_parser_says():
    spec = importlib.util.spec_from_file_location("refresh_cli", ROOT / "scripts" / "refresh_cli.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.page() == script.PAGE.read_text(encoding="utf-8"), "python scripts/refresh_cli.py"
    assert all(f"## plan {name}\n" in script.page() for name in main.commands)


@each("name", main.commands)
def test_help_fits_a_terminal_of_eighty_columns(name):
    done = CliRunner().invoke(main, [name, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("plan", "s"), {"plain,solve", "plain,sweep", "plain,show"}),
        (("plan", "--mo"), {"plain,--model"}),
        (("plan", "export", "plan.json", "--to", "ma"), {"plain,maxtext"}),
        (("plan", "--for", "nano"), {"plain,nanotron"}),
        (("plan", "--model", "llama3-7"), {"plain,llama3-70b"}),
        (("plan", "predict", "--cluster", "dgx-h1"), {"plain,dgx-h100"}),
        (("plan", "list", "mod"), {"plain,models"}),
        (("plan", "export", "pl"), {"file,pl"}),
    ],
)
def test_a_shell_is_offered_what_may_follow(words, offered, monkeypatch):
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert offered <= set(BashComplete(main, {}, "plan", "_PLAN_COMPLETE").complete().split())


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_script_runs_in_the_shell_that_is_there(shell, tmp_path):
    plan = tmp_path / "plan"
    plan.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m planner "$@"\n')
    plan.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    ask = {
        "bash": 'eval "$(_PLAN_COMPLETE=bash_source plan)"; COMP_WORDS=(plan exp); COMP_CWORD=1; '
        '_plan_completion plan; echo "${COMPREPLY[@]}"',
        "zsh": 'autoload -Uz compinit; compinit -u; eval "$(_PLAN_COMPLETE=zsh_source plan)"; '
        "whence -w _plan_completion && COMP_WORDS='plan exp' COMP_CWORD=1 _PLAN_COMPLETE=zsh_complete plan",
        "fish": 'eval (_PLAN_COMPLETE=fish_source plan | string collect); complete -C "plan exp"',
    }[shell]
    done = subprocess.run([shell, "-c", ask], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert "export" in done.stdout, done.stderr


def test_piped_output_and_no_color_have_no_escapes():
    ask = [sys.executable, "-m", "planner", "--model", "gpt3-125m", "--gpus", "8", "--top", "1"]
    for extra in ({}, {"NO_COLOR": "1"}):
        done = subprocess.run(
            ask, env=os.environ | {"COLUMNS": "80"} | extra, capture_output=True, text=True, check=True
        )
        assert "\x1b" not in done.stdout + done.stderr
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_every_option_reads_its_default_from_the_environment():
    assert "Every option reads its default from PLAN_<OPTION>" in CliRunner().invoke(main, ["--help"]).stdout
    untold = {
        f"{name} {param.opts[0]}"
        for name, command in main.commands.items()
        for param in command.params
        if param.param_type_name == "option" and param.expose_value and not param.envvar
    }
    assert not untold


def test_help_sends_to_files_that_exist():
    said = " ".join(CliRunner().invoke(main, ["allocate", "--help"]).stdout.split())
    for name in ("examples/queue.toml", "docs/jobs.md"):
        assert name in said
        assert (ROOT / name).is_file()
