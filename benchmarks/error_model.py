"""What the models of errors foretell of publishers that they have not seen: intervals, own runs, orders, memory.

Every publisher of the shipped tables is judged by figures that were found without it. Printed are

- the log score of single runs, mean over publishers (higher is better), against a model without the breakdown's terms;
- after k runs of one's own on one machine and software, drawn at random: the median error of the others, before and
  after the correction, the share of draws that it made worse by more than half a point, and what the 90 % interval
  holds; then the same where the others had twice as many GPUs or more;
- of two strategies of one job: how often the one said to be faster was, by what was said; the log loss, its standard
  error over publishers, and the loss that the noise of two measurements would leave who knows the true times;
- of runs said to fit with a probability, how many ran: of all publishers, and of those that report failures too;
- after k readings of memory of one's own, how the others are foretold, and which of the further runs fit.

    python benchmarks/error_model.py                 # a minute: a correction is one of each term's share of the time
    python benchmarks/error_model.py --repriced 12   # two minutes: as plan calibrate makes it, on one machine each of
                                                     # twelve publishers, drawn from those that no constant is fitted to
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr
from scipy.stats import entropy, norm
from scipy.stats import t as student

from planner.request.resolve import MEMORY_MARGIN
from planner.runs import memory_errors
from planner.runs.calibrate.runs import Configurations
from planner.runs.corpus import grouped, scored_cases
from planner.runs.error_fit import FOLDS, publishers, without_each
from planner.runs.files import read_runs
from planner.runs.judge import shipped
from planner.runs.ranking import USUAL_NOISE
from planner.runs.residuals import priced_runs, thinned_evenly
from planner.trust import memory
from planner.trust.error_model import FREEDOM, Points, Variances, covariance, spread
from planner.trust.memory import probabilities, readings
from planner.trust.own_memory import SURE_SCORE, Seen, learn_needs
from planner.trust.own_runs import Change, by_shares, learn, left_uncertain, prior_of, scatter_of
from planner.trust.table import figures, measured, source

OWN, DRAWS, FEWEST = (1, 2, 3, 5), 10, 7
REPRICED, MOST = (2, 5), 12
STEPS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
HARM = 0.005


class Place(NamedTuple):
    """Runs of one publisher on one machine and software, as a profile is of one, and the figures without it."""

    points: Points
    misses: np.ndarray
    change: Callable[[np.ndarray], Change]
    """What factors do to some of the runs."""
    known: Variances


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


def tabled(parts):
    """The places of the shipped table, whose runs are known by the shares of their terms."""
    table = measured()
    for _, runs, known in parts:
        place = np.array(["|".join(table.traits.names[n][i] for n in ("accelerator", "stack")) for i in runs])
        for at in np.unique(place):
            if (place == at).sum() >= FEWEST:
                points = table.points.take(mine := runs[place == at])
                yield Place(points, table.misses[mine], lambda rows, of=points: by_shares(of.take(rows)), known)


def repriced(parts, most):
    """One place a publisher that no constant is fitted to, of at most ``MOST`` configurations; ``most`` publishers."""
    table, known = measured(), {name: found for name, _, found in parts}
    fitted = {source(run.group) for path in shipped() for run in read_runs(path) if "speed" in run.constants}
    places = defaultdict(list)
    for i, name in enumerate(table.sources):
        if name not in fitted:
            places[name, table.traits.names["accelerator"][i], table.traits.names["stack"][i]].append(i)
    largest = {name: place for (name, *place), _ in sorted(places.items(), key=lambda at: len(at[1]))}
    enough = sorted(name for name, place in largest.items() if len(places[name, *place]) >= FEWEST)
    chosen = np.random.default_rng(0).permutation(enough)[:most]
    groups = {run.group for run in table.runs if run.source in set(chosen)}
    runs = grouped(priced_runs(groups), lambda one: source(one.run.group))
    for name in chosen:
        mine = [one for one in runs[name] if place_of(one.case.scenario) == largest[name]]
        asked = list(grouped(mine, lambda one: one.run.question).values())
        same = asked[:: -(-len(asked) // MOST)]
        cases = [some[0].case for some in same]
        all_of_it = Counted(tuple(cases))
        misses = np.array([np.mean([np.log(one.measured) for one in some]) for some in same])

        def change(rows, cases=cases):
            some = Counted(tuple(cases[i] for i in rows))
            return Change(some.longer, some.slopes)

        yield Place(all_of_it.points, misses - np.log(all_of_it.seconds), change, known[name])


def place_of(scenario):
    return [scenario.group.accelerator.name, scenario.stack.name]


class Counted(Configurations):
    """Configurations that count how often they are priced."""

    priced = 0

    def longer(self, at):
        Counted.priced += len(self.cases)
        return super().longer(at)


def drawn(place, k, draw, *, growing):
    """k runs of one's own, and the others; growing: those on twice as many GPUs or more. None where there are none."""
    everything, gpus = np.arange(len(place.misses)), 2.0 ** place.points.sizes[:, 0]
    if not growing:
        order = draw.permutation(everything)
        return order[:k], order[k:]
    most = [g for g in np.unique(gpus) if (gpus <= g).sum() >= k and (gpus >= 2 * g).any()]
    if not most:
        return None
    own = draw.permutation(everything[gpus <= draw.choice(most)])[:k]
    return own, everything[gpus >= 2 * gpus[own].max()]


def corrected(place, own, new):
    """Error before and after, whether it is worse, and what the interval holds."""
    points, later, ends = place.points.take(own), place.points.take(new), figures()
    prior, scatter = prior_of(points, place.known), scatter_of(points, place.known)
    found = learn(place.change(own), place.misses[own], prior, scatter)
    left = place.misses[new] - (place.change(new).longer(found.factors) if found.kept else 0.0)
    before, after = np.median(abs(np.expm1(-place.misses[new]))), np.median(abs(np.expm1(-left)))
    center, scale = left_uncertain(found, later, place.known)
    inside = (left >= center + ends.own_low * scale) & (left <= center + ends.own_high * scale)
    return before, after, after > before + HARM, inside.mean()


def own_runs(places, counts, draws):
    draw = np.random.default_rng(0)
    for growing in (False, True):
        for k in counts:
            rows = []
            for place in places:
                found = [drawn(place, k, draw, growing=growing) for _ in range(draws)]
                if found[0] is not None and len(place.misses) > k + 1:
                    rows.append(np.mean([corrected(place, *one) for one in found], axis=0))
            before, after, harmed, inside = np.mean(rows, axis=0)
            gained = f"error {before:.1%} -> {after:.1%}, made worse in {harmed:.1%} of draws"
            others = ", others on twice the GPUs or more" * growing
            print(f"{k} own runs, {len(rows)} machines{others}: {gained}; interval holds {inside:.0%}", flush=True)


def job(run, traits, i):
    sizes = [round(float(traits.sizes[name][i]), 6) for name in ("gpus", "parameters", "seq_length")]
    names = [str(traits.names[name][i]) for name in ("accelerator", "stack")]
    return (run.group, run.model, run.precision, run.tokens_per_gpu, *sizes, *names)


def questions():
    """What each run of the table asks; where two ask the same, one strategy was measured again."""
    cases = scored_cases(shipped(), lambda run: run.measured.iteration_seconds)
    groups = grouped((run for run, _ in cases), lambda run: run.group)
    return [run.question for name in sorted(groups) for run in thinned_evenly(groups[name])]


def order(parts):
    table, asked = measured(), questions()
    assert len(asked) == len(table.runs), "run python scripts/refresh_measured.py"
    predicted = np.log([run.seconds * (1.0 + run.error) for run in table.runs])
    truth = np.log([run.seconds for run in table.runs])
    said, right, weight, publisher, apart = [], [], [], [], []
    for name, runs, known in parts:
        jobs = defaultdict(list)
        for i in runs:
            jobs[job(table.runs[i], table.traits, i)].append(i)
        pairs = [(a, b) for same in jobs.values() for n, a in enumerate(same) for b in same[:n]]
        pairs = [(a, b) for a, b in pairs if predicted[a] != predicted[b] and asked[a] != asked[b]]
        both = covariance(points := table.points.take(runs), points, known)
        place = {run: n for n, run in enumerate(runs)}
        for a, b in pairs:
            first, second = (a, b) if predicted[a] < predicted[b] else (b, a)
            m, n = place[first], place[second]
            scale = np.sqrt(both[m, m] + both[n, n] - 2.0 * both[m, n])
            said.append(stdtr(FREEDOM, (predicted[second] - predicted[first]) / scale))
            right.append(truth[first] < truth[second])
            weight.append(1.0 / len(pairs))
            publisher.append(name)
            apart.append(abs(truth[first] - truth[second]))
    said, right, weight = np.array(said), np.array(right), np.array(weight)
    losses = -np.log(np.where(right, said, 1.0 - said))
    loss, names = np.average(losses, weights=weight), np.unique(publisher)
    by_publisher = [losses[np.array(publisher) == one].mean() for one in names]
    known = norm.cdf(np.array(apart) / (2.0**0.5 * USUAL_NOISE))
    left = np.average(entropy([known, 1.0 - known]), weights=weight)
    wide = np.std(by_publisher, ddof=1) / len(names) ** 0.5
    found = f"log loss {loss:.3f} +- {wide:.3f}, noise leaves {left:.3f}"
    print(f"order of {len(said):,} pairs, {len(names)} publishers: {found}")
    for low, high in pairwise(STEPS):
        among = (said >= low) & (said < high)
        shares = [np.average(of[among], weights=weight[among]) for of in (said, right)]
        print(f"  said {shares[0]:.0%}, were {shares[1]:.0%}, {among.sum()} pairs")


def fitting(known):
    """Of runs said to fit with a probability, how many ran; what runs that had room read, whom nobody chose for it."""
    said, fits = probabilities(known), known.column("fits")
    told, ran = fits != "", fits == "yes"
    both = np.isin(known.sources, known.sources[told & ~ran])
    for low, high in pairwise((0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0001)):
        among = told & (said >= low) & (said < high)
        parts = [f"{ran[m].mean():.0%} of {m.sum()} ran, said {said[m].mean():.0%}" for m in (among, among & both)]
        print(f"said {low:.0%} to {min(high, 1.0):.0%}: {parts[0]}; publishers that report failures: {parts[1]}")
    score = known.column("miss") / known.column("scale")
    roomy = known.read & (known.column("room") > 0.3)
    for share in (0.5, 0.7, 0.8, 0.9, 0.95):
        held = score <= memory.score_at(share)
        print(f"readings of runs with a quarter to spare: {share:.0%} foretold, {over_sources(known, held, roomy):.0%}")


def over_sources(known, flags, among):
    return np.mean([flags[among & (known.sources == name)].mean() for name in np.unique(known.sources[among])])


def own_memory(known):
    names, draw = np.unique(known.sources), np.random.default_rng(0)
    room, missed, fits = (known.column(name) for name in ("room", "miss", "fits"))
    side = np.select([known.read | (fits == ""), fits == "yes"], [np.nan, 1.0], -1.0)
    place = np.array([" ".join(at) for at in zip(known.sources, known.traits.names["accelerator"],
                                                 known.traits.names["stack"], strict=True)])  # fmt: skip
    without = {}
    for fold in range(FOLDS):
        held = np.isin(known.sources, names[fold::FOLDS])
        without |= dict.fromkeys(names[fold::FOLDS], memory_errors.fitted(known.take(np.flatnonzero(~held))))
    for k in (1, 2, 5):
        rows, told = [], []
        for at in np.unique(place):
            mine = np.flatnonzero(place == at)
            found = without[known.sources[mine[0]]]
            for _ in range(DRAWS if known.read[mine].sum() >= k + 2 else 0):
                chosen = draw.permutation(mine[known.read[mine]])
                own, new = chosen[:k], chosen[k:]
                needs = learn_needs(known.points.take(own), Seen(missed[own], room[own], side[own]), found)
                wide, z = spread(known.points.take(new), found), (missed[new] - needs.center) / needs.scale
                before = student.logpdf(missed[new] / wide, memory.FREEDOM) - np.log(wide)
                after = student.logpdf(z, FREEDOM) - np.log(needs.scale)
                held = abs(z) <= student.ppf(0.95, FREEDOM)
                rows.append((known.sources[mine[0]], before.mean(), after.mean(), held.mean()))
                others = np.setdiff1d(mine, own)
                sure = room[others] >= needs.center + SURE_SCORE * needs.scale
                told += [(fits[i] == "yes", room[i] >= -np.log1p(-MEMORY_MARGIN), s)
                         for i, s in zip(others, sure, strict=True) if fits[i]]  # fmt: skip
        by = grouped(rows, lambda row: row[0]).values()
        before, after, held = np.mean([np.mean([row[1:] for row in of], axis=0) for of in by], axis=0)
        print(
            f"{k} own readings, {len(by)} publishers: log score {before:.2f} -> {after:.2f}, interval holds {held:.0%}"
        )
        ran, *said = np.array(told).T
        for name, fit in zip((f"margin {MEMORY_MARGIN:.0%}", "80 % sure"), said, strict=True):
            shares = f"{(~fit[~ran]).mean():.0%} of failures caught, {(~fit[ran]).mean():.1%} of what ran refused"
            print(f"  {name}: {shares}, of those said to fit {ran[fit].mean():.1%} ran")


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge the models of errors on publishers that they have not seen.")
    parser.add_argument(
        "--repriced", type=int, help="correct by repricing, as plan calibrate does: of so many publishers"
    )
    parts, most = list(judged()), parser.parse_args().repriced
    if most:
        own_runs(list(repriced(parts, most)), REPRICED, 2)
        print(f"{Counted.priced:,} configurations priced")
        return 0
    scores(parts)
    own_runs(list(tabled(parts)), OWN, DRAWS)
    order(parts)
    fitting(readings())
    own_memory(readings())
    return 0


if __name__ == "__main__":
    sys.exit(main())
