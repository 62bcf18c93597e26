"""Command lines as HfArgumentParser takes them: the launcher and its GPUs, what it starts, options with values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.jobs.options import Options
from planner.jobs.reader import Context, Launch, not_here
from planner.jobs.shell.processes import processes
from planner.jobs.values import data

_LAUNCHERS: Final = frozenset({"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"})
_PROGRAMS: Final = frozenset({"python", "python3", "accelerate", "deepspeed", "torchrun"})


@dataclass(frozen=True)
class Started:
    """What a command line starts.

    Attributes:
        launcher: the words before it.
        program: the script, the module, or a program such as ``trl``.
        words: what it is given.
    """

    launcher: tuple[str, ...]
    program: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The program without its folders and ending."""
        return Path(self.program).name.removesuffix(".py")


def started(words: Sequence[str]) -> Started:
    """The script, module or program of a command line, behind its launchers."""
    if not words or not _launches(words[0]):
        return Started((), words[0] if words else "", tuple(words[1:]))
    for at, word in enumerate(words):
        module = at > 0 and words[at - 1] in {"-m", "--module"}
        if module and word in _LAUNCHERS:
            continue
        if module or word.endswith(".py"):
            return Started(tuple(words[:at]), word, tuple(words[at + 1 :]))
    at = next((at for at, word in enumerate(words) if not _launches(word)), 0)
    return Started(tuple(words[:at]), words[at], tuple(words[at + 1 :]))


def _launches(word: str) -> bool:
    name = Path(word).name
    return name in _PROGRAMS or name.startswith("python")


def is_option(word: str) -> bool:
    """Whether a word begins an option: a negative number does not."""
    return word.startswith("-") and not word[1:2].isdigit() and word not in {"-", "--"}


def values_of(words: Sequence[str], options: Options) -> dict[str, Any]:
    """The options of a command line, with underscores: a word, several, or True where there is none.

    ``--no_x`` is x switched off where x is one of the options' switches.
    """
    flags = {word for row in options if row.kind == "flag" for word in (row.word, *row.older)}
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if is_option(word):
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if not equals and name not in flags and name.removeprefix("no_") in flags:
                found[name.removeprefix("no_")] = False
                name = ""
            else:
                found[name] = value if equals else True
        elif name:
            before = found[name]
            found[name] = word if before is True else [*(before if isinstance(before, list) else [before]), word]
    return found


def files_of(words: Sequence[str], *endings: str) -> list[str]:
    """The words that are no option's value and end as a file does: those before the first option."""
    first = next((at for at, word in enumerate(words) if is_option(word)), len(words))
    return [word for word in words[:first] if word.lower().endswith(endings)]


def overrides_of(words: Sequence[str]) -> dict[str, str]:
    """Values that are given as ``key=value``, what Hydra has in front of a key left out."""
    pairs = (word.partition("=") for word in words if "=" in word and not is_option(word))
    return {key.lstrip("+~"): value for key, _, value in pairs}


def whole_of(values: Mapping[str, Any], *names: str) -> int | None:
    """The first of some options that is a whole number."""
    for name in names:
        text = str(values.get(name, ""))
        if text.isascii() and text.isdecimal() and int(text) > 0:
            return int(text)
    return None


_TOP: Final = ("num_processes", "num_machines", "mixed_precision")
_PLUGIN: Final = (
    "zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_accumulation_steps",
    "deepspeed_config_file",
)  # fmt: skip
_SAID: Final[Mapping[str, Mapping[str, str]]] = data("transformers/words")["accelerate"]


def accelerate_of(start: Started, context: Context) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The configuration that ``accelerate launch`` works with, None under another launcher, and what is missing.

    Options stand above the file; without one that is named, the only configuration among the job's files is taken.
    """
    if "accelerate" not in {Path(word).name for word in start.launcher} | set(start.launcher):
        found = context.holding("distributed_type")
        return (found.document if found else None), ()
    said = values_of(start.launcher, Options())
    name = said.get("config_file")
    missing: tuple[str, ...] = ()
    file = (context.find(str(name)) if name else None) or context.holding("distributed_type")
    document: Mapping[str, Any] = (file.document if file else None) or {}
    if name and file is None:
        missing = (not_here(name, "says how accelerate shards"),)
    return _overridden(document, said), missing


def _overridden(document: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with what the launcher's options say in its place."""
    found = dict(document)
    found |= {name: _plain(said[name]) for name in _TOP if name in said}
    kinds = [kind for name, kind in _SAID["kinds"].items() if str(said.get(name)).lower() in {"true", "1", "yes"}]
    found["distributed_type"] = kinds[0] if kinds else found.get("distributed_type", "NO")
    if plugin := {name: said[name] for name in _PLUGIN if name in said}:
        found["deepspeed_config"] = {**(found.get("deepspeed_config") or {}), **plugin}
    for start, table in _SAID["tables"].items():
        if inner := {name: _plain(value) for name, value in said.items() if name.startswith(start)}:
            found[table] = {**(found.get(table) or {}), **inner}
    return found


def _plain(value: Any) -> Any:
    """A number or a switch where a word is one."""
    text = str(value)
    if text.isdecimal():
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), value)


def gpus_of(launch: Launch, start: Started, accelerate: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """GPUs of a launch, None where nothing says them, and what was assumed for it."""
    count = (whole_of(accelerate, "num_processes") if accelerate is not None else None) or processes(launch)
    alone = Path(launch.words[0]).name.startswith("python") and "-m" not in start.launcher and not launch.outer
    if count is None and alone:
        return 1, "it starts without a launcher, so on one GPU; --gpus changes it"
    return count, ""
