"""Can any strategy beat a proved answer, and can every default plan be started with room to spare?

Draws questions of the catalogue by their seed: a model, a cluster, GPUs, a stack, sometimes a batch, a length, a number
format. Each is planned as a person asks it. Against each proved answer random strategies in its scope are priced: any
combination of the values that its axes have, kept where no rule but those about what is dominated refuses it, under the
even split and under some drawn ones; neither the lattice nor the search has a say in them. Each plan is then exported
for its framework, whose rules may refuse it, and its fullest device is held against its margin.

A line of JSON a question goes to the file; what it holds is not asked again, so that a run goes on where it ended.

    python benchmarks/soundness.py RESULTS.jsonl [--seeds 0:300] [--strategies 700] [--seconds 600]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from costmodels.iteration import row_seconds
from costmodels.layout.split import Assignment
from costmodels.memory.limits import device_limit
from costmodels.memory.rows import row_bytes
from costmodels.model.catalogue import names as models
from costmodels.names import Recompute
from costmodels.node_groups import Mixed
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.stack.stack import stack_names
from costmodels.strategy import AXES, Strategies, strategies
from hardware.catalogue import names
from planner import MeshwrightError, PlanRequest, plan
from planner.jobs.registry import export
from planner.request.pins import parse_pins
from planner.request.resolve import Resolved
from planner.search.priced import price_strategies
from planner.search.question import resolve_search
from planner.space.active_rules import active
from planner.space.divisors import divisors
from planner.space.lattice import axes_of

GPUS = (8, 16, 32, 48, 64, 96, 128, 256, 384, 512, 1024, 2048)
ROUNDING = 3e-9
SPLITS = 10
"""Strategies of each question that are priced under drawn splits too."""
DRAWS = 200
"""Strategies drawn for each that is wanted: rules refuse most."""
KEPT = {"tp": 16, "pp": 64, "cp": 16}
"""Largest degrees that are drawn."""


def pick(chance: np.random.Generator, options: Any) -> Any:
    """One of the options."""
    return options[int(chance.integers(len(options)))]


def drawn(chance: np.random.Generator) -> PlanRequest:
    """A question as a person might ask it."""
    said: dict[str, Any] = {"model": pick(chance, models()), "gpus": int(pick(chance, GPUS))}
    if chance.random() < 0.7:
        said["cluster"] = pick(chance, names("cluster"))
    if chance.random() < 0.3:
        said["stack"] = pick(chance, stack_names())
    if chance.random() < 0.3:
        said["global_batch_size"] = said["gpus"] * int(pick(chance, (1, 2, 8)))
    if chance.random() < 0.2:
        said["seq_length"] = int(pick(chance, (2048, 8192, 32768)))
    if chance.random() < 0.1:
        said["precision"] = "fp8"
    return PlanRequest(**said, ties="fastest", reasons=False)


def rivals(chance: np.random.Generator, resolved: Resolved, best: Any, count: int) -> Strategies | None:
    """Up to so many strategies in the scope of a question's proof that no rule refuses, half of them near the best."""
    parts = [_rivals(chance, resolved, {}, count // 2)]
    parts.append(_rivals(chance, resolved, {axis: getattr(best, axis) for axis in KEPT}, count - count // 2))
    found = [part for part in parts if part is not None]
    if not found:
        return None
    return strategies(**{axis: np.concatenate([getattr(part, axis) for part in found]) for axis in AXES})


def _rivals(chance: np.random.Generator, resolved: Resolved, near: dict[str, int], count: int) -> Strategies | None:
    """Drawn strategies, with degrees that differ from those of ``near`` by a factor of two at most."""
    scenario, pins, tried = resolved.scenario, parse_pins(resolved.request.pins), DRAWS * count
    axes = {axis: values for axis, values in axes_of(scenario, pins).items() if axis != "sharding"}
    drawn = {axis: chance.choice(values, tried) for axis, values in axes.items()}
    for axis, most in KEPT.items():
        usual = [d for d in divisors(scenario.gpus) if d <= most]
        close = [d for d in usual if axis not in near or near[axis] <= 2 * d <= 4 * near[axis]]
        drawn[axis] = chance.choice(close or usual, tried)
    ranks = drawn["tp"] * drawn["cp"] * drawn["pp"]
    whole = scenario.gpus % ranks == 0
    drawn["dp"] = scenario.gpus // np.where(whole, ranks, 1)
    each = drawn["dp"] * drawn["micro_batch_size"]
    whole &= scenario.global_batch_size % each == 0
    drawn["num_microbatches"] = scenario.global_batch_size // np.where(whole, each, 1)
    drawn["zero_stage"] = chance.choice(scenario.stack.supports.zero_stages, tried)
    drawn["sharding_degree"] = np.where(drawn["zero_stage"] > 0, drawn["dp"] * drawn["cp"], 1)
    rows = strategies(**{axis: values[whole] for axis, values in drawn.items()}) if whole.any() else None
    if rows is None:
        return None
    columns, kept = {axis: getattr(rows, axis) for axis in AXES}, np.ones(len(rows), dtype=bool)
    for rule in active(scenario, frozenset(pins)):
        if rule.kind != "dominated":
            kept &= rule.passes(columns, scenario)
    found = np.flatnonzero(kept)[:count]
    return rows.take(found) if len(found) else None


def least_seconds(chance: np.random.Generator, rows: Strategies, scenario: Scenario) -> tuple[float, int]:
    """The least seconds of an iteration among strategies that fit, and how many prices were looked at."""
    priced = price_strategies(rows, row_seconds(rows, scenario), row_bytes(rows, scenario), scenario)
    fits = priced.fits & np.isfinite(priced.even_split_seconds)
    least, prices = float(np.where(fits, priced.even_split_seconds, np.inf).min()), len(rows)
    if not scenario.stack.supports.uneven_stages or scenario.framework:
        return least, prices
    for place in np.flatnonzero((rows.pp > 1) & (rows.pp < scenario.model.num_layers) & (rows.vpp == 1))[:SPLITS]:
        row = rows.take(np.array([place]))
        cuts = np.sort(chance.choice(np.arange(1, scenario.model.num_layers), int(row.pp[0]) - 1, replace=False))
        layers = np.diff([0, *cuts, scenario.model.num_layers])
        again = layers if row.recompute[0] >= Recompute.FULL else 0 * layers
        one = price_strategy(row, scenario, Assignment(layers, again))
        prices += 1
        if one.footprint.handed_out.max() <= device_limit(scenario, row)[0]:
            least = min(least, one.iteration)
    return least, prices


def startable(found: Any) -> str:
    """Whether a plan's framework takes it: "yes", "no framework", "said not to be", or why not."""
    framework = found.request.get("framework")
    if any(line.startswith("framework any") for line in found.defaults):
        return "said not to be"
    if framework is None:
        return "no framework"
    try:
        export(found, framework)
    except MeshwrightError as error:
        return str(error)
    return "yes"


def asked(seed: int, count: int) -> dict[str, Any]:
    """What became of one question."""
    chance = np.random.default_rng(seed)
    request = drawn(chance)
    line: dict[str, Any] = {"seed": seed, "asked": f"{request.model} {request.gpus} {request.cluster} {request.stack}"}
    try:
        resolved = resolve_search(request)
        found = plan(request)
    except MeshwrightError as error:
        return line | {"status": "refused", "why": str(error)}
    line |= {"status": found.status, "reason": next((one.rule for one in found.rejected), "")}
    if found.prediction is None:
        return line
    filled = max(stage.total / stage.limit for stage in found.memory_bytes)
    told = any(line.startswith("memory margin") and "nothing fits" in line for line in found.defaults)
    line |= {"filled": filled, "margin_given_up": told, "starts": startable(found)}
    line["overfull"] = filled > 1.0 - resolved.margin + ROUNDING and not told
    moved = any("nothing fits" in said or "faster than" in said for said in found.defaults)
    if found.status != "optimal" or moved or isinstance(resolved.question, Mixed):
        return line
    if (rows := rivals(chance, resolved, found.strategy, count)) is None:
        return line | {"prices": 0, "beaten": False}
    least, prices = least_seconds(chance, rows, resolved.scenario)
    beaten = least < found.prediction.iteration_seconds * (1.0 - ROUNDING)
    return line | {"prices": prices, "beaten": beaten, "least": least, "proved": found.prediction.iteration_seconds}


def report(lines: list[dict[str, Any]]) -> None:
    """Counts of all questions in the file."""
    against = [line for line in lines if "prices" in line]
    planned = [line for line in lines if "starts" in line]
    print(f"{len(lines)} questions: {dict(Counter(line['status'] for line in lines))}")
    print(f"{len(against)} proved answers, {sum(line['prices'] for line in against):,} strategies against them:")
    print(f"  beaten {[line['seed'] for line in against if line['beaten']]}")
    print(f"{len(planned)} plans; start: {dict(Counter(line['starts'][:90] for line in planned))}")
    given_up = sum(line["margin_given_up"] for line in planned)
    print(f"  fuller than their margin {[line['seed'] for line in planned if line['overfull']]}; gave it up {given_up}")


def main() -> None:
    """Ask what the file does not hold yet, as long as the seconds last; then report all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", default="0:300")
    parser.add_argument("--strategies", type=int, default=700)
    parser.add_argument("--seconds", type=float, default=600.0)
    said = parser.parse_args()
    first, last = map(int, said.seeds.split(":"))
    written = said.results.read_text(encoding="utf-8").splitlines() if said.results.exists() else []
    lines = [json.loads(line) for line in written]
    known, ends = {line["seed"] for line in lines}, time.monotonic() + said.seconds
    with said.results.open("a", encoding="utf-8") as file:
        for seed in range(first, last):
            if seed in known or time.monotonic() > ends:
                continue
            lines.append(asked(seed, said.strategies))
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
    report(lines)
    sys.exit(any(line.get("beaten") or line.get("overfull") for line in lines))


if __name__ == "__main__":
    main()
