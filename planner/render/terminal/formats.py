"""A plan as JSON, YAML, shell assignments or launcher arguments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

from planner.answer.plan import Plan, Strategy
from planner.jobs.preview import launch

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
    import yaml

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
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _args(plan: Plan) -> Written:
    if plan.strategy is None or plan.status == "infeasible":
        return "", ("there is nothing to launch",)
    start = launch(plan, plan.strategy)
    return shlex.join(start.words) + "\n", start.remarks


FORMATS: dict[str, Callable[[Plan], Written]] = {"json": _json, "yaml": _yaml, "env": _env, "args": _args}
