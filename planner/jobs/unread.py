"""Frameworks whose files are known by their content and not read: named, so that none is taken for another's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from planner.errors import BadRequest
from planner.jobs.reader import CommandReader, DocumentReader, JobFile, Launch, Reader
from planner.jobs.values import at_path

_SAY: Final = (
    "say its job by options: --model, --gpus, --global-batch-size, --seq-length, and --tp, --pp, --zero of its strategy"
)


@dataclass(frozen=True)
class Unread:
    """A framework.

    Attributes:
        title: what people call it.
        programs: pattern of a word that starts it.
        keys: names that its documents have, all of them; ``a.b`` is a name within a table.
        text: pattern of what its files in Python, or in a YAML with tags of its own, have.
    """

    title: str
    programs: str = ""
    keys: Collection[str] = ()
    text: str = ""


UNREAD: Final = (
    Unread("ColossalAI", r"colossalai", text=r"^[ \t]*(from|import) colossalai\b"),
    Unread("xtuner", r"xtuner", text=r"^[ \t]*(from|import) xtuner\b"),
    Unread("AReaL", keys=("actor.backend", "allocation_mode", "rollout")),
    Unread("OLMo", keys=("device_train_microbatch_size", "model.d_model", "model.n_layers", "model.mlp_ratio")),
    Unread("NeMo Automodel", keys=("step_scheduler", "distributed", "model")),
    Unread("VeOmni", keys=("model.model_path", "train.micro_batch_size", "train.global_batch_size")),
    Unread("ArcticTraining", r"arctic_training", keys=("model.name_or_path", "micro_batch_size", "data.sources")),
    Unread("Fast-LLM", r"fast-llm", keys=("training.train_iters", "model.base_model")),
    Unread("Lingua", keys=("distributed.fsdp_type", "model.n_layers", "data.batch_size")),
    Unread("prime-rl", keys=("model.name", "data.micro_batch_size", "optim")),
    Unread("Levanter", r"levanter\.main\.\w+", keys=("trainer.train_batch_size", "model.type", "model.hidden_dim"),
           text=r"(?s)^model:\n.*^ +hidden_dim:.*^ +train_batch_size:"),
)  # fmt: skip


def _has(document: Mapping[str, Any], path: str) -> bool:
    above, _, name = path.rpartition(".")
    at = at_path(document, above) if above else document
    return isinstance(at, Mapping) and name in at


def _of_file(one: Unread) -> Callable[[JobFile], bool]:
    def recognises(file: JobFile) -> bool:
        if file.document is not None:
            return bool(one.keys) and all(_has(file.document, key) for key in one.keys)
        return bool(one.text) and re.search(one.text, file.text, re.MULTILINE) is not None

    return recognises


def _of_launch(one: Unread) -> Callable[[Launch], bool]:
    program = re.compile(rf"(?:.*/)?(?:{one.programs})")
    return lambda launch: any(program.fullmatch(word) for word in launch.words[:3])


def _refused(title: str) -> Callable[..., NoReturn]:
    def read(*_: object) -> NoReturn:
        raise BadRequest(f"{title} is known and not read; {_SAY}")

    return read


def _readers(one: Unread) -> tuple[Reader, ...]:
    document = DocumentReader("", f"a file of {one.title}", "", _of_file(one), _refused(one.title))
    command = CommandReader("", f"a command line of {one.title}", "", _of_launch(one), _refused(one.title))
    return (document, command) if one.programs else (document,)


READERS: Final = tuple(reader for one in UNREAD for reader in _readers(one))
"""In front of all others, whose options some of these have too."""
