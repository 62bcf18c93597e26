"""Primus: one YAML with a model by the name of its file and Megatron-LM's arguments as overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import Dialect
from planner.jobs.megatron.effects import OF_THE_RUN, UNPRICED
from planner.jobs.megatron.tables import table_job, table_words
from planner.jobs.reader import Context, DocumentReader, JobFile

_DIALECT: Final = Dialect(
    name="Primus",
    # primus/configs/modules/megatron: trainer_base.yaml, pre_trainer.yaml
    usual=(
        "--bf16 --use-distributed-optimizer --micro-batch-size 2 --global-batch-size 16 --seq-length 1024 "
        "--use-flash-attn --moe-grouped-gemm --moe-token-dispatcher-type alltoall --attention-dropout 0.0 "
        "--hidden-dropout 0.0"
    ),
    means={
        "model": "--model.name {}",
        "virtual-pipeline-model-parallel-size": "--num-virtual-stages-per-pipeline-rank {}",
        "fp8": "--fp8-format {}",
        "moe-use-fused-router-with-aux-score": "--moe-router-fusion",
        "use-deepep": "--moe-enable-deepep",
        "turbo-deepep": "--moe-enable-deepep",
        "use-turbo-deepep": "--moe-enable-deepep",
    },
    unpriced={
        **UNPRICED,
        "use-turbo-attention": "attention uses Primus-Turbo's kernels: the time differs",
        "use-turbo-grouped-gemm": "expert matrix products use Primus-Turbo's kernels: the time differs",
        "use-turbo-parallel-linear": "matrix products use Primus-Turbo's kernels: the time differs",
        "patch-zero-bubble": "a zero-bubble schedule; 1F1B is priced, so the iteration is shorter",
        "patch-primus-pipeline": "a schedule of Primus; Megatron's is priced, so the iteration is shorter",
        "recompute-layer-ids": "it names the layers to recompute: memory and time differ",
        "turbo-sync-free-moe-stage": "experts do not wait for the host: the iteration is shorter",
    },
    harmless=OF_THE_RUN
    + r"|enable-primus-turbo|stderr-sink-level|file-sink-level|disable-(wandb|tensorboard|last-saving"
    r"|compile-dependencies)"
    r"|auto-continue-train|trainer|framework|config|no-fp8-weight-transpose-cache|dump-pp-data|pp-warmup|use-pytorch-"
    r"profiler|moe-use-legacy-grouped-gemm|turbo-[\w-]+|disable-profiler-activity-cpu|torch-profiler-[\w-]+"
    r"|train-backend",
    cluster="mi300x-8x",
    booleans=True,
)


def _trainer(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The module that trains on Megatron; empty where there is none."""
    modules = document.get("modules")
    found = [one for one in modules.values() if isinstance(one, dict)] if isinstance(modules, dict) else []
    return next((one for one in found if str(one.get("framework", "")).startswith("megatron")), {})


def _recognises(file: JobFile) -> bool:
    return bool(_trainer(file.document or {}))


def _read(file: JobFile, context: Context) -> ImportedJob:
    trainer = _trainer(file.document or {})
    words = table_words(trainer, {"": "of.", "overrides": ""}, context.environment)
    name = words.get("of.model", [""])[0].removesuffix(".yaml")
    own = {word: values for word, values in words.items() if not word.startswith("of.")}
    return table_job(own | ({"model": [name]} if name else {}), _DIALECT, context)


READERS: Final = (DocumentReader("primus", "a configuration of Primus", "megatron-lm", _recognises, _read),)
