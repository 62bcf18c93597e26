"""What the service counts, as text that Prometheus reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from planner.version import VERSION

if TYPE_CHECKING:
    from planner.service.pool import Pool

METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of Prometheus' text."""
BOUNDS: Final = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Upper bounds of the histogram of answers' seconds."""


@dataclass(slots=True)
class Counted:
    """One question while it is answered."""

    status: int = 500


@dataclass(slots=True)
class Counts:
    """Questions by kind and status, and how long their answers took, memory's included."""

    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    within: Counter[tuple[str, float]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def counting(self, kind: str) -> Iterator[Counted]:
        """Count a question: what is said of it, or the ``status`` of the refusal that is raised, and its seconds."""
        one, started = Counted(), time.perf_counter()
        try:
            yield one
        except Exception as error:
            one.status = getattr(error, "status", one.status)
            raise
        finally:
            took = time.perf_counter() - started
            self.answered[kind, one.status] += 1
            self.seconds[kind] += took  # type: ignore[assignment]  # a Counter adds up floats too
            self.within.update((kind, bound) for bound in BOUNDS if took <= bound)

    def text(self, pool: Pool) -> str:
        """All figures."""
        return "\n".join(self._lines(pool)) + "\n"

    def _lines(self, pool: Pool) -> Iterator[str]:
        yield from _said("meshwright_info", "gauge", "The version that answers.")
        yield f'meshwright_info{{version="{VERSION}"}} 1'
        now = {
            "workers": ("Questions that can be answered at once.", pool.settings.workers),
            "busy": ("Questions that are being answered.", pool.busy),
            "waiting": ("Questions that wait for a worker.", pool.waiting),
        }
        for name, (sentence, value) in now.items():
            yield from _said(f"meshwright_{name}", "gauge", sentence)
            yield f"meshwright_{name} {value}"
        yield from _said("meshwright_questions_total", "counter", "Questions by kind and status of the answer.")
        for (kind, status), count in sorted(self.answered.items()):
            yield f'meshwright_questions_total{{question="{kind}",status="{status}"}} {count}'
        yield from _said("meshwright_answer_seconds", "histogram", "Time from a question to its answer.")
        for kind in sorted(self.seconds):
            whole = sum(count for (one, _), count in self.answered.items() if one == kind)
            for bound in BOUNDS:
                yield f'meshwright_answer_seconds_bucket{{question="{kind}",le="{bound:g}"}} {self.within[kind, bound]}'
            yield f'meshwright_answer_seconds_bucket{{question="{kind}",le="+Inf"}} {whole}'
            yield f'meshwright_answer_seconds_sum{{question="{kind}"}} {self.seconds[kind]:.6g}'
            yield f'meshwright_answer_seconds_count{{question="{kind}"}} {whole}'


def _said(name: str, kind: str, sentence: str) -> Iterator[str]:
    yield f"# HELP {name} {sentence}"
    yield f"# TYPE {name} {kind}"
