"""Megatron-Bridge: overrides of a recipe's configuration, in the words of Megatron-Core's own fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from costmodels.model.catalogue import names
from costmodels.model.model import Model
from planner.jobs.job import Export, Job
from planner.jobs.launchers import shell
from planner.jobs.megatron.options import OPTIONS
from planner.jobs.megatron.write import dropout_values, refuse_lacks, strategy_values
from planner.jobs.megatron.write_stack import state_values
from planner.jobs.options import Option, Options, rows
from planner.jobs.values import data, words

FILE: Final = "bridge-overrides.sh"
_WIDE_ENDS: Final = frozenset({"fp8-current"})
"""Recipes that leave layers at the ends of the model in 16 bits (``first_last_layers_bf16``)."""


def core_name(field: str) -> str:
    """Megatron-Core's name of a field, which is that of Megatron-LM's option."""
    return OPTIONS[field].word.replace("-", "_")


def _options_of(part: Mapping[str, Any]) -> Iterator[Option]:
    """Options of a part of a recipe: those of Megatron-LM that are fields of it, and its own."""
    for field in words(part.get("fields", "")):
        yield replace(OPTIONS[field], word=f"{part['part']}.{core_name(field)}")
    yield from rows(part.get("own", {}))


OVERRIDES: Final = Options(*(option for part in data("megatron/bridge")["parts"] for option in _options_of(part)))
"""Overrides by field, in the order in which they are written; adapters are ``megatron.bridge.peft.lora.LoRA``, formats
of the optimizer are read back by ``str_to_dtype``."""
CARRIED: Final = (
    *("optimizer", "main_params", "expert_capacity", "dropout", "stack.dispatcher", "stack.offload_fraction"),
)
"""Choices and paths of changes that its overrides have."""


def bridge(job: Job, version: str) -> Export:
    """Overrides for ``run_recipe``, as of Megatron-Bridge 0.6."""
    refuse_lacks("megatron-bridge", job)
    said = [f"{name}={_value(value)}" for name, value in overrides(job).items()]
    remarks = tuple(_remarks(job))
    lines = [*shell.header(f"Megatron-Bridge {version}"), *shell.remarks(remarks)]
    body = shell.text(lines, shell.array("BRIDGE_OVERRIDES", said))
    return Export(files={FILE: body}, program=("run_recipe.py", *said), remarks=remarks)


def _remarks(job: Job) -> Iterator[str]:
    if job.model.name in names():
        yield "the recipe brings model and data; give its dataset the same sequence length"
    else:
        lack = f"no recipe brings {job.model.name}, which the catalogue does not hold: take one of a model of its kind"
        yield f"{lack}, give it {' '.join(_sizes(job.model))}, and its dataset the same sequence length"
    if job.stack.startswith("nemo"):
        yield "overlap of tensor and expert ranks, and CUDA graphs, are a performance recipe's: override one of those"
    if job.precision in _WIDE_ENDS:
        recipe = OVERRIDES["precision"].spelled(job.precision)
        yield f"{recipe} leaves the first and the last layer in bf16, the plan none"
    if job.adapters:
        yield "adapters want a recipe that has some: --mode lora"


_SIZES: Final = ("num_layers", "hidden_size", "ffn_hidden_size", "num_heads", "num_query_groups", "vocab_size")


def _sizes(model: Model) -> Iterator[str]:
    """What a recipe of another model has otherwise, in the fields of Megatron-Core."""
    yield from (f"model.{core_name(name)}={getattr(model, name)}" for name in _SIZES)
    if moe := model.moe:
        yield f"model.num_moe_experts={moe.num_experts}"
        yield from (f"model.{core_name(name)}={getattr(moe, name)}" for name in ("top_k", "expert_ffn_hidden_size"))


_MODULES = {"experts": ("linear_fc1", "linear_fc2")}
"""Modules of Megatron-Core behind one of ours: routed experts' have the names of a dense network's."""


def overrides(job: Job) -> dict[str, Any]:
    """Every override by its dotted name; what is off is left out."""
    strategy, request = job.strategy, job.plan.request
    values = strategy_values(strategy, request)[0] | state_values(strategy, request)[0] | dropout_values(job)
    values |= {"vpp": strategy.vpp if strategy.vpp > 1 and "layout" not in values else None}
    values |= {"seq_length": job.seq_length, "precision": job.precision}
    if job.adapters:
        named = dict.fromkeys(name for one in job.adapters.modules for name in _MODULES.get(one, (one,)))
        values |= {"adapter_rank": job.adapters.rank, "adapter_modules": list(named)}
    known = {row.field: values.get(row.field) for row in OVERRIDES}
    written = OVERRIDES.written(known)
    return {row.word: value for row, value in written if value is not False or row.field == "sequence_parallel"}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    if isinstance(value, float):
        return f"{value:g}"
    return f"'{value}'" if isinstance(value, str) and "|" in value else str(value)
