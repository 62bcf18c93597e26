"""Answers that came back from a file or over a wire, which somebody may have changed since."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from costmodels.names import CP_KINDS, MODULES, OFFLOADS, RANK_ORDERS, SCHEDULE_NAMES, VOCABULARIES, Recompute
from hardware.errors import flatten
from hardware.files import unique
from planner.answer.build import catalogue_hashes
from planner.answer.plan import Plan, Strategy
from planner.errors import BadRequest
from planner.request.request import PlanRequest
from planner.version import VERSION

SCHEMA: Final = "plan/1"
REPLANNED: Final = "replan/1"
LARGEST: Final = 2**40
"""No degree and no batch of a plan is larger."""
_COUNTS: Final = ("tp", "cp", "cp_near", "pp", "vpp", "dp", "ep", "etp", "micro_batch_size", "num_microbatches",
                  "global_batch_size", "recompute_num_layers")  # fmt: skip
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule": tuple(SCHEDULE_NAMES),
    "rank_order": tuple(RANK_ORDERS),
    "cp_kind": tuple(CP_KINDS),
    "offload": tuple(OFFLOADS),
    "vocabulary": tuple(VOCABULARIES),
    "recompute": tuple(kind.name.lower() for kind in Recompute),
}


def read(text: str, name: str) -> Plan:
    """The plan that `plan --format json` wrote, or the one picked of what `plan replan` did.

    Args:
        text: what a file or a pipe holds.
        name: what to call it in a refusal.

    Raises:
        BadRequest: it holds something else, or was changed to what no plan says.
    """
    try:
        document = json.loads(text, parse_constant=no_constant, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{name}: not an answer of `plan --format json`: not JSON: {error}") from None
    whole, document = document, picked(document, name)
    said = document.get("schema") if isinstance(document, dict) else None
    check_schema(said, name)
    try:
        found = Plan.model_validate_json(text if document is whole else json.dumps(document))
    except ValidationError as error:
        why = flatten(error) if said == SCHEMA else f"its schema is {said!r:.40}, not {SCHEMA}"
        raise BadRequest(f"{name}: not an answer of `plan --format json`: {why}") from None
    return checked(found, name)


def picked(document: Any, name: str) -> Any:
    """The plan that was picked of an answer of `plan replan`; of anything else all of it.

    Raises:
        BadRequest: it found none.
    """
    if not isinstance(document, dict) or document.get("schema") != REPLANNED:
        return document
    choice = document.get("fastest" if document.get("picked") == "fastest" else "nearest")
    if not isinstance(choice, dict) or not isinstance(choice.get("plan"), dict):
        raise BadRequest(f"{name}: an answer of `plan replan` without a plan; on other --gpus there may be one")
    return choice["plan"]


def check_schema(said: object, name: str) -> None:
    """Raises: BadRequest: it is that of an answer of another version."""
    if isinstance(said, str) and said.startswith("plan/") and said != SCHEMA:
        raise BadRequest(f"{name}: its schema is {_short(said)}; version {VERSION} reads {SCHEMA}: ask again with it")


def no_constant(name: str) -> float:
    """What JSON calls no number, for ``parse_constant``."""
    raise ValueError(f"{name} is no number")


def made_elsewhere(plan: Plan) -> str | None:
    """A remark on an answer of another version or another catalogue, whose prices may not be today's."""
    mine, its = (VERSION, catalogue_hashes()), (plan.provenance.version, plan.provenance.catalogue_hash)
    if mine == its:
        return None
    whose = f"version {_short(its[0])}" if mine[0] != its[0] else "another catalogue or changed figures"
    return f"made by {whose}; what is priced anew here may differ from what it says"


def checked(plan: Plan, name: str) -> Plan:
    """The plan, where its question can be asked again and its strategy is one.

    Args:
        plan: what was read.
        name: what to call it in a refusal.

    Raises:
        BadRequest: the first thing that is wrong.
    """
    try:
        asked = PlanRequest(**plan.request)
    except ValidationError as error:
        raise BadRequest(f"{name}: request: {flatten(error)}") from None
    except TypeError:
        raise BadRequest(f"{name}: request: its fields are not names") from None
    if lack := next(_lacks(plan, asked.gpus), None):
        raise BadRequest(f"{name}: {lack}")
    return plan


def _lacks(plan: Plan, gpus: int) -> Iterator[str]:
    """One sentence for everything wrong; of a strategy only under a whole request."""
    yield from _of_request(plan.request)
    yield from _of_figures(plan)
    for strategy in (plan.strategy, *(other.strategy for other in plan.alternatives)):
        yield from _of_strategy(strategy, plan.request, gpus) if strategy else ()


def _of_figures(plan: Plan) -> Iterator[str]:
    """What was found is a strategy; one with a prediction has bytes for each of its stages."""
    if plan.status != "infeasible" and plan.strategy is None:
        yield f"strategy: missing, though the plan is {plan.status}"
    if plan.strategy and plan.prediction and len(plan.memory_bytes) != len(plan.strategy.stages):
        yield f"memory_bytes: {len(plan.memory_bytes)} stages are listed, the strategy has {len(plan.strategy.stages)}"
    if (numbers := [memory.stage for memory in plan.memory_bytes]) != list(range(len(numbers))):
        yield f"memory_bytes: its stages are numbered {_short(numbers)}, not from 0 on"
    if plan.prediction and plan.prediction.interval.low > plan.prediction.interval.high:
        interval = plan.prediction.interval
        yield f"prediction: interval: its low end, {interval.low:g} s, is above its high end, {interval.high:g} s"
    if any(not math.isfinite(number) for number in _numbers(plan.model_dump(exclude={"request"}))):
        yield "a figure is infinite, which no plan says"


def _numbers(value: object) -> Iterator[float]:
    """Every number of a document."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for one in inner:
        yield from _numbers(one)
    if isinstance(value, float):
        yield value


def _of_request(request: Mapping[str, Any]) -> Iterator[str]:
    """A resolved request holds its records and its sizes, which a question may leave out."""
    for field in ("model", "cluster"):
        if not isinstance(request.get(field), Mapping):
            yield f"request: {field}: a table of fields is expected, as `plan --format json` writes it"
    cluster = request.get("cluster")
    parts = (cluster.get("groups") or [cluster]) if isinstance(cluster, Mapping) else []
    for part in parts:
        for field in ("nodes", "gpus_per_node"):
            if not isinstance(part, Mapping) or not isinstance(part.get(field), int):
                yield f"request: cluster: {field}: required, but missing"
    if not isinstance(request.get("seq_length"), int):
        yield "request: seq_length: required, but missing"


def _of_strategy(strategy: Strategy, request: Mapping[str, Any], gpus: int) -> Iterator[str]:
    given = strategy.model_dump()
    for name in _COUNTS:
        if not 1 <= given[name] <= LARGEST:
            yield f"strategy: {name}: expected a count from 1 on, got {_short(given[name])}"
    for name, words in _WORDS.items():
        if given[name] not in words:
            yield f"strategy: {name}: there is no {_short(given[name])}; there are {', '.join(words)}"
    if strange := [module for module in strategy.recompute_modules if module not in MODULES]:
        yield f"strategy: recompute_modules: there is no {_short(strange[0])}; there are {', '.join(MODULES)}"
    if not (0 <= strategy.zero_stage <= 3 and 0 <= strategy.sharding_degree <= LARGEST):
        yield f"strategy: ZeRO stage {strategy.zero_stage} over {_short(strategy.sharding_degree)} ranks is none"
    yield from _of_batch(strategy, request)
    yield from _of_stages(strategy, request, gpus)


def _of_batch(strategy: Strategy, request: Mapping[str, Any]) -> Iterator[str]:
    """The sequences of an iteration, as the request, the strategy and its parts have them."""
    batch, asked = strategy.global_batch_size, request.get("global_batch_size")
    if asked is not None and asked != batch:
        yield f"strategy: global_batch_size is {_short(batch)}, the request's {_short(asked)}"
    if any(stage.dp or stage.micro_batch_size for stage in strategy.stages):
        return
    made = strategy.micro_batch_size * strategy.num_microbatches * strategy.dp
    if made != batch:
        yield f"strategy: micro-batches x their size x dp is {_short(made)}, global_batch_size {_short(batch)}"


def _of_stages(strategy: Strategy, request: Mapping[str, Any], gpus: int) -> Iterator[str]:
    stages = strategy.stages
    if len(stages) != strategy.pp:
        yield f"strategy: {len(stages)} stages are listed, pp is {_short(strategy.pp)}"
    if any(not 0 <= stage.recompute_layers <= stage.layers <= LARGEST for stage in stages):
        yield "strategy: a stage recomputes more layers than it holds, or holds less than none"
    layers, held = request["model"].get("num_layers"), sum(stage.layers for stage in stages)
    if layers != held:
        yield f"strategy: the stages hold {_short(held)} layers, the model has {layers}"
    ranks = strategy.tp * strategy.cp * strategy.pp * strategy.dp
    if not any(stage.tp or stage.dp for stage in stages) and ranks != gpus:
        yield f"strategy: tp x cp x pp x dp is {_short(ranks)}, the plan is for {gpus} GPUs"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
