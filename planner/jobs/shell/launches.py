"""Which commands start a training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from planner.jobs.data import data

_ANY: Final = frozenset({""})


_PROGRAMS: Final = {name: frozenset(under.split(" ")) for name, under in data("shell/words")["programs"].items()}
"""Programs that start a training, with the words of theirs that do; any word where it is empty."""
_PYTHON: Final = re.compile(r"(?:pypy|python|ipython)[\d.]*")
_LAUNCHERS: Final = ("torch.distributed", "accelerate.commands", "paddle.distributed", "deepspeed")
"""Modules of Python that start processes of a training."""
_OTHER: Final = re.compile(
    r"(?i)(^|[/._-])(pre_?process|convert|prepare|download|eval(uate|uation)?|infer(ence)?|generat(e|ion)|export|merge"
    r"|tokeniz|serve|server|client|plot|demo|upload|extract|setup|install|process_data|chat|vllm|sglang|lm_eval|pip"
    r"|json\.tool|http\.server|venv|virtualenv|ensurepip|gradio|build|checkpoint_util|zero_to_fp32|get_|wait_|check"
    r"|print_|parse|summar|visuali[sz]|sample|site|compileall|nltk|spacy|hf_to|to_hf|hf2|2hf|transfer|cleanup"
    r"|monitor|split_|clean_|filter_|make_|pytest|unittest|coverage|compare|post_?process|prefetch|inspect|analy[sz]e"
    r"|score|lint|ruff|black|mypy|pylint)"
)
"""Programs of Python that do something else: data, checkpoints, inference."""
_TRAINING: Final = re.compile(r"(?i)(run_)?(pre_?)?train|fine_?tune|sft|dpo|grpo")
"""Names of programs that train, whatever else is in them."""
_FILES: Final = (".yaml", ".yml", ".json", ".toml", ".py")


def starts_training(words: Sequence[str]) -> bool:
    """Whether a command line starts a training, by its program and its words."""
    name, rest = PurePath(words[0]).name, list(words[1:])
    if name in _PROGRAMS:
        under = _PROGRAMS[name]
        return bool(rest) if under == _ANY else not under.isdisjoint(rest[:2])
    return _python(rest) if _PYTHON.fullmatch(name) else _trains(words[0], rest)


def _python(rest: list[str]) -> bool:
    """Whether Python is given a program that trains, as a file or as a module."""
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        option = rest.pop(0)
        if option in {"-c", "-V", "--version"}:
            return False
        if option in {"-X", "-W"} and rest:
            rest.pop(0)
    if rest[:1] == ["-m"]:
        return len(rest) > 1 and _module(rest[1], rest[2:])
    return bool(rest) and _trains(rest[0], rest[1:])


def _module(name: str, rest: list[str]) -> bool:
    if name.startswith(_LAUNCHERS):
        return name.rpartition(".")[2] in {"launch", "run", "deepspeed", "launcher"}
    if name in _PROGRAMS:
        return starts_training([name, *rest])
    first, _, last = name.partition(".")
    return bool(rest) and not (_OTHER.search(first) or _OTHER.search(last.rpartition(".")[2]))


def _trains(path: str, rest: list[str]) -> bool:
    """Whether a program of Python has options, and is not one for something else."""
    name = PurePath(path).name
    if not name.endswith(".py") or (_OTHER.search(name) and not _TRAINING.match(name)):
        return False
    return "train" in name or any(one.startswith("-") or "=" in one or one.endswith(_FILES) for one in rest)
