"""Pages: the drawings of plans and studies, and one self-contained page of them, HTML with its own style and script.

The drawings are plain functions of JavaScript over parts of ``shown_plan(plan).data()`` and of a study's, which a
service can send as JSON as they are. Another page puts ``style()`` and ``script_with(own script)`` into its own
HTML and calls there, each with what it draws and a width in pixels; they give an element, several, or null for nothing:

- ``headline(data)``, ``cards(data.plan.cards)``: the answer in a sentence, and time, MFU, cost, memory, risk.
- ``layoutFigure(data.plan.layout, width)``, ``networkFigure(...)``: the GPUs, and who talks over what.
- ``timeBars(data.points, width, again)``, ``memoryBars(data.plan.memory, width)``: stacks of terms, memory by stage.
- ``timelineFigure(data.plan.timeline, data.plan.remark, width)``: one iteration, stage by stage.
- ``rooflineFigure(data.plan.kernels, width, again)``: kernels of a layer under the machine's roofs.
- ``alternatives(data.points, width, again, {onpick})``: plans to pick and to compare; it calls ``onpick(plan, place)``.
- ``parallelLines(points, axes, width, again, state)``, ``importanceTable(data.importance)``: a study at a glance.
- ``measuredRuns(data.measured, data.plan.nearest, width)``: how predictions compared with measured runs.

``again`` draws the same once more after a choice in it. ``mount(element, (width, again) => ...)`` puts a drawing into
an element, keeps it as wide as that, and gives the function that draws it again, for new data. ``digest`` is a
script's or style's hash for a content security policy; nothing needs ``unsafe-inline`` or ``unsafe-eval``.
"""

from planner.render.page.answers import ShownAnswer, answer_of, read_document, shown_answer
from planner.render.page.html import digest, embedded, filled, page_of, script_with, style
from planner.render.page.source import LARGEST_PAGE, Shown, shown_plan, shown_study

__all__ = [
    "LARGEST_PAGE",
    "Shown",
    "ShownAnswer",
    "answer_of",
    "digest",
    "embedded",
    "filled",
    "page_of",
    "read_document",
    "script_with",
    "shown_answer",
    "shown_plan",
    "shown_study",
    "style",
]
