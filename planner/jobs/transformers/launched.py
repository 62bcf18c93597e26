"""How a trainer is launched: the settings of ``accelerate launch``, and on how many GPUs a command line starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from planner.jobs.options import Options
from planner.jobs.reader import Context, Launch
from planner.jobs.shell.processes import processes
from planner.jobs.transformers.arguments import Started, values_of, whole_of

_TOP: Final = ("num_processes", "num_machines", "mixed_precision")
_PLUGIN: Final = (
    "zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_accumulation_steps",
    "deepspeed_config_file",
)  # fmt: skip
_TABLES: Final = {
    "fsdp_": "fsdp_config", "megatron_lm_": "megatron_lm_config", "parallelism_config_": "parallelism_config",
    "dynamo_": "dynamo_config",
}  # fmt: skip
_KINDS: Final = {
    "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM", "multi_gpu": "MULTI_GPU"
}  # fmt: skip


def accelerate_of(start: Started, context: Context) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The configuration that ``accelerate launch`` works with, None under another launcher, and what is missing.

    Options stand above the file; without one that is named, the only configuration among the job's files is taken.
    """
    if "accelerate" not in {Path(word).name for word in start.launcher} | set(start.launcher):
        beside = context.holding("distributed_type")
        return (beside.document if beside else None), ()
    said = values_of(start.launcher, Options())
    name = said.get("config_file")
    missing: tuple[str, ...] = ()
    file = (context.find(str(name)) if name else None) or context.holding("distributed_type")
    document: Mapping[str, Any] = (file.document if file else None) or {}
    if name and file is None:
        missing = (f"{name} says how accelerate shards, but is not here; give that file too",)
    return _overridden(document, said), missing


def _overridden(document: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with what the launcher's options say in its place."""
    found = dict(document)
    found |= {name: _plain(said[name]) for name in _TOP if name in said}
    kinds = [kind for option, kind in _KINDS.items() if _set(said.get(option))]
    found["distributed_type"] = kinds[0] if kinds else found.get("distributed_type", "NO")
    if plugin := {name: said[name] for name in _PLUGIN if name in said}:
        found["deepspeed_config"] = {**(found.get("deepspeed_config") or {}), **plugin}
    for start, table in _TABLES.items():
        if inner := {name: _plain(value) for name, value in said.items() if name.startswith(start)}:
            found[table] = {**(found.get(table) or {}), **inner}
    return found


def _set(value: Any) -> bool:
    return value is True or str(value).lower() in {"true", "1", "yes"}


def _plain(value: Any) -> Any:
    """A number or a switch where a word is one."""
    text = str(value)
    if text.isdecimal():
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), value)


def gpus_of(launch: Launch, start: Started, accelerate: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """GPUs of a launch, None where nothing says them, and what was assumed for it.

    Args:
        launch: as the shell evaluated it.
        start: the same, taken apart.
        accelerate: the configuration of ``accelerate launch``, completed by its options.
    """
    count = (whole_of(accelerate, "num_processes") if accelerate is not None else None) or processes(launch)
    alone = Path(launch.words[0]).name.startswith("python") and "-m" not in start.launcher and not launch.outer
    if count is None and alone:
        return 1, "it starts without a launcher, so on one GPU; --gpus changes it"
    return count, ""
