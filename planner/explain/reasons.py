"""Which refusals say why nothing is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.answer.plan import Rejection
from planner.request.resolve import Resolved
from planner.rules.rule import Rule

LAID_OUT = frozenset({"tp", "cp", "pp", "dp", "ranks", "widest"})
"""What the number of devices and the batch leave little choice of."""


def telling(found: Sequence[Rejection], resolved: Resolved, rules: Iterable[Rule]) -> tuple[Rejection, ...]:
    """Why nothing is left: memory first, then the rules about pinned axes, the last to speak first.

    A rule that spoke early left strategies for later ones to refuse; the last one refused what was left. What a
    rule refuses along an axis that is free, another value of that axis would have passed; such rules are told where no
    rule is about pinned axes alone, and that a strategy only repeats another where nothing else is known.

    Args:
        found: every refusal of a search, in the order in which rules spoke.
        resolved: the request.
        rules: those that no strategy may break.
    """
    pinned = {name for name, value in resolved.request.pins.items() if value is not None}
    settled = pinned | LAID_OUT | (set() if resolved.scenario.model.moe else {"ep", "etp"})
    reads = {rule.name: set(rule.reads) for rule in rules}
    binding = [one for one in reversed(found) if one.rule in reads]
    known = [one for one in binding if reads[one.rule] <= settled]
    about = [one for one in known if reads[one.rule] & pinned]
    touched = [one for one in binding if reads[one.rule] & pinned]
    memory = [one for one in found if one.rule == "memory"]
    if memory:
        return (*memory, *(about or known))
    return tuple(about or touched or known or binding or found)
