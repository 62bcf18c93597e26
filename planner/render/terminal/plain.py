"""The screen of any answer as plain text, for programs and notebooks."""

from __future__ import annotations

from importlib import import_module
from io import StringIO
from typing import Any, Final

from rich.console import Console

_SCREENS: Final = {
    "plan/1": ("terminal", "render"),
    "why-not/1": ("why_not", "render_why_not"),
    "comparison/1": ("comparison", "print_comparison"),
    "size/1": ("size", "print_size"),
    "what-if/1": ("what_if", "print_sensitivity"),
    "robust/1": ("what_if", "print_robust"),
    "replan/1": ("replan", "render"),
    "allocation/1": ("allocation", "render"),
    "sparse/1": ("sparse", "print_sparse"),
    "calibration/1": ("calibration", "render"),
    "examined-run/1": ("examined", "print_examined"),
}
"""The module of this folder, and the function in it, that draws each kind of answer."""


def screen(answer: Any, width: int) -> str | None:
    """What a terminal so wide shows of an answer, without colours; None of one that has no screen of its own."""
    sheet = StringIO()
    console = Console(file=sheet, width=width, force_terminal=False, color_system=None, highlight=False)
    if answer.schema_ == "sweep/1":
        from planner.render.terminal.sweep import print_results

        print_results(answer.found, answer.asked, console)
    elif answer.schema_ in _SCREENS:
        module, function = _SCREENS[answer.schema_]
        getattr(import_module(f"planner.render.terminal.{module}"), function)(answer, console)
    else:
        return None
    return "".join(f"{line.rstrip()}\n" for line in sheet.getvalue().splitlines())
