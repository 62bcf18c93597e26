"""What a page shows: points with their figures, out of a store, a study or one saved plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from costmodels.node_groups import price
from planner.answer.headline import headline
from planner.answer.load import stages_from_plan
from planner.answer.plan import Plan
from planner.answer.text import CUT_SHORT, name_in, plural
from planner.errors import BadRequest, MeshwrightError
from planner.render.by_group import strategy_on
from planner.render.notebook.frames import cell
from planner.render.page.headline import cards, cluster_name, study_headline
from planner.render.page.importance import importance
from planner.render.page.kernels import kernels_of
from planner.render.page.layout import layout_of
from planner.render.trace import trace
from planner.request.fields import FIELDS, QUESTION
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.studies.result import Result
from planner.trust.table import measured

LARGEST_PAGE: Final = 20_000
"""Points that one page holds: about 10 MB, which a browser still sorts and filters at once."""
_DEGREES: Final = (("TP", "tp"), ("CP", "cp"), ("PP", "pp"), ("VPP", "vpp"), ("EP", "ep"), ("ETP", "etp"), ("DP", "dp"))
_REQUEST: Final = tuple(name for name in QUESTION if FIELDS[name].saved)
_MAIN: Final = ("model", "gpus", "cluster")


@dataclass(frozen=True)
class Shown:
    """The content of a page, as plain values.

    Attributes:
        title: of the document.
        headline: the answer in a sentence or two.
        remark: what is said below it.
        axes: names of what was varied.
        points: one object a point: axes, status, figures (seconds, shares, days, dollars, GiB), strategy, terms.
        assumptions: lines that hold for all of it.
        plan: what only one plan has: cards, layout, kernels, memory by stage, timeline, advice; None for a study.
        importance: for a study, by figure and axis, the share of its spread that the axis explains.
    """

    title: str
    headline: str
    remark: str
    axes: tuple[str, ...]
    points: tuple[dict[str, Any], ...]
    assumptions: tuple[str, ...]
    plan: dict[str, Any] | None = None
    importance: dict[str, dict[str, float]] | None = None

    def data(self) -> dict[str, Any]:
        """Everything that the script draws."""
        answer = {"headline": self.headline, "axes": self.axes, "points": self.points, "plan": self.plan}
        return answer | {"importance": self.importance, "measured": _measured()}


def shown_study(found: Iterable[Result], name: str, axes: Sequence[str] | None = None) -> Shown:
    """A page over many results.

    Args:
        found: the results.
        name: of the study or of the store.
        axes: what was varied, by the names that the results use; unless given, what differs between the requests.

    Raises:
        BadRequest: there are none, none is answered, or more than a page holds.
    """
    results = list(islice(found, LARGEST_PAGE + 1))
    if not results:
        raise BadRequest(f"{name}: there are no answers to show yet; run `plan sweep` first")
    if len(results) > LARGEST_PAGE:
        raise BadRequest(
            f"{name}: more than {LARGEST_PAGE:,} points, the most that one page holds; "
            "show a part with --study FILE whose `where` keeps fewer"
        )
    if all(result.status == "pending" for result in results):
        raise BadRequest(f"{name}: no point is answered by this version; run `plan sweep`, or leave --study out")
    if axes is None:
        results, axes = _with_axes(results)
    points = tuple(_point(result) for result in results)
    names = [axis.removeprefix("pins.") for axis in axes]
    weights = importance(points, names)
    told = study_headline(points, weights)
    return Shown(name, told, "", tuple(axes), points, tuple(_assumed(results)), importance=weights)


def shown_plan(plan: Plan) -> Shown:
    """A page over one plan and its runners-up."""
    request = plan.request
    title = f"{name_in(request['model'])} on {plural(request['gpus'], 'GPU')} of {cluster_name(plan)}"
    told = f"{title}: {headline(plan).removeprefix('Use ')}"
    if plan.strategy is None or plan.prediction is None:
        refused = tuple(f"{one.rule}: {one.example}" for one in plan.rejected)
        point = _point(Result(0, {"plan": "asked"}, plan.status, {"request": request}, "; ".join(refused)[:500], None))
        return Shown(title, told, f"{plan.status}; nothing fits", ("plan",), (point,), (*plan.defaults, *refused))
    kept = json.loads(plan.to_json()) | {"peak_memory_bytes": max(stage.total for stage in plan.memory_bytes)}
    status = plan.status if plan.fits else "does not fit"
    first = _point(Result(0, {"plan": "best" if plan.proof else "asked"}, status, kept, None, None))
    others = [_point(Result(i, *other, None, None)) for i, other in enumerate(runners_up(plan, kept), start=1)]
    for point, terms in zip(others, breakdowns(plan), strict=False):
        point["terms"] = terms
    within = "; ".join(plan.proof.scope).removeprefix("among strategies ") if plan.proof else ""
    scope = (f"proved of strategies {within}",) if within else ()
    assumed = (*plan.defaults, *scope, *plan.provenance.sources, _origin(kept["provenance"]))
    timeline, remark = timeline_of(plan)
    drawn: dict[str, Any] = {"memory": memory_of(plan), "timeline": timeline, "remark": remark, "advice": _advice(plan)}
    said = (*plan.warnings, *(f"with {one.subject}: {one.text}" for one in plan.choices))
    drawn |= {"warnings": said, "cards": cards(plan), "layout": layout_of(plan), "kernels": kernels_of(plan)}
    drawn["nearest"] = [
        [run.group, run.error, run.measured_seconds] for run in (plan.trust.nearest if plan.trust else ())
    ]
    statement = plan.proof.statement if plan.proof else plan.status
    return Shown(title, told, f"{first['strategy']}: {statement}", ("plan",), (first, *others), assumed, drawn)


def _advice(plan: Plan) -> list[list[Any]]:
    pairs = (("why not", plan.why_not), ("what would help", plan.what_helps))
    said = [[kind, one.subject, one.text] for kind, several in pairs for one in several]
    return said if plan.alternatives_complete else [*said, ["alternatives", "others", CUT_SHORT]]


def _point(result: Result) -> dict[str, Any]:
    """One result as what the page draws of it; what it lacks is None."""
    document, said = result.document, result.document.get("prediction") or {}
    request, strategy = document.get("request") or {}, document.get("strategy")
    if result.status == "infeasible":
        said = {}
    refused = next((one["example"] for one in document.get("rejected", ())), None)
    return {
        "index": result.index,
        "axes": {name.removeprefix("pins."): cell(value) for name, value in result.axes.items()},
        "job": _job(request),
        "status": result.status,
        "strategy": strategy_words(strategy) if strategy else None,
        "gpus": request.get("gpus", result.axes.get("gpus")),
        "seconds": said.get("iteration_seconds"),
        "mfu": said.get("mfu"),
        "days": said.get("training_days"),
        "cost": said.get("cost_dollars"),
        "rate": said.get("tokens_per_second"),
        "gib": peak / 2**30 if said and (peak := document.get("peak_memory_bytes")) else None,
        "speedup": result.speedup,
        "terms": {name: value for name, value in (document.get("breakdown_seconds") or {}).items() if value > 0},
        "note": result.error or refused or "; ".join(document.get("warnings", ())) or None,
    }


def strategy_words(strategy: Mapping[str, Any]) -> str:
    """A strategy in one line: degrees above 1, micro-batch, and what is not usual."""
    words = [f"{word} {strategy[name]}" for word, name in _DEGREES if strategy[name] > 1 or name in {"tp", "pp", "dp"}]
    words += [f"micro-batch {strategy['micro_batch_size']}", f"ZeRO-{strategy['zero_stage']}"]
    words += [strategy["schedule"]] if strategy["pp"] > 1 else []
    words += [f"recompute {strategy['recompute']}"] if strategy["recompute"] != "none" else []
    words += [f"offload {strategy['offload']}"] if strategy.get("offload", "none") != "none" else []
    return ", ".join(words)


def _job(request: Mapping[str, Any]) -> str:
    """What is trained: only plans of one job compete with each other."""
    if not request:
        return ""
    tokens = request.get("tokens")
    return f"{name_in(request['model'])}, {tokens / 1e9:,.6g} B tokens" if tokens else name_in(request["model"])


def _with_axes(results: list[Result]) -> tuple[list[Result], list[str]]:
    """Results of a store alone, with what differs between their requests as axes, ordered by it."""
    requests = [dict(_flat(result.document.get("request") or {})) for result in results]
    names = [*_REQUEST, *sorted({name for one in requests for name in one} - {*_REQUEST})]
    axes: list[str] = []
    for name in names:
        if len(_values(requests, name)) > 1 and not any(
            _follows(requests, name, axis) for axis in axes if name not in _MAIN
        ):
            axes.append(name)
    order = sorted(range(len(results)), key=lambda i: [_rank(requests[i].get(name)) for name in axes])
    points = [
        replace(results[i], index=place, axes={name: requests[i].get(name) for name in axes})
        for place, i in enumerate(order)
    ]
    return points, [name.removeprefix("pins.") for name in axes]


def _values(requests: Sequence[Mapping[str, Any]], *names: str) -> set[str]:
    return {json.dumps([one.get(name) for name in names]) for one in requests if one}


def _follows(requests: Sequence[Mapping[str, Any]], name: str, axis: str) -> bool:
    """Whether an axis settles the value of ``name``, as a model does that of its sequence length."""
    return len(_values(requests, axis, name)) == len(_values(requests, axis))


def _flat(request: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in request.items():
        if name == "pins":
            yield from ((f"pins.{axis}", pinned) for axis, pinned in value.items())
        elif name in _REQUEST:
            yield name, cell(value)


def _rank(value: Any) -> tuple[int, float, str]:
    """Numbers by size, before text by the alphabet, before nothing."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def _assumed(results: Sequence[Result]) -> Iterator[str]:
    """Sources of all answers, each once."""
    yield from sorted({_origin(one.document["provenance"]) for one in results if "provenance" in one.document})
    yield from sorted({line for one in results for line in one.document.get("provenance", {}).get("sources", ())})


def _origin(provenance: Mapping[str, Any]) -> str:
    return f"version {provenance['version']}, catalogue {provenance['catalogue_hash']}"


def _measured() -> dict[str, Any]:
    """The shipped measured runs: groups, and for each run seconds, predicted over measured, and group."""
    runs = measured().runs
    groups = sorted({run.group for run in runs})
    place = {group: i for i, group in enumerate(groups)}
    rows = [[float(f"{r.seconds:.4g}"), round(1 + r.error, 3), place[r.group]] for r in runs]
    return {"groups": groups, "runs": rows}


def study_in(path: Path, text: str) -> tuple[list[Result], str, list[str]]:
    """The results, name and axes in what `plan sweep --format json` wrote.

    Raises:
        BadRequest: it is something else.
    """
    try:
        document = json.loads(text)
        results = [_result(record) for record in document["results"]]
        return results, str(document["study"]), [str(axis).removeprefix("pins.") for axis in document["axes"]]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise BadRequest(f"{path}: not an answer of `plan --format json` or `plan sweep --format json`") from None


def _result(record: dict[str, Any]) -> Result:
    own = ("index", "point", "status", "error", "speedup")
    rest = {name: value for name, value in record.items() if name not in own}
    return Result(record["index"], record["point"], record["status"], rest, record["error"], record.get("speedup"))


PASSES: Final = 2500
"""Passes that the timeline of a page draws: about 200 kB."""
_PARTS: Final = ("weights", "gradients", "optimizer", "activations", "logits", "slack", "reserved")


def memory_of(plan: Plan) -> list[dict[str, Any]]:
    """Every stage's memory in GiB, part by part, with its limit."""
    return [
        {
            "stage": stage.stage,
            "parts": {name: round(getattr(stage, name) / 2**30, 3) for name in _PARTS},
            "limit": round(stage.limit / 2**30, 2),
        }
        for stage in plan.memory_bytes
    ]


def runners_up(plan: Plan, kept: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Axes, status and document of every alternative; days and dollars follow from its seconds."""
    assert plan.prediction is not None
    said = plan.prediction.model_dump()
    for number, other in enumerate(plan.alternatives, start=2):
        longer = other.iteration_seconds / plan.prediction.iteration_seconds
        prediction: dict[str, Any] = {
            "iteration_seconds": other.iteration_seconds,
            "mfu": other.mfu,
            "training_days": said["training_days"] * longer,
            "cost_dollars": None if said["cost_dollars"] is None else said["cost_dollars"] * longer,
            "tokens_per_second": said["tokens_per_second"] / longer,
        }
        differs = other.differs.replace("_", " ").replace(" False", " off").replace(" True", " on")
        note = [f"tied with the best: {differs}" if other.tied else differs]
        document: dict[str, Any] = {"prediction": prediction, "strategy": other.strategy.model_dump(), "warnings": note}
        document |= {"request": kept["request"], "peak_memory_bytes": other.peak_memory_bytes}
        yield {"plan": f"{number}{'=' if other.tied else ''}"}, "alternative", document


def breakdowns(plan: Plan) -> list[dict[str, float]]:
    """Seconds by term of every alternative, priced again; none where this version prices another way."""
    try:
        resolved = resolve(PlanRequest(**plan.request))
    except MeshwrightError:
        return []
    found = []
    for other in plan.alternatives:
        row, split = strategy_on(other.strategy, resolved.question), stages_from_plan(other.strategy)
        priced = price(row, resolved.question, split)
        if abs(priced.iteration - other.iteration_seconds) > 1e-6 * other.iteration_seconds:
            return []
        found.append({name: seconds for name, seconds in priced.breakdown.items() if seconds > 0})
    return found


def timeline_of(plan: Plan) -> tuple[dict[str, Any] | None, str]:
    """One iteration as [stage, stream, start, length, name], microseconds, and a remark; None where it is not drawn.

    ``groups`` name the node group of every stage where there are several.
    """
    try:
        drawn = trace(plan, largest=PASSES, arrows=False)
    except MeshwrightError as reason:
        return None, f"No timeline: {reason}"
    events = [event for event in drawn.document["traceEvents"] if event["ph"] == "X"]  # without names of rows
    streams = sorted({event["cat"] for event in events})
    names = sorted({event["name"] for event in events})
    places = {name: i for i, name in enumerate(names)}
    rows = [
        [event["pid"], streams.index(event["cat"]), round(event["ts"]), round(event["dur"]), places[event["name"]]]
        for event in events
    ]
    few = f"{drawn.drawn:,} of the {drawn.planned:,} micro-batches are drawn."
    remark = few if drawn.drawn < drawn.planned else "The whole iteration is drawn."
    groups = [stage.group for stage in plan.strategy.stages] if plan.strategy else []
    told = {"streams": streams, "names": names, "events": rows, "span": drawn.span}
    return told | {"groups": groups if len(set(groups)) > 1 else []}, remark
