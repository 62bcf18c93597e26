"""Lines as frameworks print them, with numbers of our own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from planner.jobs.imported import ImportedJob
from planner.jobs.reader import Context
from planner.jobs.readers import read_job


def read(tmp_path: Path, text: str, *, name: str = "train.log", known: Iterable[str] = ()) -> ImportedJob:
    """The job of a log, which is recognised by what it holds."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_job([path], Context(known=frozenset(known))).job


def measured(tmp_path: Path, text: str, *, name: str = "train.log") -> dict[str, object]:
    """What a log measures."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    run = read_job([path], Context()).run
    assert run is not None
    return dict(run["measured"])


def megatron(step: int, ms: float, *, of: int = 100, batch: int = 64, skipped: int = 0) -> str:
    """A line of an iteration."""
    return (
        f" iteration {step:8d}/{of:8d} | consumed samples: {step * batch:12d} | "
        f"elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.000E-05 | global batch size: {batch:5d} | "
        f"lm loss: 7.1E+00 | loss scale: 4096.0 | number of skipped iterations: {skipped:3d} | "
        "number of nan iterations:   0 |\n"
    )


ARGUMENTS = {
    "num_layers": "24",
    "hidden_size": "2048",
    "ffn_hidden_size": "8192",
    "num_attention_heads": "16",
    "seq_length": "2048",
    "max_position_embeddings": "2048",
    "micro_batch_size": "2",
    "global_batch_size": "64",
    "tensor_model_parallel_size": "2",
    "pipeline_model_parallel_size": "4",
    "sequence_parallel": "True",
    "bf16": "True",
    "fp16": "False",
    "params_dtype": "torch.bfloat16",
    "padded_vocab_size": "50304",
    "use_distributed_optimizer": "True",
    "add_bias_linear": "False",
    "position_embedding_type": "rope",
    "recompute_granularity": "None",
    "world_size": "16",
}


def dump(prefix: str = "", **more: str) -> str:
    """A dump of arguments as Megatron-LM prints it."""
    lines = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in (ARGUMENTS | more).items()]
    head, foot = f"{'-' * 24} arguments {'-' * 24}", f"{'-' * 20} end of arguments {'-' * 21}"
    return "".join(f"{prefix}{line}\n" for line in (head, *lines, foot))


def titan(step: int, seconds: float, *, prefix: str = "[rank0]:[titan] ", memory: str = "61.40GiB(77.60%)") -> str:
    """A line of a step, so many seconds after noon."""
    whole, part = divmod(round(seconds * 1000), 1000)
    clock = f"{12 + whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d},{part:03d}"
    figures = f"loss:  8.1000  grad_norm:  1.2000  memory: {memory}  tps: 6,553  tflops: 380.00  mfu: 38.40%"
    return f"{prefix}2025-06-01 {clock} - root - INFO - step: {step:2d}  {figures}\n"
