"""Figures of answers: bars, drawn by matplotlib or by plotly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from planner.errors import BadRequest
from planner.render.notebook.frames import installed, rows_of
from planner.render.notebook.headlines import headline

if TYPE_CHECKING:
    from planner.answer.plan import Answer

LIBRARIES: Final = ("matplotlib", "plotly")
_PARTS: Final = ("weights", "gradients", "optimizer", "activations", "logits", "slack", "reserved")
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
"""Which people who are colour-blind can tell apart too."""
_SMALL: Final = 0.001


class Bars(NamedTuple):
    """One picture: bars side by side under labels, their parts on top of each other where they are stacked."""

    title: str
    unit: str
    labels: list[str]
    series: dict[str, list[float]]
    stacked: bool = False
    limit: float | None = None
    """A line that the bars should stay below."""


def plot(answer: Answer, library: str | None) -> Any:
    """A figure of an answer; see `planner.answer.plan.Answer.plot`."""
    pictures = pictures_of(answer)
    draw = _by_matplotlib if installed(LIBRARIES, library, "plot") == "matplotlib" else _by_plotly
    return draw(pictures, headline(answer).title)


def pictures_of(answer: Any) -> list[Bars]:
    """What there is to draw of an answer.

    Raises:
        BadRequest: nothing.
    """
    found = _KINDS[answer.schema_](answer) if answer.schema_ in _KINDS else []
    if not found:
        raise BadRequest(f"an answer of {answer.schema_} with nothing to draw; to_frame() has its rows")
    return found


def _plan(found: Any) -> list[Bars]:
    if found.prediction is None:
        return []
    total = found.prediction.iteration_seconds
    terms = {name: value for name, value in found.breakdown_seconds.items() if value > _SMALL * total}
    time = Bars("time of an iteration", "s", list(terms), {"seconds": list(terms.values())})
    gib = {part: [getattr(one, part) / 2**30 for one in found.memory_bytes] for part in _PARTS}
    stages = [f"stage {one.stage}" for one in found.memory_bytes]
    limit = min(one.limit for one in found.memory_bytes) / 2**30
    return [time, Bars("memory of the fullest GPU", "GiB", stages, gib, stacked=True, limit=limit)]


def _compared(found: Any) -> list[Bars]:
    least = _SMALL * found.a.iteration_seconds
    terms = [term for term in found.terms if max(term.a, term.b) > least]
    both = {found.a.name: [term.a for term in terms], found.b.name: [term.b for term in terms]}
    return [Bars("time of an iteration", "s", [term.name for term in terms], both)] if terms else []


def _why_not(found: Any) -> list[Bars]:
    terms = {name: pair for name, pair in found.terms.items() if max(pair) > _SMALL}
    series = {"this": [this for this, _ in terms.values()], "the best plan": [best for _, best in terms.values()]}
    return [Bars("time of an iteration", "s", list(terms), series)] if terms else []


def _sizes(found: Any) -> list[Bars]:
    rows = rows_of(found)
    labels = [f"{row['gpus']:,} GPUs" for row in rows]
    days = Bars("training", "days", labels, {"days": [row["days"] for row in rows]}, limit=found.deadline_days)
    if not rows or any(row["cost_dollars"] is None for row in rows):
        return [days] if rows else []
    cost = {"cost": [row["cost_dollars"] for row in rows]}
    return [days, Bars("cost", "$", labels, cost, limit=found.budget_dollars)]


def _what_if(found: Any) -> list[Bars]:
    levers = [one for one in found.levers if one.elasticity is not None]
    series = {"planned again": [100.0 * one.elasticity for one in levers]}
    title = "change of time for 100 % more of it, at the rate of the first per cent"
    return [Bars(title, "%", [one.lever for one in levers], series)] if levers else []


def _swept(found: Any) -> list[Bars]:
    answered = [one for one in found.results if one.get("prediction") and one["status"] != "infeasible"]
    from planner.answer.text import name_in

    labels = [", ".join(name_in(value) for value in one["point"].values()) for one in answered]
    days = {"days": [one["prediction"]["training_days"] for one in answered]}
    mfu = {"MFU": [100.0 * one["prediction"]["mfu"] for one in answered]}
    return [Bars("training", "days", labels, days), Bars("MFU", "%", labels, mfu)] if answered else []


def _allocated(found: Any) -> list[Bars]:
    placed = [job for job in found.jobs if job.placed]
    gpus = {"GPUs": [float(job.placed.gpus) for job in placed]}
    return [Bars("GPUs of each job", "GPUs", [job.name for job in placed], gpus)] if placed else []


def _replanned(found: Any) -> list[Bars]:
    choices = {name: one for name in ("fastest", "nearest") if (one := getattr(found, name)) is not None}
    seconds = [found.old_iteration_seconds, *(one.iteration_seconds for one in choices.values())]
    return [Bars("time of an iteration", "s", ["now", *choices], {"seconds": seconds})] if choices else []


def _calibrated(found: Any) -> list[Bars]:
    runs = found.runs
    series = {"before": [100.0 * one.before for one in runs], "after": [100.0 * one.after for one in runs]}
    return [Bars("error of each run", "%", [one.id for one in runs], series)] if runs else []


_KINDS: Final[Mapping[str, Callable[[Any], list[Bars]]]] = {
    "plan/1": _plan,
    "why-not/1": _why_not,
    "comparison/1": _compared,
    "size/1": _sizes,
    "what-if/1": _what_if,
    "sweep/1": _swept,
    "allocation/1": _allocated,
    "replan/1": _replanned,
    "calibration/1": _calibrated,
}


def _by_matplotlib(pictures: list[Bars], title: str) -> Any:
    """A figure that is shown where a notebook shows its last value, and saved by ``savefig``."""
    plt = import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(1, len(pictures), figsize=(6.4 * len(pictures), 3.6), squeeze=False, layout="tight")
    for axis, picture in zip(axes[0], pictures, strict=True):
        places = range(len(picture.labels))
        base, width = [0.0] * len(picture.labels), 0.8 / (1 if picture.stacked else len(picture.series))
        for n, (name, values) in enumerate(picture.series.items()):
            shift = 0.0 if picture.stacked else width * (n - (len(picture.series) - 1) / 2)
            where = [place + shift for place in places]
            axis.barh(where, values, width, left=base if picture.stacked else None, label=name, color=_colour(n))
            base = [low + more for low, more in zip(base, values, strict=True)]
        axis.set_yticks(list(places), picture.labels, parse_math=False)
        axis.invert_yaxis()
        axis.set_title(picture.title, parse_math=False)
        axis.set_xlabel(picture.unit)
        if picture.limit is not None:
            axis.axvline(picture.limit, color="grey", linestyle="--", label="limit")
        if len(picture.series) > 1 or picture.limit is not None:
            axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(title, fontsize="medium", parse_math=False)  # names and prices have dollars
    plt.close(figure)  # else a notebook shows it twice
    return figure


def _by_plotly(pictures: list[Bars], title: str) -> Any:
    make_subplots, graph = import_module("plotly.subplots").make_subplots, import_module("plotly.graph_objects")
    figure = make_subplots(cols=len(pictures), subplot_titles=[picture.title for picture in pictures])
    for column, picture in enumerate(pictures, start=1):
        for n, (name, values) in enumerate(picture.series.items()):
            bar = graph.Bar(
                name=escape(name),
                x=values,
                y=[escape(label) for label in picture.labels],
                orientation="h",
                marker_color=_colour(n),
                offsetgroup="0" if picture.stacked else str(n),  # bars of one group stand on top of each other
            )
            figure.add_trace(bar, row=1, col=column)
        figure.update_xaxes(title_text=picture.unit, row=1, col=column)
        figure.update_yaxes(autorange="reversed", row=1, col=column)
        if picture.limit is not None:
            figure.add_vline(picture.limit, line_dash="dash", line_color="grey", row=1, col=column)
    figure.update_layout(title=escape(title), barmode="relative" if any(one.stacked for one in pictures) else "group")
    return figure


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]
