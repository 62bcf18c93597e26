"""Answers that came back from a file or over a wire: checked, as somebody may have changed them, and priced again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from costmodels.layer.recompute_modules import module_mask
from costmodels.layout.split import Assignment
from costmodels.names import MODULES, VALUE_NAMES, Recompute
from costmodels.strategy import Strategies, strategies
from hardware.errors import flatten, not_parsed
from hardware.files import unique
from planner.answer.build import catalogue_hashes
from planner.answer.plan import Plan, Strategy
from planner.errors import BadRequest
from planner.request.request import request_from
from planner.version import VERSION

SCHEMA: Final = "plan/1"
REPLANNED: Final = "replan/1"
LARGEST: Final = 2**40
"""No degree and no batch of a plan is larger."""
_NONE_IS_ZERO: Final = ("zero_stage", "sharding_degree")
_COUNTS: Final = tuple(
    name for name, field in Strategy.model_fields.items() if field.annotation is int and name not in _NONE_IS_ZERO
)
_WORDS: Final = {axis: names for axis, names in VALUE_NAMES.items() if Strategy.model_fields[axis].annotation is str}


def read(text: str, name: str) -> Plan:
    """The plan that `plan --format json` wrote, or the one picked of what `plan replan` did.

    ``name`` is what to call it in a refusal.

    Raises:
        BadRequest: it holds something else, or was changed to what no plan says.
    """
    try:
        document = json.loads(text, parse_constant=no_constant, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        other = "`plan --from FILE --format json` makes one of a job"
        why = not_parsed("JSON", error) if text.lstrip()[:1] in {"{", "["} else other
        raise BadRequest(f"{name}: not an answer of `plan --format json`: {why}") from None
    whole, document = document, picked(document, name)
    said = document.get("schema") if isinstance(document, dict) else None
    check_schema(said, name)
    try:
        found = Plan.model_validate_json(text if document is whole else json.dumps(document))
    except ValidationError as error:
        other = f"it has no field schema, {SCHEMA} in such an answer" if said is None else f"its schema is {said!r:.40}"
        why = flatten(error) if said == SCHEMA else other
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
    raise ValueError(f"{name} is not a number")


def made_elsewhere(plan: Plan) -> str | None:
    """A remark on an answer of another version or another catalogue, whose prices may not be today's."""
    mine, its = (VERSION, catalogue_hashes()), (plan.provenance.version, plan.provenance.catalogue_hash)
    if mine == its:
        return None
    whose = f"version {_short(its[0])}" if mine[0] != its[0] else "another catalogue or changed figures"
    return f"made by {whose}; what is priced again here may differ from what it says"


def checked(plan: Plan, name: str) -> Plan:
    """The plan, where its question can be asked again and its strategy is one.

    ``name`` is what to call it in a refusal.

    Raises:
        BadRequest: the first thing that is wrong.
    """
    asked = request_from(plan.request, f"{name}: request: ")
    if lack := next(_lacks(plan, asked.gpus), None):
        raise BadRequest(f"{name}: {lack}")
    return plan


def _lacks(plan: Plan, gpus: int) -> Iterator[str]:
    """One sentence for everything wrong; of a strategy only under a whole request."""
    yield from _wrong_request(plan.request)
    yield from _wrong_figures(plan)
    for strategy in (plan.strategy, *(other.strategy for other in plan.alternatives)):
        yield from _wrong_strategy(strategy, plan.request, gpus) if strategy else ()


def _wrong_figures(plan: Plan) -> Iterator[str]:
    """What was found is a strategy; one with a prediction has bytes for each of its stages."""
    if plan.status != "infeasible" and plan.strategy is None:
        yield f"strategy: missing, though the plan is {plan.status}"
    if plan.strategy and plan.prediction and len(plan.memory_bytes) != len(plan.strategy.stages):
        yield f"memory_bytes: {len(plan.memory_bytes)} stages are listed, the strategy has {len(plan.strategy.stages)}"
    if (numbers := [memory.stage for memory in plan.memory_bytes]) != list(range(len(numbers))):
        yield f"memory_bytes: its stages are numbered {_short(numbers)}, not from 0"
    if plan.prediction and plan.prediction.interval.low > plan.prediction.interval.high:
        interval = plan.prediction.interval
        yield f"prediction: interval: its low end, {interval.low:g} s, is above its high end, {interval.high:g} s"
    if any(not math.isfinite(number) for number in _numbers(plan.model_dump(exclude={"request"}))):
        yield "a figure is infinite"


def _numbers(value: object) -> Iterator[float]:
    """Every number of a document."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for one in inner:
        yield from _numbers(one)
    if isinstance(value, float):
        yield value


def _wrong_request(request: Mapping[str, Any]) -> Iterator[str]:
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


def _wrong_strategy(strategy: Strategy, request: Mapping[str, Any], gpus: int) -> Iterator[str]:
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
        yield (
            f"strategy: ZeRO stage {strategy.zero_stage} with sharding degree {_short(strategy.sharding_degree)} "
            "does not exist"
        )
    yield from _wrong_batch(strategy, request)
    yield from _wrong_stages(strategy, request, gpus)


def _wrong_batch(strategy: Strategy, request: Mapping[str, Any]) -> Iterator[str]:
    """The sequences of an iteration, as the request, the strategy and its parts have them."""
    batch, asked = strategy.global_batch_size, request.get("global_batch_size")
    if asked is not None and asked != batch:
        yield f"strategy: global_batch_size is {_short(batch)}, the request's {_short(asked)}"
    if any(stage.dp or stage.micro_batch_size for stage in strategy.stages):
        return
    made = strategy.micro_batch_size * strategy.num_microbatches * strategy.dp
    if made != batch:
        yield f"strategy: micro-batches x their size x dp is {_short(made)}, global_batch_size {_short(batch)}"


def _wrong_stages(strategy: Strategy, request: Mapping[str, Any], gpus: int) -> Iterator[str]:
    stages = strategy.stages
    if len(stages) != strategy.pp:
        yield f"strategy: {len(stages)} stages are listed, pp is {_short(strategy.pp)}"
    if any(not 0 <= stage.recompute_layers <= stage.layers <= LARGEST for stage in stages):
        yield "strategy: a stage recomputes more layers than it holds, or holds a negative number"
    layers, held = request["model"].get("num_layers"), sum(stage.layers for stage in stages)
    if layers != held:
        yield f"strategy: the stages hold {_short(held)} layers, the model has {layers}"
    ranks = strategy.tp * strategy.cp * strategy.pp * strategy.dp
    if not any(stage.tp or stage.dp for stage in stages) and ranks != gpus:
        yield f"strategy: tp x cp x pp x dp is {_short(ranks)}, the plan is for {gpus} GPUs"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def strategy_from_plan(record: Strategy) -> Strategies:
    """The row behind a record; what was recomputed in part is PARTIAL, whatever it came to."""
    same = {name: value for name, value in record.model_dump().items() if name in Strategies.__dataclass_fields__}
    recompute = Recompute[record.recompute.upper()]
    if any(stage.recompute_layers not in (0, stage.layers) for stage in record.stages):
        recompute = Recompute.PARTIAL
    named = {axis: names.index(getattr(record, axis)) for axis, names in _WORDS.items()}
    modules = module_mask(record.recompute_modules)
    return strategies(**same | named | {"recompute": int(recompute), "recompute_modules": modules})


def stages_from_plan(record: Strategy) -> Assignment:
    """Layers and recomputed layers of every stage."""
    layers, again = ([getattr(s, name) for s in record.stages] for name in ("layers", "recompute_layers"))
    return Assignment(np.array(layers, dtype=np.int64), np.array(again, dtype=np.int64))
