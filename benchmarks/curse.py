"""Does the search drift to where its model is too kind? Chosen plans next to the measured runs nearest to them.

Plans every model of a list on every kind of machine and prints, for each plan, its distance to the nearest measured run
and that run's error, whether it is inside the validated region, its predicted MFU and the best measured on that
accelerator (of the same kind of model in the same bits), how many alternatives are tied, what a better-validated tie
would cost, and the switches that it uses. Totals follow.

    python benchmarks/curse.py [--ties fastest|close|validated]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from costmodels.model.catalogue import model as find_model
from costmodels.stack.stack import stack as find_stack
from planner import PlanRequest, plan
from planner.request.fields import DEFAULT_STACK
from planner.trust.similarity import PLAIN, kind
from planner.trust.table import measured

MODELS = ("llama3-8b", "llama2-13b", "gpt-22b", "llama3-70b", "gpt3-175b", "llama3.1-405b", "mixtral-8x7b")
"""Small to large, and one with experts; the larger ones with experts are asked of few machines."""
CLUSTERS = ("dgx-a100-80gb", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72")
SIZES = (64, 512, 4096)
WIDE = 128
"""Ranks beyond which sharding of gradients and parameters is called exotic."""
LARGE_EXPERTS = (
    ("deepseek-v3", "dgx-h800", 2048),
    ("qwen3-235b-a22b", "dgx-h100", 1024),
    ("kimi-k2", "dgx-h100", 4096),
)


def questions():
    yield from ((model, cluster, gpus) for model in MODELS for cluster in CLUSTERS for gpus in SIZES)
    yield from LARGE_EXPERTS


def best_measured(accelerator, what, bits):
    """The highest measured MFU on an accelerator; None where nothing was measured."""
    table = measured()
    names = table.traits.names
    same = (names["accelerator"] == accelerator) & (names["kind"] == what) & (names["bits"] == bits)
    return max((table.runs[i].mfu for i in np.flatnonzero(same)), default=None)


def exotic(strategy, orders):
    """What the strategy uses that a plain one leaves alone."""
    wide = strategy.zero_stage >= 2 and strategy.sharding_degree > WIDE
    settings = {
        f"VPP {strategy.vpp}": strategy.vpp > 4,
        f"CP {strategy.cp}": strategy.cp > 1,
        f"EP {strategy.ep}": strategy.ep > 8,
        f"ZeRO-{strategy.zero_stage} x {strategy.sharding_degree}": wide,
        f"offload {strategy.offload}": strategy.offload != "none",
        f"schedule {strategy.schedule}": strategy.pp > 1 and strategy.schedule not in PLAIN,
        "vocabulary spread": strategy.vocabulary != "ends",
        f"ranks {strategy.rank_order}": strategy.rank_order != orders[0],
        f"recompute {'+'.join(strategy.recompute_modules)}": bool(strategy.recompute_modules),
    }
    return [words for words, used in settings.items() if used]


class Row(NamedTuple):
    accelerator: str
    trust: Any
    mfu: float
    measured: float | None
    tied: int
    filled: float
    odd: list[str]
    gap: float
    better: float | None
    """What the better-validated tie costs, as a share; None where there is none."""
    status: str


def row(answer, what, orders):
    """One plan with what was measured."""
    better, seconds = answer.better_validated, answer.prediction.iteration_seconds
    return Row(
        accelerator=answer.request["cluster"]["accelerator"],
        trust=answer.trust,
        mfu=answer.prediction.mfu,
        measured=best_measured(answer.request["cluster"]["accelerator"], what, "fp16"),
        tied=sum(other.tied for other in answer.alternatives),
        filled=max(stage.total / stage.limit for stage in answer.memory_bytes),
        odd=exotic(answer.strategy, orders),
        gap=answer.proof.gap,
        better=better.iteration_seconds / seconds - 1 if better else None,
        status=answer.status,
    )


def line(one, s):
    near, best = one.trust.nearest[0], f"{one.measured:5.1%}" if one.measured else "   - "
    better = "     " if one.better is None else f"{one.better:+.2%}"
    degrees = f"TP {s.tp} CP {s.cp} PP {s.pp} DP {s.dp} EP {s.ep} mb {s.micro_batch_size:g}"
    return (
        f"{near.distance:5.2f}{' ' if one.trust.inside else '!'} {near.error:+7.1%}  {one.mfu:5.1%} {best}"
        f"  {one.filled:5.0%} {one.tied:5d} {one.gap:7.2%} {better:>7s}  {degrees}  {', '.join(one.odd)}"
    )


HEAD = "model            cluster         GPUs  away    error    MFU  best  memory  tied     gap  better"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ties", default="close", choices=("fastest", "close", "validated"))
    ties, orders, seen = parser.parse_args().ties, find_stack(DEFAULT_STACK).supports.rank_orders, []
    print(HEAD)
    for model, cluster, gpus in questions():
        answer = plan(PlanRequest(model=model, cluster=cluster, gpus=gpus, ties=ties))
        asked = f"{model:16s} {cluster:14s} {gpus:6d}"
        if answer.strategy is None:
            print(f"{asked}  nothing fits")
            continue
        seen.append(row(answer, kind(find_model(model)), orders))
        print(f"{asked} {line(seen[-1], answer.strategy)}")
    print("\n".join(totals(seen)))
    return 0


def over_machine(name, seen):
    """Predicted MFU against the best measured on one accelerator, and against the nearest run."""
    mine = [one for one in seen if one.accelerator == name]
    best = [100 * (one.mfu - one.measured) for one in mine if one.measured]
    near = [100 * (one.mfu - one.trust.nearest[0].measured_mfu) for one in mine]
    gap = f"{statistics.median(best):+.1f}" if best else "-"
    middle = statistics.median(near)
    return f"  {name}: {len(mine)} plans, {gap} points of the best measured, {middle:+.1f} of the nearest run"


def totals(seen):
    """What the plans have in common, in sentences."""
    over = [100 * (one.mfu - one.measured) for one in seen if one.measured]
    better = [one.better for one in seen if one.better is not None]
    uses = Counter(words.split()[0] for one in seen for words in one.odd)
    odd = ", ".join(f"{name} {count}" for name, count in uses.most_common())
    apart = statistics.median(one.trust.nearest[0].distance for one in seen)
    error = statistics.median(one.trust.nearest[0].error for one in seen)
    full, tied = sum(one.filled > 0.95 for one in seen), sum(one.tied > 0 for one in seen)
    optimal, gap = sum(one.status == "optimal" for one in seen), statistics.fmean(one.gap for one in seen)
    middle, above = statistics.median(over), sum(part > 0 for part in over)
    inside = sum(one.trust.inside for one in seen)
    return [
        f"{len(seen)} plans, {inside} in the validated region; nearest run {apart:.2f} away, its error {error:+.1%}",
        f"predicted MFU less the best measured there: median {middle:+.1f} points, above for {above} of {len(over)}",
        *(over_machine(name, seen) for name in sorted({one.accelerator for one in seen})),
        f"memory over 95 %: {full}; with a tied alternative: {tied}; optimal: {optimal}, mean gap {gap:.2%}",
        f"a better-validated tie, not taken: {len(better)}, {statistics.fmean(better or [0.0]):+.2%} of the time",
        f"use of what is not plain: {odd}",
    ]


if __name__ == "__main__":
    sys.exit(main())
