"""Predicted against measured iteration times as a picture, out of planner/trust/measured.csv and nothing else.

One panel with all runs, one with the runs of each publisher as if it had not been there; the height is the ratio,
because errors of a quarter vanish next to five powers of ten. All kinds of colour vision can distinguish blue and
vermilion, the marks differ too, and they, text and lines are read on white and on black, since the background is
transparent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from planner.trust.table import Run, measured

WIDE, HIGH, LEFT, TOP, BOTTOM, BETWEEN = 330, 250, 52, 30, 46, 48
"""A panel, and the margins, pixels."""
GREY = "#808080"
PANELS: tuple[tuple[str, Callable[[Run], float], str], ...] = (
    ("#3d8fd1", lambda run: 1.0 + run.error, "in sample"),
    ("#d55e00", lambda run: math.exp(-run.miss), "its publisher left out"),
)
"""Colour, predicted over measured, and title."""
RATIOS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0)
"""Marks of the upright axis; the three in the middle are drawn across, and what lies beyond the ends is put on them."""
RADIUS = 2.2


def drawn() -> str:
    """The picture as SVG."""
    runs = measured().runs
    width, height = LEFT + 2 * WIDE + BETWEEN + 22, TOP + HIGH + BOTTOM
    style = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" fill="{GREY}" role="img"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>',
        "<title>Predicted over measured seconds per iteration of the shipped runs</title>",
        *_heights(),
    ]
    ends = _decades(runs)
    for place, (colour, ratio, title) in enumerate(PANELS):
        marks = [(run.seconds, ratio(run)) for run in runs]
        left, discs = LEFT + place * (WIDE + BETWEEN), not place
        parts += _panel(marks, left, colour, f"{title}, {len(runs):,} runs", ends, discs=discs)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _decades(runs: tuple[Run, ...]) -> tuple[int, int]:
    """Powers of ten that hold all measured times."""
    times = [run.seconds for run in runs]
    return math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))


def _height(ratio: float) -> float:
    low, high = math.log(RATIOS[0]), math.log(RATIOS[-1])
    return TOP + HIGH * (high - min(max(math.log(ratio), low), high)) / (high - low)


def _heights() -> Iterator[str]:
    for ratio in RATIOS:
        yield f'<text x="{LEFT - 8}" y="{_height(ratio) + 4:.0f}" text-anchor="end">{ratio:g}</text>'
    turned = f'transform="translate(13 {TOP + HIGH / 2:.0f}) rotate(-90)" text-anchor="middle"'
    yield f"<text {turned}>predicted / measured</text>"


def _panel(
    marks: list[tuple[float, float]], left: int, colour: str, title: str, ends: tuple[int, int], *, discs: bool
) -> Iterator[str]:
    """Axes, marks (measured seconds, predicted over measured) and title of one panel."""
    first, last = ends
    bottom = TOP + HIGH
    yield f'<text x="{left + WIDE / 2:.0f}" y="{TOP - 12}" text-anchor="middle" fill="{colour}">{title}</text>'
    yield f'<path d="M{left} {TOP}V{bottom}H{left + WIDE}" fill="none" stroke="{GREY}"/>'
    for ratio in RATIOS[2:5]:
        dashes = "" if ratio == 1.0 else ' stroke-dasharray="4 4"'
        yield f'<path d="M{left} {_height(ratio):.1f}h{WIDE}" stroke="{GREY}"{dashes}/>'
    for power in range(first, last + 1):
        x = left + WIDE * (power - first) / (last - first)
        yield f'<path d="M{x:.0f} {bottom}v5" stroke="{GREY}"/>'
        yield f'<text x="{x:.0f}" y="{bottom + 19}" text-anchor="middle">{10.0**power:g}</text>'
    yield f'<text x="{left + WIDE / 2:.0f}" y="{bottom + 38}" text-anchor="middle">measured s per iteration</text>'
    places = (
        (left + WIDE * (math.log10(seconds) - first) / (last - first), _height(ratio)) for seconds, ratio in marks
    )
    yield _marks(list(places), colour, discs=discs)


def _marks(places: list[tuple[float, float]], colour: str, *, discs: bool) -> str:
    """Discs, or open triangles."""
    if discs:
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
        return f'<path d="{path}" stroke="{colour}" stroke-width="{2.0 * RADIUS}" stroke-linecap="round"/>'
    path = "".join(f"M{x:.1f} {y - 3:.1f}l2.6 4.5h-5.2z" for x, y in places)
    return f'<path d="{path}" fill="none" stroke="{colour}"/>'
