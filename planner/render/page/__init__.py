"""One self-contained page that shows a study or a plan: HTML with its own style, script and data, no other file."""

from planner.render.page.html import page_of
from planner.render.page.source import LARGEST_PAGE, Shown, shown_plan, shown_study

__all__ = ["LARGEST_PAGE", "Shown", "page_of", "shown_plan", "shown_study"]
