"""The command lines and files of ms-swift's Transformers half as questions, as of ms-swift 4.6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.imported import ImportedJob, joined
from planner.jobs.reader import Context, Launch
from planner.jobs.trainers.family import is_program, readers, trainer
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.read import command_job, command_of
from planner.jobs.values import truth

_TASKS: Final = {"sft": "finetune", "pt": "pretrain", "rlhf": "dpo"}
_SCRIPTS: Final = ("cli/sft.py", "cli/pt.py", "cli/rlhf.py", "llm_sft.py", "llm_dpo.py")
_OF_ADAPTERS: Final = frozenset({"tuner_type", "train_type", "sft_type"})


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that stand for others here: adapters train unless said, in the format of the products."""
    usual = {} if _OF_ADAPTERS & set(values) else {"tuner_type": "lora"}
    made = {**values, **usual}
    made.setdefault("target_modules", made.get("lora_target_modules", "all-linear"))
    made.setdefault("torch_dtype", "float16" if truth(values.get("fp16", False)) else "bfloat16")
    return made


SWIFT: Final = trainer("swift", _translated)


def _starts(launch: Launch) -> bool:
    start = started(launch.words)
    if is_program(launch, "swift"):
        return bool(start.words) and start.words[0] in _TASKS
    return start.program in {"swift", *(f"swift.cli.{one}" for one in _TASKS)} or start.program.endswith(_SCRIPTS)


def _read(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    own = is_program(launch, "swift")
    command = command_of(launch, context, SWIFT, start.words[1:] if own else start.words)
    kind = start.words[0] if own else start.name.rpartition(".")[2]
    found = command_job(launch, context, SWIFT, command=command, task=_TASKS.get(kind, "finetune"))
    alone = own and "NPROC_PER_NODE" not in launch.environment and found.fields.get("gpus", 1) > 1
    effect = "one process places the layers on its GPUs one after another; data parallelism is priced"
    return joined(found, ImportedJob(unpriced=(effect,))) if alone else found


READERS: Final = readers(
    "swift", SWIFT, "configuration", _starts, read=_read, task=lambda _: "finetune",
    recognises=lambda keys: "model" in keys and bool(keys & {*_OF_ADAPTERS, "rlhf_type", "split_dataset_ratio"}),
)  # fmt: skip
