"""What the command prints of an answer, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.render.notebook.headlines import headline
from planner.render.terminal.plain import screen

if TYPE_CHECKING:
    from planner.answer.plan import Answer


def summary(answer: Answer, width: int) -> str:
    """The screen of an answer, or where the command has none the headline with its notes."""
    report: str | None = getattr(answer, "report", None)
    if report is not None:
        return report
    if (text := screen(answer, width)) is not None:
        return text
    found = headline(answer)
    return "".join(f"{line}\n" for line in (found.title, found.answer, found.sure, *found.notes))
