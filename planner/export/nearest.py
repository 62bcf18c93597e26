"""What a target can express where it cannot express a plan."""

from __future__ import annotations

from planner.document import Plan


def nearest_expressible(plan: Plan, target: str) -> str:
    """The end of a refusal: nothing, or the nearest plan that the target takes."""
    del plan, target
    return ""
