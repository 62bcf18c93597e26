"""Quantities as a sentence says them, and what it says of those that are not known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hardware.units import format_quantity

if TYPE_CHECKING:
    from planner.answer.plan import Plan

NOTABLE = 0.0005
"""Relative change below which something helps nothing."""
NOT_KNOWN = "not known: the search for it ended before anything was found"
"""Of a search that its budget ended with nothing to show."""
CUT_SHORT = "not all were looked at: there may be better alternatives than these"
"""Of runners-up of which not all were looked at."""

WITHOUT = " (nothing fits without)"
"""End of the remark that something that saves memory was not asked for."""
NO_OFFLOADING = "without offloading"
"""What a proof leaves out unless it is asked for: the restriction that most often matters."""


def told_seconds(value: float) -> str:
    """Seconds as a sentence says them."""
    if value == 0:
        return "0 s"
    if 1.0 <= abs(value) < 1000.0:  # beside other seconds, minutes are hard to compare
        return f"{value:.3g} s"
    return format_quantity(value, "time") if value > 0 else f"-{format_quantity(-value, 'time')}"


def told_bytes(value: float) -> str:
    """Bytes of a device; those that a tenth of a GiB does not show in MiB."""
    return f"{value / 2**30:.1f} GiB" if value == 0 or value >= 2**30 / 10 else f"{value / 2**20:.3g} MiB"


def why_none(answer: Plan) -> str:
    """Why an answer has nothing that works, memory first, else the rule, or two that stand together; and what would."""
    refused = sorted(answer.rejected, key=lambda one: one.rule != "memory")
    together = refused[:2] if len(refused) == 2 and refused[0].rule != "memory" else refused[:1]
    reason = "; ".join(one.example for one in together) or "nothing fits"
    near = f"; nearest: {answer.nearest.subject}: {answer.nearest.text}" if answer.nearest else ""
    return reason + (f"; nothing near works: {answer.nothing_near}" if answer.nothing_near else near)


def foremost(scope: Iterable[str]) -> str:
    """The restriction of a proof that is told wherever the proof is; the others stand in the document."""
    return next((said for said in scope if said == NO_OFFLOADING or said.startswith("among ")), "")


def all_but_full(stage: int, share: float) -> str:
    """The warning of a plan whose fullest stage leaves next to nothing of the usable memory."""
    doubt = "what is predicted of memory is off by a few per cent, so that this may run out"
    return f"stage {stage} fills {share:.1%} of the usable memory: {doubt}; leave room with --memory-margin 5%"
