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
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodels.scenario import Scenario
from hardware.catalogue import accelerator
from hardware.errors import MeshwrightError
from planner.runs.case import Case, case_of
from planner.runs.files import read_runs
from planner.runs.least_squares import EXPERTS, MOST_ROWS, STACK_KNOBS, Knob, log_error, solve, with_constants
from planner.runs.schema import Run
from planner.trust.table import LEFT_OUT

ROOT = Path(__file__).resolve().parents[2]
STACKS = ROOT / "costmodels" / "stack" / "stacks"
ACCELERATORS = ROOT / "hardware" / "catalogue" / "accelerators"

SHRUNK = 0.75
"""Power of the fitted expert efficiency that is kept: measured runs with experts are few and of few recipes. From
half-way to here the bias of both splits comes closer to nothing; the whole fit does worse on the dev split."""
RATE = Knob("training_rate", 1.0, 0.15, 0.5, 1.2)
KNOBS = (replace(STACK_KNOBS[0], spread=0.1), *STACK_KNOBS[1:])
"""Of a stack: all call the same libraries, so that what stacks on a machine have in common is the machine's."""
WAITING = ("fsdp", "torchtitan")
"""Stacks all of whose ranks wait for each other at every layer, whose parameters they gather."""
DEVICES = 0.015
"""Their neutral straggler: how much devices of one kind differ [Sinha22]. Series of one model in LLM Foundry take 2.4,
3.8 and 4.4 % longer than priced without it on 2, 4 and 8 nodes than on one (medians of eight, 125M to 30B)."""
Layout = Sequence[tuple[str, Knob]]
"""Whose constants are fitted, and which, in the order of their values."""
STEP = 1e-3
"""Of a constant, to tell a slope by."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run with its share of its group's weight."""

    group: str
    case: Case
    measured: float
    weight: float


def samples(paths: Iterable[Path], without: Iterable[str] = ()) -> list[Sample]:
    """The complete runs that can be priced, thinned to ``MOST_ROWS`` a group, groups of equal weight.

    Groups in ``without`` are left out: those whose source warns that its times are not reproducible. So are runs
    that say themselves why nothing may be fitted to them.
    """
    groups: dict[str, list[tuple[Case, float]]] = defaultdict(list)
    for path in paths:
        for run in read_runs(path):
            if run.group not in without and (found := _usable(run)) is not None:
                groups[run.group].append(found)
    chosen = []
    for group, rows in groups.items():
        kept = rows[:: max(1, math.ceil(len(rows) / MOST_ROWS))]
        chosen += [Sample(group, c, t, 1.0 / math.sqrt(len(kept))) for c, t in kept]
    return chosen


def _usable(run: Run) -> tuple[Case, float] | None:
    seconds = run.measured.iteration_seconds
    if not seconds or not run.scored or run.held_back or run.not_fitted:
        return None
    try:
        found = case_of(run)
    except MeshwrightError:
        return None
    neutral = with_rate(with_stack(found.scenario, np.array([k.neutral for k in STACK_KNOBS])), RATE.neutral)
    return replace(found, scenario=neutral), seconds


def error(sample: Sample, scenario: Scenario) -> float:
    """Logarithm of predicted over measured."""
    return log_error(sample.case, scenario, sample.measured)


def calibrate(chosen: list[Sample], rounds: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Tables of the stacks' and of the accelerators' constants that bring the errors down, with the prior.

    Errors are followed along their slopes: logarithms of times are all but straight in these constants, and the next
    round starts where this one ends.
    """
    layout = layout_of(chosen)
    knobs = [knob for _, knob in layout]
    weights, values = np.array([s.weight**2 for s in chosen]), np.array([knob.neutral for knob in knobs])
    for _ in range(rounds):
        here, slopes = straightened(chosen, layout, values)
        values = solve(partial(along, here - slopes @ values, slopes), knobs, values, weights=weights)
    return tables(layout, values)


def tables(layout: Layout, values: NDArray[np.float64]) -> tuple[dict[str, list[float]], dict[str, float]]:
    """The constants by stack, in the order of ``STACK_KNOBS``, and by accelerator."""
    found = {(owner, knob.field): float(v) for (owner, knob), v in zip(layout, values, strict=True)}
    rates = {owner: value for (owner, field), value in found.items() if field == RATE.field}
    names = {owner for owner, _ in found} - rates.keys()
    return {name: [found.get((name, k.field), k.neutral) for k in STACK_KNOBS] for name in names}, rates


def along(base: NDArray[np.float64], slopes: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Errors (N,) at the constants' values, as far as their slopes (N, K) tell."""
    return base + slopes @ values


def layout_of(chosen: Sequence[Sample]) -> Layout:
    """What is fitted: a rate for every accelerator and the constants of every stack; no two are called alike."""
    stacks = {s.case.scenario.stack.name for s in chosen}
    alone = alone_on_machines(chosen)
    rates = [(name, RATE) for name in sorted({s.case.scenario.group.accelerator.name for s in chosen})]
    return rates + [(name, _neutral(name, k)) for name in sorted(stacks) for k in KNOBS[1 if name in alone else 0 :]]


def _neutral(name: str, knob: Knob) -> Knob:
    return replace(knob, neutral=DEVICES) if knob.name == "straggler" and name in WAITING else knob


def straightened(
    chosen: Sequence[Sample], layout: Layout, values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors (N,) at the constants' values, and their slopes (N, K)."""
    here, slopes = np.empty(len(chosen)), np.zeros((len(chosen), len(layout)))
    for row, s in enumerate(chosen):
        here[row] = error(s, _with(s.case.scenario, layout, values))
        owners = {s.case.scenario.stack.name, s.case.scenario.group.accelerator.name}
        for column, (owner, knob) in enumerate(layout):
            if owner in owners:
                step = STEP if values[column] + STEP <= knob.high else -STEP
                moved = values + step * (np.arange(len(layout)) == column)
                slopes[row, column] = (error(s, _with(s.case.scenario, layout, moved)) - here[row]) / step
    return here, slopes


def _with(scenario: Scenario, layout: Layout, values: NDArray[np.float64]) -> Scenario:
    mine = {(owner, knob.field): v for (owner, knob), v in zip(layout, values, strict=True)}
    name = scenario.stack.name
    constants = np.array([mine.get((name, knob.field), knob.neutral) for knob in STACK_KNOBS])
    return with_rate(with_stack(scenario, constants), float(mine[scenario.group.accelerator.name, RATE.field]))


def alone_on_machines(chosen: Iterable[Sample]) -> set[str]:
    """Stacks that run on machines of their own, whose kernels nothing tells from the machines'."""
    users: dict[str, set[str]] = defaultdict(set)
    for s in chosen:
        users[s.case.scenario.group.accelerator.name].add(s.case.scenario.stack.name)
    shared = {name for names in users.values() if len(names) > 1 for name in names}
    return {name for names in users.values() for name in names} - shared


def with_stack(scenario: Scenario, values: NDArray[np.float64]) -> Scenario:
    """The scenario on a stack of those constants, in the order of ``STACK_KNOBS``."""
    return with_constants(scenario, STACK_KNOBS, values)


def with_rate(scenario: Scenario, rate: float) -> Scenario:
    """The scenario on an accelerator of that training rate."""
    device = scenario.group.accelerator.model_copy(update={"training_rate": rate})
    return replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))


def calibrate_experts(
    chosen: list[Sample], stacks: dict[str, list[float]], rates: dict[str, float]
) -> dict[str, tuple[float, Errors]]:
    """The expert efficiency of every stack, the others' constants given, and the errors that remain."""
    from scipy.optimize import minimize_scalar

    found = {}
    for name in sorted({s.case.scenario.stack.name for s in chosen} & stacks.keys()):
        mine = [s for s in chosen if s.case.scenario.stack.name == name]
        fitted = [_fitted(s.case.scenario, stacks, rates) for s in mine]

        def size(value: float, mine: list[Sample] = mine, fitted: list[Scenario] = fitted) -> float:
            pairs = zip(mine, fitted, strict=True)
            return sum(s.weight**2 * abs(error(s, with_experts(x, value))) for s, x in pairs)

        best = minimize_scalar(size, bounds=(EXPERTS.low, EXPERTS.high), method="bounded")
        value = float(best.x) ** SHRUNK
        left = [math.expm1(error(s, with_experts(x, value))) for s, x in zip(mine, fitted, strict=True)]
        found[name] = (value, _errors(np.array(left)))
    return found


def with_experts(scenario: Scenario, value: float) -> Scenario:
    """The scenario on a stack of that expert efficiency."""
    return replace(scenario, stack=scenario.stack.changed({EXPERTS.field: value}))


def _fitted(scenario: Scenario, stacks: dict[str, list[float]], rates: dict[str, float]) -> Scenario:
    rate = rates.get(scenario.group.accelerator.name, scenario.group.accelerator.training_rate)
    return with_rate(with_stack(scenario, np.array(stacks[scenario.stack.name])), rate)


@dataclass(frozen=True, slots=True)
class Errors:
    """How far the fitted constants are off on the runs they were fitted to."""

    runs: int
    bias: float
    median: float
    p90: float


def errors_left(chosen: list[Sample], stacks: dict[str, list[float]], rates: dict[str, float]) -> dict[str, Errors]:
    """The errors that remain, by stack."""
    errors: dict[str, list[float]] = defaultdict(list)
    for s in chosen:
        fitted = _fitted(s.case.scenario, stacks, rates)
        errors[s.case.scenario.stack.name].append(math.expm1(error(s, fitted)))
    return {name: _errors(np.array(found)) for name, found in sorted(errors.items())}


def _errors(found: NDArray[np.float64]) -> Errors:
    size = np.abs(found)
    return Errors(len(found), float(np.median(found)), float(np.median(size)), float(np.quantile(size, 0.9)))


def report(stacks: dict[str, list[float]], rates: dict[str, float], left: dict[str, Errors]) -> str:
    """The constants, and the errors that remain by stack."""
    lines = [
        f"{name:22s} " + " ".join(f"{k.name}={v:.4g}" for k, v in zip(STACK_KNOBS, values, strict=True))
        for name, values in sorted(stacks.items())
    ]
    lines += [f"{name:22s} training_rate={value:.4g}" for name, value in sorted(rates.items())]
    lines += [
        f"{name:22s} n {m.runs:4d} bias {m.bias:+.1%} median {m.median:.1%} p90 {m.p90:.1%}" for name, m in left.items()
    ]
    return "\n".join(lines)


def write(stacks: dict[str, list[float]], rates: dict[str, float], left: dict[str, Errors]) -> None:
    """Put the constants into the catalogue files, with the errors of the fit."""
    for name, values in stacks.items():
        m = left[name]
        text = f"{m.runs} runs of the fit split: bias {m.bias:+.1%}, median {m.median:.1%}, 90th percentile {m.p90:.1%}"
        fields = {k.field: _written(k, v) for k, v in zip(STACK_KNOBS, values, strict=True)}
        set_fields(STACKS / f"{name}.toml", {**fields, "calibrated.basis": f'"{text}"'})
    for name, value in rates.items():
        path = ACCELERATORS / f"{name}.toml"
        set_fields(path, {"training_rate": f"{value:.3f}"})
        text, sourced = path.read_text(encoding="utf-8"), 'training_rate = "calibration"'
        if sourced not in text:
            path.write_text(text.replace("[sources]\n", f"[sources]\n{sourced}\n"), encoding="utf-8")
    _lend(rates)


def _lend(rates: Mapping[str, float]) -> None:
    """Give machines whose files say so the mean rate of the fitted ones of their silicon."""
    for path in sorted(ACCELERATORS.glob("*.toml")):
        if 'training_rate = "silicon"' in path.read_text(encoding="utf-8"):
            mine = _silicon(path.stem)
            kin = [rate for name, rate in rates.items() if _silicon(name) == mine]
            set_fields(path, {"training_rate": f"{np.mean(kin):.3f}"})


def _silicon(name: str) -> tuple[str, str]:
    found = accelerator(name)
    return found.vendor, found.architecture.partition(" ")[0]


def report_experts(experts: dict[str, tuple[float, Errors]]) -> str:
    """The expert efficiencies and the errors that remain."""
    return "\n".join(
        f"{name:22s} {EXPERTS.name}={value:.3f} n {m.runs} bias {m.bias:+.1%} median {m.median:.1%} p90 {m.p90:.1%}"
        for name, (value, m) in experts.items()
    )


def write_experts(experts: dict[str, tuple[float, Errors]]) -> None:
    """Put them into the catalogue files, and into those that say of some format that it is as another stack's."""
    for name, (value, _) in experts.items():
        set_fields(STACKS / f"{name}.toml", {EXPERTS.field: f"{value:.3f}"})
    for path in sorted(STACKS.glob("*.toml")):
        path.write_text(in_step(path.read_text(encoding="utf-8"), experts), encoding="utf-8")


def in_step(text: str, experts: Mapping[str, tuple[float, Errors]]) -> str:
    """The text of a stack's file with every efficiency beside which stands "as" and a fitted stack's name as fitted."""
    return "".join(_in_step(line, experts) for line in text.splitlines(keepends=True))


def _in_step(line: str, experts: Mapping[str, tuple[float, Errors]]) -> str:
    field, like = f"{EXPERTS.name} = ", "  # as "
    value, _, remark = line.removeprefix(field).partition(like)
    name = remark.partition(":")[0].split()[:1]
    if not line.startswith(field) or not name or name[0] not in experts:
        return line
    return line.replace(value, f"{experts[name[0]][0]:.3f}", 1)


def _written(knob: Knob, value: float) -> str:
    return f'"{1e3 * value:.2f} ms"' if knob.name == "iteration_overhead" else f"{value:.3f}"


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
    dense = [s for s in chosen if s.case.scenario.model.moe is None]
    stacks, rates = calibrate(dense, given.rounds)
    left = errors_left(dense, stacks, rates)
    experts = calibrate_experts([s for s in chosen if s.case.scenario.model.moe], stacks, rates)
    if given.write:
        write(stacks, rates, left)
        write_experts(experts)
    print(report(stacks, rates, left), report_experts(experts), sep="\n")  # noqa: T201 - this module is a script


if __name__ == "__main__":
    main()
