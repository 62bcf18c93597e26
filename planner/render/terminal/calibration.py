"""What `plan calibrate` shows: constants, errors, warnings."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hardware.units import format_quantity
from planner.render.terminal.tables import line, print_rows, printable
from planner.runs.calibrate.document import Calibration, Constant, Errors, RunError

_TIMES = ("latency", "overhead", "launch_time")


def render(answer: Calibration, console: Console) -> None:
    """Draw the constants before and after, the errors of each run and set, and what the evidence leaves open."""
    answer = printable(answer, console)
    fitted = answer.cluster if answer.stack is None else f"{answer.cluster}, {answer.stack}"
    line(console, f"Fitted to {fitted}.{_gained(answer)}", "bold")
    _heading(console, "Constants")
    print_rows([_constant(one) for one in answer.constants], console)
    if answer.runs:
        _heading(console, "Runs: predicted / measured - 1")
        print_rows([_run(one) for one in answer.runs], console)
    if answer.errors:
        _heading(console, "Errors: predicted / measured - 1")
        print_rows([_errors(one) for one in answer.errors], console, named=False)
    sections = (
        ("Warnings", answer.warnings),
        ("What to measure next", (answer.measure_next,) if answer.measure_next else ()),
        ("Assumed or left aside", answer.notes),
    )
    for heading, lines in sections:
        if lines:
            _heading(console, heading)
            table = Table.grid(padding=(0, 1))
            for said in lines:
                table.add_row("-", Text(said))
            console.print(table)


def _gained(answer: Calibration) -> str:
    """How far predictions of the runs missed before and after: medians."""
    said = [f"{one.what}: {one.median_before:.1%} before, {one.median_after:.1%} after" for one in answer.errors]
    return f" Median error of {'; of '.join(said)}." if said else ""


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, markup=False, style="bold")


def _constant(one: Constant) -> dict[str, str]:
    error = "" if one.standard_error is None else f"± {_figure(one.name, one.standard_error)}"
    after = "as before" if one.after == one.before else _figure(one.name, one.after)
    return {"constant": one.name, "before": _figure(one.name, one.before), "after": after, "standard error": error}


def _figure(name: str, value: float) -> str:
    field = name.rpartition(".")[2]
    if field.endswith(_TIMES):
        return format_quantity(value, "time")
    return format_quantity(value, "bytes") if field == "saturation" else f"{value:.4g}"


def _run(one: RunError) -> dict[str, str]:
    return {
        "run": one.id,
        "measured": f"{one.measured_seconds:.3f} s",
        "before": f"{one.before:+.1%}",
        "after": f"{one.after:+.1%}",
        "left out": "" if one.left_out is None else f"{one.left_out:+.1%}",
    }


def _errors(one: Errors) -> dict[str, str]:
    left = "" if one.median_left_out is None else f"{one.median_left_out:.1%}"
    return {
        "what": one.what,
        "points": str(one.points),
        "bias before": f"{one.bias_before:+.1%}",
        "after": f"{one.bias_after:+.1%}",
        "median before": f"{one.median_before:.1%}",
        "after ": f"{one.median_after:.1%}",
        "left out": left,
    }
