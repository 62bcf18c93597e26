"""torchtitan: a Python configuration with the command that reads it; TOML for the versions that read that.

[Liang24]; fields and refusals are those of the releases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.megatron.chunks import chunk_layers
from planner.jobs.toml_text import toml_text
from planner.jobs.torchtitan.write_words import ROTATIONS, SCHEDULES, shard_ranks, unsaid

MODULE: Final = "meshwright_plan"
TOML: Final = "torchtitan.toml"
_FOLDED: Final = frozenset({"zb-v", "dualpipe-v"})
_REGISTERED: Final[Mapping[str, tuple[str, str]]] = {
    "llama3-8b": ("llama3", "llama3_8b"),
    "llama3-70b": ("llama3", "llama3_70b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
    "qwen3-0.6b": ("qwen3", "qwen3_0_6b"),
    "qwen3-1.7b": ("qwen3", "qwen3_1_7b"),
    "qwen3-14b": ("qwen3", "qwen3_14b"),
    "qwen3-32b": ("qwen3", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b"),
}
"""Catalogue models that torchtitan 0.3 registers in bf16: module and configuration function."""
_FLAVOURS: Final[Mapping[str, tuple[str, str]]] = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3.1-405b": ("llama3", "405B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
}
"""Name and flavour of the same in 0.2."""
_CHECKPOINTS: Final = {"none": "none", "selective": "selective", "full": "full"}
_PRECISIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "bf16": ("", "", ""),
    "fp32": ("", "", ""),
    "fp8-current": ("float8", "tensorwise", ""),
    "fp8-rowwise": ("float8", "rowwise", ""),
    "mxfp8": ("mx", "mxfp8_cublas", "mxfp8"),
}
"""Converter of the model's products in 0.2, its recipe, and its recipe for the products of experts."""


def torchtitan(job: Job, version: str) -> Export:
    """The configuration as of torchtitan 0.3 (Python) or 0.2 (TOML).

    Raises:
        Inexpressible: torchtitan lacks a part of the plan.
    """
    old = version == "0.2"
    lacks = [(True, lack) for lack in unsaid(job.strategy, version=version)]
    none = f"torchtitan {version} has no precision {job.precision}; {', '.join(_PRECISIONS)} work"
    refuse("torchtitan cannot start this plan:", [*lacks, (old and job.precision not in _PRECISIONS, none)])
    return _as_toml(job, version) if old else _as_python(job, version)


def parallelism(job: Job, *, old: bool) -> dict[str, Any]:
    """The table ``parallelism``, every degree written out."""
    strategy, shard = job.strategy, shard_ranks(job.strategy)
    values: dict[str, Any] = {
        "data_parallel_replicate_degree": strategy.dp // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if strategy.zero_stage >= SHARDED_PARAMETERS else "never",
        "tensor_parallel_degree": strategy.tp,
        "context_parallel_degree": strategy.cp,
        "pipeline_parallel_degree": strategy.pp,
        "expert_parallel_degree": strategy.ep,
    }
    if old:
        values["disable_loss_parallel"] = False
        values["expert_tensor_parallel_degree"] = strategy.etp
        values |= {"context_parallel_rotate_method": ROTATIONS[strategy.cp_kind]} if strategy.cp > 1 else {}
    else:
        values["enable_sequence_parallel"] = strategy.sequence_parallel or strategy.tp == 1
    return values | (_pipeline(job, old=old) if strategy.pp > 1 else {})


def _pipeline(job: Job, *, old: bool) -> dict[str, Any]:
    strategy = job.strategy
    head = "output" if old else "lm_head"
    return {
        "pipeline_parallel_schedule": SCHEDULES[strategy.schedule],
        "pipeline_parallel_microbatch_size": strategy.micro_batch_size,
        "module_fqns_per_model_part": module_names(job, head),
    }


def module_names(job: Job, head: str) -> list[list[str]]:
    """Modules of every chunk, chunk-major, as ``module_fqns_per_model_part`` wants them."""
    chunks = chunk_layers(job.strategy, folded=job.strategy.schedule in _FOLDED)
    names, start = [], 0
    for layers in chunks:
        names.append([f"layers.{layer}" for layer in range(start, start + layers)])
        start += layers
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", head]
    return names


def training(job: Job) -> dict[str, Any]:
    """The table ``training``: pipeline micro-batches are cut out of the local batch."""
    strategy = job.strategy
    local = strategy.micro_batch_size * (strategy.num_microbatches if strategy.pp > 1 else 1)
    return {
        "local_batch_size": local,
        "global_batch_size": strategy.global_batch_size,
        "seq_len": job.seq_length,
        **({"enable_cpu_offload": True} if job.strategy.offload != "none" else {}),
    }


def _as_toml(job: Job, version: str) -> Export:
    name, flavour = _FLAVOURS.get(job.model.name, ("", ""))
    remarks = () if name else (f"torchtitan {version} registers no model {job.model.name}: name yours under [model]",)
    quantised = _quantised(job)
    model = {**({"name": name, "flavor": flavour} if name else {}), **_converters(quantised)}
    document = {
        **({"model": model} if model else {}),
        **quantised,
        "training": {**training(job), "mixed_precision_param": _sixteen(job)},
        "parallelism": parallelism(job, old=True),
        "activation_checkpoint": _checkpoints(job),
    }
    head = "\n".join([*shell.header(f"torchtitan {version}"), *shell.remarks(remarks)])
    program = ("-m", "torchtitan.train", "--job.config_file", TOML)
    return Export(files={TOML: f"{head}\n\n{toml_text(document)}"}, program=program, remarks=remarks)


def _quantised(job: Job) -> dict[str, dict[str, Any]]:
    """Tables of the converters that make the plan's products, those of experts where there are any."""
    kind, recipe, grouped = _PRECISIONS[job.precision]
    if not kind:
        return {}
    tables: dict[str, dict[str, Any]] = {f"quantize.linear.{kind}": {"recipe_name": recipe}}
    if job.model.moe:
        named = {"recipe_name": grouped} if grouped else {}
        tables[f"quantize.grouped_mm.{kind}"] = {**named, "fqns": ["experts"]}
    return tables


def _converters(tables: Mapping[str, Any]) -> dict[str, list[str]]:
    return {"converters": list(tables)} if tables else {}


def _checkpoints(job: Job) -> dict[str, str]:
    """Of operators, not of every second layer: that is what selective recomputation is priced as."""
    mode = _CHECKPOINTS[job.strategy.recompute]
    return {"mode": mode, **({"selective_ac_option": "op"} if mode == "selective" else {})}


def _sixteen(job: Job) -> str:
    return "float32" if job.precision == "fp32" else "bfloat16"


_PYTHON = '''
def apply(config):
    """Give a torchtitan configuration this plan."""
{body}    return config
'''
_KNOWN = '''

def planned():
    """--module {module} --config planned"""
    from torchtitan.models.{home}.config_registry import {function}

    return apply({function}())
'''


def _as_python(job: Job, version: str) -> Export:
    home, function = _REGISTERED.get(job.model.name, ("", ""))
    remarks = tuple(_remarks(job, version, known=bool(home)))
    body = "".join(f"    {line}\n" for line in _statements(job))
    code = "\n".join([*shell.header(f"torchtitan {version}"), *shell.remarks(remarks)])
    code += "\n" + "".join(f"\n{line}\n" for line in _imports(job)) + "\n" + _PYTHON.format(body=body)
    if home:
        code += _KNOWN.format(module=MODULE, home=home, function=function)
    program = ("-m", "torchtitan.train", "--module", MODULE, "--config", "planned")
    return Export(files={f"{MODULE}.py": code}, program=program, remarks=remarks)


def _imports(job: Job) -> Iterator[str]:
    names = {"selective": "SelectiveAC", "full": "FullAC"}
    if job.strategy.recompute in names:
        yield f"from torchtitan.distributed.activation_checkpoint import {names[job.strategy.recompute]}"


def _statements(job: Job) -> Iterator[str]:
    for name, value in parallelism(job, old=False).items():
        yield from _assigned(f"config.parallelism.{name}", value)
    for name, value in training(job).items():
        yield f"config.training.{name} = {value!r}"
    yield f"config.training.mixed_precision_param = {_sixteen(job)!r}"
    if job.strategy.pp > 1 or job.strategy.ep > 1:
        yield "config.training.disable_cuda_graphs = True  # they exclude pipelines and most dispatchers of experts"
    names = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
    yield f"config.activation_checkpoint = {names[job.strategy.recompute]}"


def _assigned(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{name} = {value!r}"
        return
    yield f"{name} = ["
    yield from (f"    {row!r}," for row in value)
    yield "]"


def _remarks(job: Job, version: str, *, known: bool) -> Iterator[str]:
    if not known:
        yield f"torchtitan {version} registers no model {job.model.name}: call apply() on your own configuration"
    if job.precision not in {"bf16", "fp32"}:
        yield f"convert the model's products to {job.precision} in its configuration function"
