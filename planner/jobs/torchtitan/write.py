"""torchtitan: a Python configuration with the command that reads it; TOML for the versions that read that.

[Liang24]; fields and refusals are those of the releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.answer.plan import Strategy
from planner.jobs.job import Export, Job, chunk_layers
from planner.jobs.launchers import shell
from planner.jobs.options import applicable
from planner.jobs.torchtitan.options import CONVERTERS, FOLDED, MODELS, OPTIONS, SCHEDULES
from planner.jobs.values import data

MODULE: Final = "meshwright_plan"
TOML: Final = "torchtitan.toml"
_REGISTERED: Final[Mapping[str, Sequence[str]]] = data("torchtitan/words")["registered"]
"""Catalogue models that torchtitan 0.3 registers in bf16: module and configuration function."""


def torchtitan(job: Job, version: str) -> Export:
    """The configuration as of torchtitan 0.3 (Python) or 0.2 (TOML); what it lacks is refused by the rules."""
    return _as_toml(job, version) if version == "0.2" else _as_python(job, version)


def strategy_values(strategy: Strategy) -> dict[str, Any]:
    """Every degree by the fields of torchtitan's options; a pipeline's micro-batches are cut out of the local batch."""
    shard, micro = shard_ranks(strategy), strategy.micro_batch_size
    staged = strategy.pp > 1
    return {
        "replicas": strategy.dp // shard,
        "shard": shard,
        "reshard": "always" if strategy.zero_stage >= SHARDED_PARAMETERS else "never",
        **{axis: getattr(strategy, axis) for axis in ("tp", "cp", "pp", "ep", "etp")},
        "disable_loss_parallel": False,
        "cp_kind": strategy.cp_kind if strategy.cp > 1 else None,
        "sequence_parallel": strategy.sequence_parallel or strategy.tp == 1,
        "schedule": strategy.schedule if staged and strategy.schedule in SCHEDULES else None,
        "micro_batch_size": micro if staged else None,
        "local_batch_size": micro * (strategy.num_microbatches if staged else 1),
        "global_batch_size": strategy.global_batch_size,
        "offload": True if strategy.offload != "none" else None,
    }


def _job_values(job: Job, version: str) -> dict[str, Any]:
    """Those of a whole job; the modules of every chunk are named."""
    head = "output" if version == "0.2" else "lm_head"
    return strategy_values(job.strategy) | {
        "seq_length": job.seq_length,
        "compile": job.plan.request.get("changes", {}).get("stack.fused_elementwise", True),
        "width": "float32" if job.precision == "fp32" else "bfloat16",
        "modules": module_names(job, head) if job.strategy.pp > 1 else None,
    }


def module_names(job: Job, head: str) -> list[list[str]]:
    """Modules of every chunk, chunk-major, as ``module_fqns_per_model_part`` wants them."""
    chunks = chunk_layers(job.strategy, folded=job.strategy.schedule in FOLDED)
    names, start = [], 0
    for layers in chunks:
        names.append([f"layers.{layer}" for layer in range(start, start + layers)])
        start += layers
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", head]
    return names


def shard_ranks(strategy: Strategy) -> int:
    """Data-parallel ranks that share one copy; torchtitan always shards over the context ranks as well."""
    ranks = max(strategy.sharding_degree // strategy.cp, 1) if strategy.zero_stage else 1
    return ranks if strategy.dp % ranks == 0 else strategy.dp


def _as_toml(job: Job, version: str) -> Export:
    name, flavor = MODELS.get(job.model.name, (None, None))
    remarks = () if name else (f"torchtitan {version} registers no model {job.model.name}: name yours under [model]",)
    selective = job.strategy.recompute == "selective"
    values = _job_values(job, version) | _quantised(job) | {"model": name, "flavor": flavor}
    # Of operators, not of every second layer: that is what selective recomputation is priced as.
    values |= {"recompute": job.strategy.recompute, "selective_option": "op" if selective else None}
    body = "".join(f"\n{_table(path, table)}" for path, table in OPTIONS.tables(values, version).items())
    program = ("-m", "torchtitan.train", "--job.config_file", TOML)
    text = shell.commented(f"torchtitan {version}", remarks, body)
    return Export(files={TOML: text}, program=program, remarks=remarks)


def _table(path: str, values: Mapping[str, Any]) -> str:
    """A table in TOML, where values are as in JSON; a list of lists has a row a line."""
    lines = [f"[{path}]\n"]
    for key, value in values.items():
        rows = isinstance(value, list) and value and isinstance(value[0], list)
        text = "[\n" + "".join(f"  {json.dumps(row)},\n" for row in value) + "]" if rows else json.dumps(value)
        lines.append(f"{key} = {text}\n")
    return "".join(lines)


def _quantised(job: Job) -> dict[str, Any]:
    """The converters that make the plan's products, those of experts where there are any."""
    kind = CONVERTERS.get(job.precision)
    if kind is None:
        return {}
    names, values = [f"quantize.linear.{kind}"], {f"{kind}_recipe": job.precision}
    if not job.model.moe:
        return {**values, "converters": names}
    experts = {f"{kind}_experts": ["experts"]} | ({"mx_experts_recipe": "mxfp8"} if kind == "mx" else {})
    return {**values, **experts, "converters": [*names, f"quantize.grouped_mm.{kind}"]}


_POLICIES: Final = {"selective": "SelectiveAC", "full": "FullAC"}


def _as_python(job: Job, version: str) -> Export:
    home, function = _REGISTERED.get(job.model.name, ("", ""))
    unknown = f"torchtitan {version} registers no model {job.model.name}: call apply() on your own configuration"
    narrow = f"convert the model's products to {job.precision} in its configuration function"
    remarks = applicable({unknown: not home, narrow: job.precision not in {"bf16", "fp32"}})
    policy = _POLICIES.get(job.strategy.recompute)
    imported = f"\nfrom torchtitan.distributed.activation_checkpoint import {policy}\n" if policy else ""
    body = "".join(f"    {line}\n" for line in _statements(job, version))
    texts = data("torchtitan/templates")
    known = texts["known"].format(module=MODULE, home=home, function=function) if home else ""
    code = f"{imported}\n{texts['python'].format(body=body)}{known}"
    program = ("-m", "torchtitan.train", "--module", MODULE, "--config", "planned")
    text = shell.commented(f"torchtitan {version}", remarks, code)
    return Export(files={f"{MODULE}.py": text}, program=program, remarks=remarks)


def _statements(job: Job, version: str) -> Iterator[str]:
    tables = OPTIONS.tables(_job_values(job, version), version)
    for table in ("parallelism", "training", "compile"):
        for key, value in tables[table].items():
            yield from _assigned(f"config.{table}.{key}", value)
    if job.strategy.pp > 1 or job.strategy.ep > 1:
        yield "config.training.disable_cuda_graphs = True  # they exclude pipelines and most dispatchers of experts"
    policy = _POLICIES.get(job.strategy.recompute)
    yield f"config.activation_checkpoint = {policy and f'{policy}.Config()'}"


def _assigned(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{name} = {value!r}"
        return
    yield f"{name} = ["
    yield from (f"    {row!r}," for row in value)
    yield "]"


def torchtitan_arguments(strategy: Strategy, *, precision: str = "bf16") -> tuple[list[str], tuple[str, ...]]:
    """Overrides for ``torchtitan.train`` of 0.3, and remarks on what they cannot say."""
    values = strategy_values(strategy) | {"offload": None}
    if not strategy.zero_stage:
        values["reshard"] = None
    if strategy.tp == 1:
        values["sequence_parallel"] = None
    if strategy.pp > 1 or strategy.ep > 1:
        values["disable_cuda_graphs"] = True
    held = {stage.layers for stage in strategy.stages}
    evenly = len(held) == 1 and not max(held) % strategy.vpp
    if strategy.pp > 1 and evenly:
        values |= {"layers_per_stage": max(held) // strategy.vpp, "first_less": 0, "last_less": 0}
    words: list[str] = []
    for row, value in sorted(OPTIONS.written(values, "0.3"), key=lambda pair: pair[0].word.partition(".")[0]):
        table, _, key = row.word.rpartition(".")
        switch = f"--{table}.{'' if value else 'no-'}{key.replace('_', '-')}"
        words += [switch] if isinstance(value, bool) else [f"--{row.word}", str(value)]
    return words, _argument_remarks(strategy, precision, evenly=evenly)


def _argument_remarks(strategy: Strategy, precision: str, *, evenly: bool) -> tuple[str, ...]:
    layers = ",".join(str(stage.layers) for stage in strategy.stages)
    again = ",".join(str(stage.recompute_layers) for stage in strategy.stages)
    whole = all(stage.recompute_layers == stage.layers for stage in strategy.stages)
    partly = strategy.recompute in {"full", "partial"} and not whole
    wanted = f"full recomputation of {again} layers per stage" if partly else strategy.recompute
    return applicable({
        f"set activation_checkpoint in the configuration: the plan has recomputation {wanted}": True,
        f"name the modules of every stage in parallelism.module_fqns_per_model_part; the plan has {layers} layers": (
            strategy.pp > 1 and not evenly
        ),
        f"set training.enable_cpu_offload: the plan offloads {strategy.offload}": strategy.offload != "none",
        f"set precision {precision} in the model's configuration": precision != "bf16",
    })  # fmt: skip
