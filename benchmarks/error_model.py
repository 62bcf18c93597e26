"""What the model of errors foretells of publishers that it has not seen: intervals, own runs, the order of two layouts.

Every publisher of the shipped table is judged by figures that were found without it. Printed are

- the log score of single runs, mean over publishers (higher is better), beside a model without the breakdown's terms;
- after k runs of one's own on one machine and software, drawn at random ten times: the median error of the others,
  before and after the correction, the share of draws that it made worse by more than half a point,
  and what the 90 % interval holds;
- of two strategies of one job: how often the one said to be faster was, by what was said; and the log loss.

    python benchmarks/error_model.py
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import pairwise

import numpy as np
from scipy.special import stdtr
from scipy.stats import t as student

from planner.runs.error_fit import publishers, without_each
from planner.trust.error_model import FREEDOM, covariance, spread
from planner.trust.own_runs import by_shares, learn, left_uncertain, prior_of, scatter_of
from planner.trust.table import figures, measured

OWN, DRAWS, FEWEST = (1, 2, 3, 5), 10, 7
STEPS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def judged():
    """Publisher, its runs, and the figures found without it."""
    table, mine = measured(), publishers(measured())
    for held, known in without_each(table, figures().variances):
        for name in np.unique(table.sources[held]):
            yield str(name), mine[str(name)], known


def scores(parts):
    table = measured()
    with_terms, alone = [], []
    for _, runs, known in parts:
        points, misses = table.points.take(runs), table.misses[runs]
        plain = known._replace(**dict.fromkeys(known._fields[1:10], 0.0), common=0.08)
        for found, figures_used in ((with_terms, known), (alone, plain)):
            scale = spread(points, figures_used)
            found.append(np.mean(student.logpdf(misses / scale, FREEDOM) - np.log(scale)))
    print(f"log score {np.mean(with_terms):.3f}, without terms of the breakdown {np.mean(alone):.3f}")


def places(parts):
    """Publisher, the figures without it, and its runs on one machine and software, as a profile is of one."""
    names = measured().traits.names
    for _, runs, known in parts:
        place = np.array(["|".join((names["accelerator"][i], names["stack"][i])) for i in runs])
        yield from ((runs[place == at], known) for at in np.unique(place) if (place == at).sum() >= FEWEST)


def own_runs(parts):
    table, draw = measured(), np.random.default_rng(0)
    ends, together = figures(), list(places(parts))
    for k in OWN:
        rows = []
        for runs, known in together:
            mine = []
            for _ in range(DRAWS):
                order = draw.permutation(runs)
                own, new, misses = table.points.take(order[:k]), table.points.take(order[k:]), table.misses[order[k:]]
                found = learn(by_shares(own), table.misses[order[:k]], prior_of(own, known), scatter_of(own, known))
                left = misses - by_shares(new).longer(found.factors)
                before, after = np.median(abs(misses)), np.median(abs(left))
                center, scale = left_uncertain(found, new, known)
                inside = (left >= center + ends.own_low * scale) & (left <= center + ends.own_high * scale)
                mine.append((before, after, after > before + 0.005, inside.mean()))
            rows.append(np.mean(mine, axis=0))
        before, after, harmed, inside = np.mean(rows, axis=0)
        gained = f"error {before:.1%} -> {after:.1%}, made worse in {harmed:.0%} of draws"
        print(f"{k} own runs, {len(rows)} machines: {gained}; interval holds {inside:.0%}")


def job(run, traits, i):
    sizes = [round(float(traits.sizes[name][i]), 6) for name in ("gpus", "parameters", "seq_length")]
    names = [str(traits.names[name][i]) for name in ("accelerator", "stack")]
    return (run.group, run.model, run.precision, run.tokens_per_gpu, *sizes, *names)


def order(parts):
    table = measured()
    predicted = np.log([run.seconds * (1.0 + run.error) for run in table.runs])
    truth = np.log([run.seconds for run in table.runs])
    said, right, weight = [], [], []
    for _, runs, known in parts:
        jobs = defaultdict(list)
        for i in runs:
            jobs[job(table.runs[i], table.traits, i)].append(i)
        pairs = [(a, b) for same in jobs.values() for n, a in enumerate(same) for b in same[:n]]
        pairs = [(a, b) for a, b in pairs if predicted[a] != predicted[b]]
        both = covariance(points := table.points.take(runs), points, known)
        place = {run: n for n, run in enumerate(runs)}
        for a, b in pairs:
            first, second = (a, b) if predicted[a] < predicted[b] else (b, a)
            m, n = place[first], place[second]
            scale = np.sqrt(both[m, m] + both[n, n] - 2.0 * both[m, n])
            said.append(stdtr(FREEDOM, (predicted[second] - predicted[first]) / scale))
            right.append(truth[first] < truth[second])
            weight.append(1.0 / len(pairs))
    said, right, weight = np.array(said), np.array(right), np.array(weight)
    loss = -np.average(np.log(np.where(right, said, 1.0 - said)), weights=weight)
    print(f"order of {len(said):,} pairs: log loss {loss:.3f}")
    for low, high in pairwise(STEPS):
        among = (said >= low) & (said < high)
        shares = [np.average(of[among], weights=weight[among]) for of in (said, right)]
        print(f"  said {shares[0]:.0%}, were {shares[1]:.0%}, {among.sum()} pairs")


def main() -> int:
    parts = list(judged())
    scores(parts)
    own_runs(parts)
    order(parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
