"""Seconds of an iteration from the steps that a run printed: the median after warm-up, and what was left out.

A reading is the time of one or several iterations. The reference is the median of the later half. Warm-up is what comes
first and is not near it; what an evaluation, a checkpoint or a dropped update falls into is left out; the rest counts,
slow iterations too, each reading by its iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from planner.jobs.logs.lines import Step

NEAR: Final = 0.1
"""How far from the reference warm-up ends."""
OUTLIER: Final = 0.3
"""How far above the median a reading is reported."""
FEWEST: Final = 3
"""Iterations after warm-up without which there is no measurement."""
RESTLESS: Final = 0.25
"""Width of the middle half over the median, or drift of it, from which on a run has not settled."""
FINE: Final = 0.02
"""Part of a difference of clocks that its rounding may be; readings are joined until it is."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The time of some iterations.

    Attributes:
        first: the first iteration, counted from 1.
        last: the last one.
        seconds: of one of them, in the mean.
        fine: what the last digit of that is worth.
        batch: sequences of each, 0 where it is not said.
        aside: why it is none of training alone, such as "an evaluation"; nothing where it is.
    """

    first: int
    last: int
    seconds: float
    fine: float = 0.0
    batch: int = 0
    aside: str = ""

    @property
    def count(self) -> int:
        """Iterations of it."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Timing:
    """What an iteration takes.

    Attributes:
        seconds: the median.
        first: the first iteration that counts.
        last: the last one.
        count: iterations that count.
        spread: width of the middle half, over the median.
        warm_up: iterations before the first.
        outliers: iterations that take longer than ``OUTLIER`` above the median.
        slowest: seconds of the slowest reading.
        aside: iterations left out by reason.
        settled: whether the middle half is narrow and does not drift.
        batch: sequences of an iteration, 0 where no line says it.
        batches: all sizes of batches that were seen.
        rounding: half the last digit over the figure.
    """

    seconds: float
    first: int
    last: int
    count: int
    spread: float
    warm_up: int
    outliers: int
    slowest: float
    aside: tuple[tuple[str, int], ...]
    settled: bool
    batch: int
    batches: tuple[int, ...]
    rounding: float


def readings(steps: Sequence[Step], *, since_last: bool = False) -> list[Reading]:
    """The times of the steps of one start, in order: as they are printed, else from one clock to the next.

    What is printed may be the mean ``since_last``, the line before.
    """
    own = [one for one in steps if one.seconds]
    if own:
        gaps = Counter(after.done - one.done for one, after in pairwise(own))
        return [*_own(own, gaps.most_common(1)[0][0] if gaps and since_last else 1)]
    return _differences([one for one in steps if one.clock is not None])


def _own(steps: Sequence[Step], usual: int) -> Iterator[Reading]:
    """Readings of as many iterations as usually lie between two lines; an excerpt may leave lines out."""
    before = 0
    for at in steps:
        yield Reading(max(before, at.done - usual) + 1, at.done, at.seconds or 0.0, at.fine, at.batch, at.apart)
        before = at.done


def _differences(steps: Sequence[Step]) -> list[Reading]:
    """Times between clocks, those joined that are too near each other for how coarse the clock is."""
    found: list[Reading] = []
    if not steps:
        return found
    before, aside = steps[0], ""
    for at in steps[1:]:
        aside = aside or at.apart
        passed = (at.clock or 0.0) - (before.clock or 0.0)
        if passed < 0.0:
            before, aside = at, ""
        if at.done > before.done and passed > 0.0 and (aside or passed * FINE >= at.coarse):
            each = at.done - before.done
            found.append(Reading(before.done + 1, at.done, passed / each, 2 * at.coarse / each, at.batch, aside))
            before, aside = at, ""
    return found


def timing(found: Sequence[Reading], *, of_last: int = 1) -> Timing | None:
    """What an iteration takes by the readings of one start; None where too few are left after warm-up.

    Warm-up is in ``of_last`` more iterations where a printed mean goes over so many.
    """
    batches = tuple(dict.fromkeys(one.batch for one in found if one.batch))
    batch = max(batches, key=lambda size: sum(one.count for one in found if one.batch == size), default=0)
    alike = [one for one in found if not batch or one.batch == batch]
    kept = _after_warm_up(alike, of_last)
    whole = [one for one in kept if not one.aside]
    counted = whole if _enough(whole) else kept
    if not _enough(counted):
        return None
    median = quantile(counted, 0.5)
    spread = (quantile(counted, 0.75) - quantile(counted, 0.25)) / median
    reasons = {one.aside: 0 for one in kept if one.aside and one not in counted}
    for one in kept:
        if one.aside in reasons:
            reasons[one.aside] += one.count
    return Timing(
        seconds=median,
        first=counted[0].first,
        last=counted[-1].last,
        count=sum(one.count for one in counted),
        spread=spread,
        warm_up=max(counted[0].first - alike[0].first, 0),
        outliers=sum(one.count for one in counted if one.seconds > (1.0 + OUTLIER) * median),
        slowest=max(one.seconds for one in counted),
        aside=tuple(reasons.items()),
        settled=spread <= RESTLESS and _drift(counted, median) <= RESTLESS,
        batch=batch,
        batches=batches,
        rounding=min(quantile([replace(one, seconds=one.fine) for one in counted], 0.5) / 2.0 / median, 1.0),
    )


def _enough(found: Sequence[Reading]) -> bool:
    """Two readings at least, or one over many iterations."""
    count = sum(one.count for one in found)
    return count >= FEWEST and (len(found) > 1 or count >= 2 * FEWEST)


def _drift(found: Sequence[Reading], median: float) -> float:
    """How far the medians of both halves are from each other, over that of all."""
    half = len(found) // 2
    if half < FEWEST:
        return 0.0
    return abs(quantile(found[:half], 0.5) - quantile(found[half:], 0.5)) / median


def _after_warm_up(found: Sequence[Reading], of_last: int) -> list[Reading]:
    """The readings from the first on that is near the reference; never the one with the very first iteration."""
    if not found:
        return []
    later = found[len(found) // 2 :]
    reference = quantile([one for one in later if not one.aside] or later, 0.5)
    begin = 1 if found[0].first <= 1 else 0
    while begin < len(found) // 2 and abs(found[begin].seconds / reference - 1.0) > NEAR:
        begin += 1
    warm = begin > 0
    while warm and of_last > 1 and begin < len(found) and found[begin].last < found[0].first + of_last:
        begin += 1
    return list(found[begin:])


def quantile(found: Sequence[Reading], share: float) -> float:
    """Seconds below which that share of the iterations lies; between two readings their mean where it lies so."""
    ordered = sorted(found, key=lambda one: one.seconds)
    wanted, passed = share * sum(one.count for one in ordered), 0
    for place, one in enumerate(ordered):
        passed += one.count
        if passed == wanted and place + 1 < len(ordered):
            return (one.seconds + ordered[place + 1].seconds) / 2.0
        if passed >= wanted:
            return one.seconds
    return 0.0
