"""A plan as JSON, YAML, shell assignments or launcher arguments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import groupby
from typing import Any

from planner.document import Plan, Strategy
from planner.errors import BadRequest

_PARAMETERS = 3
"""The ZeRO stage that shards the parameters too."""
Written = tuple[str, tuple[str, ...]]
"""The answer, and remarks on what it could not say."""


def written(plan: Plan, form: str) -> Written:
    """The plan in one of ``FORMATS``, ending with a newline.

    Raises:
        BadRequest: the format needs a package that is missing, or cannot express the plan.
    """
    return FORMATS[form](plan)


def _json(plan: Plan) -> Written:
    return plan.to_json() + "\n", ()


def _yaml(plan: Plan) -> Written:
    try:
        import yaml
    except ImportError:
        raise BadRequest(
            "--format yaml needs PyYAML: pip install 'meshwright[yaml]'; --format json works without"
        ) from None
    text: str = yaml.safe_dump(json.loads(plan.to_json()), sort_keys=False, allow_unicode=True, width=110)
    return text, ()


def _env(plan: Plan) -> Written:
    values: dict[str, str] = {"PLAN_STATUS": plan.status}
    if plan.strategy is not None:
        values |= _assignments(plan.strategy)
    if plan.prediction is not None:
        values["ITERATION_SECONDS"] = repr(plan.prediction.iteration_seconds)
        values["MFU"] = repr(plan.prediction.mfu)
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()), ()


def _assignments(strategy: Strategy) -> dict[str, str]:
    scalars = strategy.model_dump(mode="json", exclude={"stages"})
    stages = strategy.stages
    return {name.upper(): _word(value) for name, value in scalars.items()} | {
        "LAYERS_PER_STAGE": ",".join(str(stage.layers) for stage in stages),
        "RECOMPUTE_LAYERS_PER_STAGE": ",".join(str(stage.recompute_layers) for stage in stages),
        "GROUPS_PER_STAGE": ",".join(stage.group for stage in stages),
    }


def _word(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _args(plan: Plan) -> Written:
    if plan.strategy is None or plan.status == "infeasible":
        return "", ("there is nothing to launch",)
    words, remarks = megatron_arguments(plan.strategy)
    return shlex.join(words) + "\n", remarks


def megatron_arguments(strategy: Strategy) -> tuple[list[str], tuple[str, ...]]:
    """Megatron-LM arguments (as of Megatron-Core 0.17) of a strategy, and remarks on what they cannot say.

    Raises:
        BadRequest: the split of layers over stages and chunks cannot be written as a pipeline layout.
    """
    recompute, remarks = _recompute(strategy)
    words = [
        *("--tensor-model-parallel-size", str(strategy.tp)),
        *("--pipeline-model-parallel-size", str(strategy.pp)),
        *(("--context-parallel-size", str(strategy.cp)) if strategy.cp > 1 else ()),
        *(("--expert-model-parallel-size", str(strategy.ep)) if strategy.ep > 1 else ()),
        *_pipeline(strategy),
        *(("--sequence-parallel",) if strategy.sequence_parallel else ()),
        *("--micro-batch-size", str(strategy.micro_batch_size)),
        *("--global-batch-size", str(strategy.global_batch_size)),
        *_sharding(strategy),
        *recompute,
        *(("--use-tp-pp-dp-mapping",) if strategy.rank_order == "tp-cp-ep-pp-dp" else ()),
    ]
    if strategy.schedule == "gpipe":
        remarks += ("Megatron-LM runs 1f1b where the plan says gpipe",)
    return words, remarks


def _pipeline(strategy: Strategy) -> list[str]:
    layers = [stage.layers for stage in strategy.stages]
    chunked = strategy.vpp > 1
    if len(set(layers)) == 1 and layers[0] % strategy.vpp == 0:
        per_chunk = str(layers[0] // strategy.vpp)
        return ["--num-layers-per-virtual-pipeline-stage", per_chunk] if chunked else []
    return ["--pipeline-model-parallel-layout", _layout(strategy, layers)]


def _layout(strategy: Strategy, layers: list[int]) -> str:
    """Megatron's layout: chunk-major, E the embedding, t a layer, L the loss."""
    if uneven := [held for held in layers if held % strategy.vpp]:
        raise BadRequest(
            f"Megatron-LM arguments cannot say how {uneven[0]} layers split over {strategy.vpp} chunks; "
            f"--format json holds the stages"
        )
    chunks = [f"t*{held // strategy.vpp}" for held in layers * strategy.vpp]
    chunks[0], chunks[-1] = f"E{chunks[0]}", f"{chunks[-1]}L"
    return "|".join(_repeated(text, len(list(same))) for text, same in groupby(chunks))


def _repeated(chunk: str, count: int) -> str:
    return f"({chunk}|)*{count - 1}{chunk}" if count > 1 else chunk


def _sharding(strategy: Strategy) -> list[str]:
    data_ranks = strategy.dp * strategy.cp
    words = ["--overlap-grad-reduce"] if data_ranks > 1 else []
    if strategy.zero_stage == 0:
        return words
    words = ["--use-distributed-optimizer", *words, *(["--overlap-param-gather"] if data_ranks > 1 else [])]
    if strategy.zero_stage > 1:
        shared = "optim_grads" if strategy.zero_stage < _PARAMETERS else "optim_grads_params"
        words += ["--use-megatron-fsdp", "--data-parallel-sharding-strategy", shared]
    copies = data_ranks // max(strategy.sharding_degree, 1)
    return words + (["--num-distributed-optimizer-instances", str(copies)] if copies > 1 else [])


def _recompute(strategy: Strategy) -> tuple[list[str], tuple[str, ...]]:
    """Full recomputation of the first layers of every chunk; Megatron knows one number for all stages."""
    counts = {stage.recompute_layers for stage in strategy.stages}
    if counts == {0}:
        selective = strategy.recompute == "selective"
        return (["--recompute-granularity", "selective"] if selective else []), ()
    most = -(-max(counts) // strategy.vpp)
    words = ["--recompute-granularity", "full", "--recompute-method", "block"]
    words += ["--recompute-num-layers", str(most)]
    if len(counts) == 1 and max(counts) % strategy.vpp == 0:
        return words, ()
    planned = ",".join(str(stage.recompute_layers) for stage in strategy.stages)
    remark = f"Megatron-LM recomputes {most} layers of every chunk; the plan needs {planned} per stage"
    return words, (remark,)


FORMATS: dict[str, Callable[[Plan], Written]] = {"json": _json, "yaml": _yaml, "env": _env, "args": _args}
