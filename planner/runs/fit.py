"""Fit the few constants of stacks and accelerators on measured runs.

    python -m planner.runs.fit RUNS.jsonl... [--rounds 4] [--without GROUP...]

Few constants a stack (speed of matrix and memory-bound kernels and of collectives, spread between nodes, host
time per iteration) and one an accelerator (its rate in training), together, by robust least squares on the
logarithm of the iteration time. Every source group weighs the same whatever its number of runs, and every constant
is drawn towards its neutral value, so that what the data do not speak about stays where it was.
Prints the constants and the errors; ``--write`` puts them into the catalogue.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from costmodels.scenario import Scenario
from hardware.catalogue import accelerator
from planner.runs.case import Case
from planner.runs.corpus import grouped, scored_cases
from planner.runs.judge import error_figures
from planner.runs.least_squares import (
    EXPERTS,
    MOST_ROWS,
    RATE,
    STACK_KNOBS,
    Constants,
    Floats,
    Knob,
    log_error,
    solve,
    with_constants,
)
from planner.runs.schema import Run
from planner.trust.table import LEFT_OUT

ROOT = Path(__file__).resolve().parents[2]
STACKS = ROOT / "costmodels" / "stack" / "stacks"
ACCELERATORS = ROOT / "hardware" / "catalogue" / "accelerators"

SHRUNK = 0.75
"""Power of the fitted expert efficiency that is kept: measured runs with experts are few and of few recipes. From
half-way to here the bias comes closer to nothing on runs fitted and not; the whole fit does worse on those not."""
KNOBS = (replace(STACK_KNOBS[0], spread=0.1), *STACK_KNOBS[1:])
"""Of a stack: all call the same libraries, so that what stacks on a machine have in common is the machine's."""
GATHERING = ("fsdp", "torchtitan")
"""Stacks all of whose ranks wait for each other at every layer, whose parameters they gather."""
DEVICES = 0.015
"""Their neutral straggler: how much devices of one kind differ [Sinha22]. Series of one model in LLM Foundry take 2.4,
3.8 and 4.4 % longer than priced without it on 2, 4 and 8 nodes than on one (medians of eight, 125M to 30B)."""
Layout = Sequence[tuple[str, Knob]]
"""Whose constants are fitted, and which, in the order of their values."""
STEP = 1e-3
"""Of a constant, for a slope."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run with its share of its group's weight."""

    group: str
    case: Case
    measured: float
    weight: float

    @property
    def stack(self) -> str:
        """Name of the stack that it ran under."""
        return self.case.scenario.stack.name

    @property
    def device(self) -> str:
        """Name of the accelerator that it ran on."""
        return self.case.scenario.group.accelerator.name

    def error(self, constants: Constants) -> float:
        """Logarithm of predicted over measured."""
        return log_error(self.case, self.measured, constants)


def samples(paths: Iterable[Path], without: Iterable[str] = ()) -> list[Sample]:
    """The complete runs that can be priced, thinned to ``MOST_ROWS`` a group, groups of equal weight.

    Groups in ``without`` are left out: those whose source warns that its times are not reproducible. So are runs
    that say themselves why nothing may be fitted to them.
    """
    usable = scored_cases(paths, lambda run: run.group not in without and _may_be_fitted(run))
    chosen = []
    for group, runs in grouped(usable, lambda pair: pair[0].group).items():
        kept = runs[:: math.ceil(len(runs) / MOST_ROWS)]
        weight = 1.0 / math.sqrt(len(kept))
        chosen += [
            Sample(
                group, replace(case, scenario=_neutral(case.scenario)), run.measured.iteration_seconds or 0.0, weight
            )
            for run, case in kept
        ]
    return chosen


def _may_be_fitted(run: Run) -> bool:
    return bool(run.measured.iteration_seconds) and "speed" in run.constants and not run.not_fitted


def by_experts(chosen: Iterable[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Runs of dense models, and those with experts."""
    parts = grouped(chosen, lambda s: s.case.scenario.model.moe is None)
    return parts.get(True, []), parts.get(False, [])


def _neutral(scenario: Scenario) -> Scenario:
    constants = {(scenario.stack.name, knob.field): knob.neutral for knob in STACK_KNOBS}
    return with_constants(scenario, {**constants, (scenario.group.accelerator.name, RATE.field): RATE.neutral})


def calibrate(chosen: list[Sample], rounds: int) -> Constants:
    """The constants of stacks and accelerators that bring the errors down, with the prior.

    Errors are followed along their slopes: logarithms of times are all but straight in these constants, and the next
    round starts where this one ends.
    """
    layout = layout_of(chosen)
    knobs = [knob for _, knob in layout]
    weights, values = np.array([s.weight**2 for s in chosen]), np.array([knob.neutral for knob in knobs])
    for _ in range(rounds):
        here, slopes = linearized(chosen, layout, values)
        values = solve(partial(linear, here - slopes @ values, slopes), knobs, values, weights=weights)
    return constants_of(layout, values)


def constants_of(layout: Layout, values: Floats) -> Constants:
    """The constants with those values (K,), and the neutral ones that stacks of the layout do not have fitted."""
    fitted = {(owner, knob.field): float(v) for (owner, knob), v in zip(layout, values, strict=True)}
    stacks = dict.fromkeys(owner for owner, knob in layout if knob is not RATE)
    return {(name, knob.field): knob.neutral for name in stacks for knob in STACK_KNOBS} | fitted


def linear(base: Floats, slopes: Floats, values: Floats) -> Floats:
    """Errors (N,) at the constants' values, as far as their slopes (N, K) tell."""
    return base + slopes @ values


def layout_of(chosen: Sequence[Sample]) -> Layout:
    """What is fitted: a rate for every accelerator and the constants of every stack."""
    alone = alone_on_machines(chosen)
    rates = [(name, RATE) for name in sorted({s.device for s in chosen})]
    stacks = sorted({s.stack for s in chosen})
    return rates + [(name, _knob(name, k)) for name in stacks for k in KNOBS[1 if name in alone else 0 :]]


def _knob(stack: str, knob: Knob) -> Knob:
    return replace(knob, neutral=DEVICES) if knob.name == "straggler" and stack in GATHERING else knob


def linearized(chosen: Sequence[Sample], layout: Layout, values: Floats) -> tuple[Floats, Floats]:
    """Errors (N,) at the constants' values, and their slopes (N, K)."""
    constants = constants_of(layout, values)
    here, slopes = np.array([s.error(constants) for s in chosen]), np.zeros((len(chosen), len(layout)))
    for column, (owner, knob) in enumerate(layout):
        step = STEP if values[column] + STEP <= knob.high else -STEP
        moved = {**constants, (owner, knob.field): float(values[column]) + step}
        for row, s in enumerate(chosen):
            if owner in {s.stack, s.device}:
                slopes[row, column] = (s.error(moved) - here[row]) / step
    return here, slopes


def alone_on_machines(chosen: Iterable[Sample]) -> set[str]:
    """Stacks that run on machines of their own, whose kernels cannot be separated from the machines'."""
    users = [{s.stack for s in runs} for runs in grouped(chosen, lambda s: s.device).values()]
    return set().union(*users).difference(*(names for names in users if len(names) > 1))


def calibrate_experts(chosen: Iterable[Sample], constants: Constants) -> Constants:
    """The expert efficiency of every stack among the constants, which are given."""
    from scipy.optimize import minimize_scalar

    def size(value: float, name: str, mine: Sequence[Sample]) -> float:
        tried = {**constants, (name, EXPERTS.field): value}
        return sum(s.weight**2 * abs(s.error(tried)) for s in mine)

    found = {}
    for name, mine in sorted(grouped(chosen, lambda s: s.stack).items()):
        if (name, STACK_KNOBS[0].field) in constants:
            bounds = (EXPERTS.low, EXPERTS.high)
            best = minimize_scalar(size, bounds=bounds, method="bounded", args=(name, mine))
            found[name, EXPERTS.field] = float(best.x) ** SHRUNK
    return found


def errors_left(chosen: Iterable[Sample], constants: Constants) -> dict[str, str]:
    """The errors that remain of runs whose stack is fitted, in words, by stack."""
    errors = grouped((s for s in chosen if (s.stack, STACK_KNOBS[0].field) in constants), lambda s: s.stack)
    left = {name: error_figures([math.expm1(s.error(constants)) for s in mine]) for name, mine in errors.items()}
    figures = "bias {bias:+.1%}, median {median_abs_error:.1%}, 90th percentile {p90_abs_error:.1%}"
    return {name: f"{m['n']} runs that it is fitted to: {figures.format(**m)}" for name, m in sorted(left.items())}


def report(constants: Constants, left: Mapping[str, str], of_experts: Mapping[str, str]) -> str:
    """The constants by their owner, and the errors that remain by stack."""
    lines = [
        f"{owner:22s} " + " ".join(f"{field.rpartition('.')[2]}={value:.4g}" for field, value in fields.items())
        for owner, fields in sorted(_by_owner(constants).items())
    ]
    lines += [f"{name:22s} {said}" for name, said in left.items()]
    return "\n".join([*lines, *(f"{name:22s} with experts: {said}" for name, said in of_experts.items())])


def _by_owner(constants: Constants) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for (owner, field), value in constants.items():
        found.setdefault(owner, {})[field] = value
    return found


def write(constants: Constants, left: Mapping[str, str]) -> None:
    """Put the constants into the catalogue files, with the errors of the fit."""
    for owner, values in _by_owner(constants).items():
        fields = {field: _written(field, value) for field, value in values.items()}
        if RATE.field in fields:
            path = ACCELERATORS / f"{owner}.toml"
            set_fields(path, fields)
            text, sourced = path.read_text(encoding="utf-8"), f'{RATE.field} = "calibration"'
            if sourced not in text:
                path.write_text(text.replace("[sources]\n", f"[sources]\n{sourced}\n"), encoding="utf-8")
        else:
            set_fields(STACKS / f"{owner}.toml", {**fields, "calibrated.basis": f'"{left[owner]}"'})
    _lend({owner: value for (owner, field), value in constants.items() if field == RATE.field})
    for path in sorted(STACKS.glob("*.toml")):
        path.write_text(with_experts_of_others(path.read_text(encoding="utf-8"), constants), encoding="utf-8")


def _lend(rates: Mapping[str, float]) -> None:
    """Give machines whose files say so the mean rate of the fitted ones of their silicon."""
    for path in sorted(ACCELERATORS.glob("*.toml")):
        if 'training_rate = "silicon"' in path.read_text(encoding="utf-8"):
            mine = _silicon(path.stem)
            kin = [rate for name, rate in rates.items() if _silicon(name) == mine]
            set_fields(path, {RATE.field: f"{np.mean(kin):.3f}"})


def _silicon(name: str) -> tuple[str, str]:
    found = accelerator(name)
    return found.vendor, found.architecture.partition(" ")[0]


def with_experts_of_others(text: str, constants: Constants) -> str:
    """The text of a stack's file with every expert efficiency that is said to be "as" a fitted stack's as fitted."""

    def fitted(line: re.Match[str]) -> str:
        value = constants.get((line["name"], EXPERTS.field))
        return line[0] if value is None else f"{line['field']}{value:.3f}{line['remark']}{line['name']}"

    return re.sub(rf"(?m)^(?P<field>{EXPERTS.name} = )\S+(?P<remark>  # as )(?P<name>[^\s:]+)", fitted, text)


def _written(field: str, value: float) -> str:
    return f'"{1e3 * value:.2f} ms"' if field.endswith("iteration_overhead") else f"{value:.3f}"


def set_fields(path: Path, fields: Mapping[str, str]) -> None:
    """Replace or add fields of a TOML file: "training_rate" at its top, "calibrated.straggler" in that table."""
    first, *tables = path.read_text(encoding="utf-8").split("\n[")
    parts = [f"{part}\n" for part in (first, *(f"[{table}" for table in tables))]
    for field, value in fields.items():
        table, _, name = field.rpartition(".")
        head = f"[{table}]\n" if table else ""
        place = next((i for i, part in enumerate(parts) if part.startswith(head) and (head or i == 0)), None)
        if place is None:
            parts[-1] = f"{parts[-1].rstrip()}\n\n"
            place = len(parts)
            parts.append(head)
        parts[place] = _with_line(parts[place], name, value)
    path.write_text("".join(parts).rstrip() + "\n", encoding="utf-8")


def _with_line(table: str, name: str, value: str) -> str:
    """The text of a table with one field set."""
    lines = table.split("\n")
    for place, line in enumerate(lines):
        if line.startswith(f"{name} = "):
            lines[place] = f"{name} = {value}"
            return "\n".join(lines)
    blank = "\n" if table.endswith("\n\n") else ""
    return f"{table.rstrip()}\n{name} = {value}\n{blank}"


def main() -> None:
    """Command line: files in, constants out."""
    parser = argparse.ArgumentParser(description="Fit stacks and accelerators on measured runs.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--without", nargs="*", default=list(LEFT_OUT), help="groups to leave out")
    parser.add_argument("--write", action="store_true", help="put the constants into the catalogue")
    given = parser.parse_args()
    chosen = samples(given.runs, given.without)
    dense, mixed = by_experts(chosen)
    constants = calibrate(dense, given.rounds)
    left = errors_left(dense, constants)
    constants = {**constants, **calibrate_experts(mixed, constants)}
    if given.write:
        write(constants, left)
    print(report(constants, left, errors_left(mixed, constants)))  # noqa: T201 - this module is a script


if __name__ == "__main__":
    main()
