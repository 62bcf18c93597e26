"""NeMo RL: the training of its policy, on DTensor's FSDP or on Megatron-Core, by the files that say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, joined
from planner.jobs.megatron.configurations import resolved_tables, table_job, table_words
from planner.jobs.megatron.dialect import Words, dialect
from planner.jobs.options import present
from planner.jobs.reader import CommandReader, Context, Launch, configured, not_here, reader_of_tables
from planner.jobs.trainers.family import full_shard, plain_words, trainer, tuned
from planner.jobs.transformers.arguments import overrides_of
from planner.jobs.values import at_path, data, truth, whole

_CORE: Final = dialect("nemo-rl")
_DTENSOR: Final = trainer("nemo-rl", alone=True)
_TASKS: Final = {
    "sft": "finetune",
    "dpo": "dpo",
    "rm": "reward",
    "grpo": "grpo",
    "ppo": "ppo",
    "distillation": "finetune",
}
"""What is learnt, by the table of its settings."""
_NAMES: Final = {
    "train_global_batch_size": "global-batch-size", "train_micro_batch_size": "micro-batch-size",
    "max_total_sequence_length": "seq-length", "model_name": "model.name",
}  # fmt: skip
_OF_RUN: Final = frozenset({"loss_fn", "cluster", "data_plane", "data", "checkpointing", "logger", "policy", "value"})
"""Further tables by which settings are known that build on others."""
_PROGRAM: Final = re.compile(r"run_(?:grpo|sft|dpo|rm|distillation|vlm_grpo|opd)\w*\.py")
_DEEPEST: Final = 8


def _job(given: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of a configuration above those that its ``defaults`` name."""
    document, lost = _whole(given, context, _DEEPEST)
    missing = tuple(not_here(name, "has the rest of the settings") for name in lost)
    if not isinstance(document.get("policy"), Mapping):
        return ImportedJob(missing=missing or ("no policy is described; give the file that these settings build on",))
    found = _of_policy(resolved_tables(document, document), context)
    fields = present(gpus=_devices(document))
    return joined(found, ImportedJob(fields, missing=missing))


def _devices(document: Mapping[str, Any]) -> int | None:
    """GPUs that train: the cluster's less those that only generate; None where it does not say."""
    each, nodes = (whole(at_path(document, f"cluster.{name}")) for name in ("gpus_per_node", "num_nodes"))
    if not each or not nodes:
        return None
    apart = at_path(document, "policy.generation.colocated")
    if not isinstance(apart, Mapping) or truth(apart.get("enabled", True)) is not False:
        return each * nodes
    taken, taken_nodes = (whole(at_path(apart, f"resources.{name}")) for name in ("gpus_per_node", "num_nodes"))
    left = (nodes - (taken_nodes or nodes)) * each if nodes > 1 else each - (taken or each)
    return left if left > 0 else None


def _whole(
    document: Mapping[str, Any], context: Context, depth: int, beside: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """A configuration above those that it builds on, the last of them first, and which of these are not here.

    Names are relative to the file ``beside``, the first one's to the job's folder.
    """
    made, lost = dict(document), []
    names = document.get("defaults") or ()
    for name in [names] if isinstance(names, str) else reversed(names):
        file = context.find(str(name), beside) if depth else None
        if file is None or file.document is None:
            lost.append(str(name))
            continue
        below, more = _whole(file.document, context, depth - 1, file.path)
        made, lost = _above(made, below), [*lost, *more]
    return made, lost


def _above(own: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(below)
    for name, value in own.items():
        under = found.get(name)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        found[name] = _above(value, under) if both else value  # type: ignore[arg-type]
    return found


def _of_policy(document: Mapping[str, Any], context: Context) -> ImportedJob:
    task = next((meant for name, meant in _TASKS.items() if name in document), "grpo")
    policy = document["policy"]
    if truth(at_path(policy, "megatron_cfg.enabled") or False):
        if truth(at_path(policy, "dtensor_cfg.enabled") or False):
            raise BadRequest("policy: both dtensor_cfg and megatron_cfg are enabled; NeMo RL takes one of them")
        return table_job(_words(policy, task), _CORE, context)
    if truth(at_path(policy, "dtensor_cfg.enabled")) is False:
        raise BadRequest("policy: neither dtensor_cfg nor megatron_cfg is enabled; FSDP of PyTorch 1 is not priced")
    made = plain_words(document, "nemo-rl")
    sharded = full_shard(offload=made.pop("policy.dtensor_cfg.cpu_offload", False))
    word = str(made.pop("policy.precision", "bfloat16")).removeprefix("torch.")
    batch, optimizer = whole(made.pop("policy.train_global_batch_size", None)), str(made.pop("optim", "AdamW"))
    made |= {"bf16": word == "bfloat16", "fp16": word == "float16", "fsdp": sharded}
    made |= {"optim": {"AdamW": "adamw_torch"}.get(kind := optimizer.rpartition(".")[2], kind.lower())}
    job = tuned(made, _DTENSOR, context, gpus=None, batch=batch, task=task)
    said = (
        f"dtensor_cfg.{name} is read and not priced: {text}"
        for name, text in data("trainers/nemo-rl")["apart"].items()
        if str(at_path(policy, f"dtensor_cfg.{name}") or "0").lower() not in {"0", "1", "false"}  # it splits something
    )
    return replace(job, unpriced=(*job.unpriced, *said))


def _words(policy: Mapping[str, Any], task: str) -> Words:
    """Megatron-LM's options of the policy."""
    core = policy["megatron_cfg"]
    tables = ("optimizer", "distributed_data_parallel_config")
    parts = core.get("recompute_granularity") == "selective" and truth(core.get("activation_checkpointing") or False)
    left = {"activation_checkpointing"} if parts else {"recompute_granularity", "recompute_modules"}
    plain = {name: value for name, value in core.items() if name not in left and not isinstance(value, Mapping)}
    found = table_words(plain, {"": ""})
    for name in tables:
        found |= table_words(core.get(name) or {}, {"": ""})
    found |= {word: [str(policy[name])] for name, word in _NAMES.items() if policy.get(name) is not None}
    if truth(at_path(core, "peft.enabled") or False):
        found |= table_words({name: core["peft"].get(name) for name in ("dim", "target_modules")}, {"": "peft."})
    if truth(at_path(core, "fp8_cfg.enabled") or False):
        found |= table_words(core["fp8_cfg"], {"": ""})
        found["fp8-format"] = found.pop("fp8", ["hybrid"])
        found = {name: words for name, words in found.items() if name not in {"fp8-param", "enabled"}}
    on = {
        "dpo": task == "dpo",
        "peft": truth(at_path(core, "peft.enabled") or False),
        "fp8-param-gather": truth(at_path(core, "fp8_cfg.fp8_param") or False) and "fp8-format" in found,
        **{name.replace("_", "-"): truth(at_path(policy, f"{name}.enabled") or False)
           for name in ("sequence_packing", "dynamic_batching")},
    }  # fmt: skip
    return found | {name: [] for name, is_on in on.items() if is_on}


def _recognises(document: Mapping[str, Any]) -> bool:
    policy = document.get("policy", {})
    own = {"dtensor_cfg", "megatron_cfg", "train_global_batch_size"}
    names = document.get("defaults") or ()
    named = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    files = bool(named) and all(str(one).endswith(".yaml") for one in named)
    above = files and bool({*_TASKS, *_OF_RUN} & set(document))
    return isinstance(policy, Mapping) and (above or bool(own & set(policy)))


def _starts(launch: Launch) -> bool:
    program = any(_PROGRAM.fullmatch(word.rpartition("/")[2]) for word in launch.words)
    said = any(path.startswith(("policy.", "cluster.")) for path in overrides_of(launch.words))
    return program and (said or launch.option("config") is not None)


def _read_command(launch: Launch, context: Context) -> ImportedJob:
    name = launch.option("config")

    def job(document: dict[str, Any]) -> ImportedJob:
        said = "the script has its settings in a file of its own; give it too, with --config"
        return _job(document, context) if "policy" in document and name is not None else ImportedJob(missing=(said,))

    return configured(launch, context, name or "", overrides_of(launch.words), job)


READERS: Final = (
    reader_of_tables("nemo-rl", "a configuration of NeMo RL", "", _recognises, _job),
    CommandReader("nemo-rl", "a command line of NeMo RL", "", _starts, _read_command),
)
