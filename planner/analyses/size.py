"""How many machines a deadline or a budget asks for: the question turned round.

Sizes are whole nodes of one kind; each is answered by the planner's own search. A round size that meets the limits is
found first, then the gap below it is halved, as if fewer nodes always took longer. They do not quite: a size that
divides the model and the batch well can be faster. So the sizes below the answer are searched too, the roundest first,
until the budget is spent, and the answer says whether all were. Sizes beyond the peak rate are not.
"""

from __future__ import annotations

import math
from typing import Any, Final

from costmodels.useful_flops import counted_flops
from planner.analyses.size_search import Limits, Neighbour, Option, Size, Sizes, round_sizes
from planner.answer.build import provenance_record
from planner.answer.text import plural
from planner.errors import BadRequest, OutOfTime
from planner.request.budget import Budget
from planner.request.defaults import SPARES
from planner.request.pins import parse_pins
from planner.request.progress import Tell
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved
from planner.search.question import resolve_search

DAY: Final = 86_400.0
MOST_GPUS: Final = 65_536
"""Accelerators that are considered unless more or fewer are asked for."""
AROUND: Final = 5e6
"""Effort that the sizes around an answer may take beyond it, and those between sizes that nearly meet the limits."""
MOST_TIMES: Final = 16
"""Times the nodes that meet a deadline up to which it is looked at which are faster still."""
NEARLY: Final = 1.1
"""What nearly meets a limit misses it by less than this: so much may round sizes lose to others."""


def size(
    request: PlanRequest,
    *,
    days: float | None = None,
    dollars: float | None = None,
    limit: float | None = None,
    progress: Tell | None = None,
) -> Size:
    """The smallest cluster of whole nodes that meets a deadline, a budget, or both.

    Args:
        request: the question; ``gpus`` is the most that are considered, and a missing batch follows the size.
        days: of training at most.
        dollars: at most.
        limit: seconds that the whole answer may take; ``request.time_limit`` unless given, else effort is counted.
        progress: called with the size that is searched, as a `Progress`.

    Raises:
        BadRequest: no limit is given, a budget for machines without a price, or several kinds of nodes.
        OutOfTime: the time passed before a size was found that meets the limits, or all were refuted.
    """
    if days is None and dollars is None:
        raise BadRequest("size needs a deadline such as --deadline 30d, or a budget such as --budget $1M")
    parse_pins(request.pins)  # what no size could read is refused, not tried on all of them
    limits = Limits(days, dollars)
    sizes, resolved = _sizes(request, limits, Budget(limit or request.time_limit, progress=progress))
    if dollars is not None and resolved.cluster.usd_per_gpu_hour is None:
        raise BadRequest(f"a budget needs a price, and {resolved.cluster.name} has none; give it price = '2 $/h'")
    found = sizes.first(limits.met, sizes.least) if dollars is None else _within(sizes, limits)
    if found is None and (resolved.stability or _narrowly_missed(sizes, limits)):
        found = _between_misses(sizes, limits, math.inf if resolved.stability else AROUND)
    if found is None and sizes.effort_spent():
        raise OutOfTime(f"no size that meets the limits was found {sizes.budget.limit}")
    if not sizes.options():
        reason = sizes.refusal or "; `plan` says why, --gpus considers more"
        raise BadRequest(f"nothing fits on up to {sizes.most * sizes.each:,} GPUs{reason}")
    if found is None:
        return _missed(sizes, limits, resolved)
    return _met(sizes, _smaller(sizes, limits, found), limits, resolved)


def _sizes(request: PlanRequest, limits: Limits, budget: Budget) -> tuple[Sizes, Resolved]:
    """The sizes to look at, and the question on one node, for what does not depend on the size."""
    from hardware.catalogue import cluster as find_cluster

    machines = find_cluster(request.cluster) if isinstance(request.cluster, str) else request.cluster
    group, *others = machines.groups
    if others:
        names = " and ".join(one.name for one in machines.groups)
        said = f"size counts nodes of one kind, and {machines.name} has {names}; a cluster of one of them works"
        raise BadRequest(said)
    each = group.gpus_per_node
    first = resolve_search(request.model_copy(update={"gpus": each}))
    if request.gpus < each:
        raise BadRequest(f"size counts whole nodes; a node has {each} GPUs, more than --gpus {request.gpus}")
    most = min(request.gpus // each, first.machines.groups[0].nodes or request.gpus // each)
    flops = counted_flops(first.scenario) * first.tokens
    least = math.ceil(flops / (first.scenario.peak_rate * limits.days * DAY) / each) if limits.days else 1
    return Sizes(request, limits, max(min(least, most), 1), max(most, 1), each, budget), first


def _within(sizes: Sizes, limits: Limits) -> int | None:
    """Fewest nodes that meet both limits; every round size is looked at, since a budget forgives no detour."""
    soon = Limits(limits.days, None)
    if limits.days is not None:
        found = sizes.first(soon.met, sizes.least)
        if found is not None and limits.met(sizes.at(found)):
            return found
    for nodes in [n for n in round_sizes(sizes.most) if n >= sizes.least]:
        if sizes.effort_spent():
            break
        option = sizes.at(nodes)
        if option and not limits.in_budget(option) and any(map(limits.met, sizes.known.values())):
            break
        if option and (option.cost_dollars or 0.0) > 4 * (limits.dollars or math.inf):
            break
    return min((nodes for nodes, option in sizes.known.items() if limits.met(option)), default=None)


def _narrowly_missed(sizes: Sizes, limits: Limits) -> bool:
    """Whether a size that was searched misses them by so little that one between may not."""
    wider = Limits(*(None if limit is None else limit * NEARLY for limit in (limits.days, limits.dollars)))
    return any(map(wider.met, sizes.options()))


def _between_misses(sizes: Sizes, limits: Limits, effort: float) -> int | None:
    """Nodes that meet the limits between those that do not: more nodes break more often, and some divide a model worse.

    Those next to what comes nearest are looked at first, with so much effort; until a time limit where there is one.
    """
    near = _nearest(sizes, limits)
    rest = sorted(_unsearched(sizes, sizes.most + 1), key=lambda n: abs(n - near.nodes) if near else 0)
    least = sizes.budget.effort - effort
    affordable = (n for n in rest if sizes.budget.effort > least and not sizes.effort_spent())
    return next((n for n in affordable if limits.met(sizes.at(n))), None)


def _smaller(sizes: Sizes, limits: Limits, found: int) -> int:
    """Fewest nodes that meet the limits after all: every size below, as far as the budget goes."""
    for nodes in _unsearched(sizes, found):
        if sizes.effort_spent():
            break
        if nodes < found and limits.met(sizes.at(nodes)):
            found = nodes
    return found


def _unsearched(sizes: Sizes, end: int) -> list[int]:
    """Sizes below ``end`` that were not searched, the roundest first."""
    rest = [nodes for nodes in range(sizes.least, end) if nodes not in sizes.known]
    return sorted(rest, key=lambda n: (-(n & -n), -n))


def _met(sizes: Sizes, found: int, limits: Limits, resolved: Resolved) -> Size:
    if limits.dollars is not None:
        _search_affordable(sizes, limits, found)
    answer, around = _settled(sizes, limits)
    if limits.dollars is None:
        _larger(sizes, answer)
    surer = _surer(sizes, limits, answer)
    good = _good(sizes, limits)
    smallest, priced = good[0], all(option.cost_dollars is not None for option in good)
    proved = not sizes.open_sizes(range(sizes.least, smallest.nodes))
    return Size(
        status="met",
        answer=answer,
        smallest=smallest,
        fastest=min(good, key=lambda o: o.days),
        cheapest=min(good, key=lambda o: o.cost_dollars or 0.0) if priced else None,
        surer=surer,
        proved=proved,
        statement=_statement(sizes, smallest.nodes, limits, proved=proved),
        **around,
        **_frame(sizes, limits, resolved),
    )


def _settled(sizes: Sizes, limits: Limits) -> tuple[Option, dict[str, Any]]:
    """The smallest for a deadline, the fastest for a budget alone, and what is around it.

    What is around it is looked at after it, and may turn out to be the better answer.
    """
    sizes.budget.effort = max(sizes.budget.effort, AROUND)
    answer = _best(sizes, limits)
    while True:
        around = [sizes.at(n) for n in (answer.nodes - 1, answer.nodes + 1) if 1 <= n <= sizes.most]
        days = limits.days or answer.days
        other = [Limits(days + more, limits.dollars) for more in (1.0, -1.0)]
        later, sooner = (_neighbour(sizes, answer, one) if one.days and one.days > 0 else None for one in other)
        if (better := _best(sizes, limits)) is answer:
            return answer, {"neighbours": tuple(filter(None, around)), "day_later": later, "day_sooner": sooner}
        answer = better


def _surer(sizes: Sizes, limits: Limits, answer: Option) -> Option | None:
    """What meets the limits surely, where the answer does not; it is looked for among more nodes for a deadline."""
    if limits.surely_met(answer):
        return None
    if limits.days is not None:
        sizes.first(limits.surely_met, answer.nodes + 1)
    sure = filter(limits.surely_met, sizes.options())
    return min(sure, key=lambda o: o.nodes if limits.days is not None else o.days, default=None)


def _best(sizes: Sizes, limits: Limits) -> Option:
    good = _good(sizes, limits)
    return good[0] if limits.days is not None else min(good, key=lambda o: o.days)


def _good(sizes: Sizes, limits: Limits) -> list[Option]:
    return [option for option in sizes.options() if limits.met(option)]


def _search_affordable(sizes: Sizes, limits: Limits, found: int) -> None:
    """Look for the most nodes that the budget pays, so that the fastest is among what was searched."""
    enough = max((nodes for nodes, option in sizes.known.items() if limits.met(option)), default=found)
    beyond = (n for n, option in sizes.known.items() if n > enough and option and not limits.in_budget(option))
    sizes.halved(limits.met, fails=min(beyond, default=sizes.most + 1), meets=enough)


def _larger(sizes: Sizes, answer: Option) -> None:
    """Look at round sizes beyond an answer and the most considered, so that the fastest is among what was searched."""
    if sizes.most <= MOST_TIMES * answer.nodes:
        beyond = [nodes for nodes in round_sizes(sizes.most) if nodes > answer.nodes]
        for nodes in [sizes.most, *beyond]:
            if not sizes.effort_spent():
                sizes.at(nodes)


def _neighbour(sizes: Sizes, answer: Option, limits: Limits) -> Neighbour | None:
    """The smallest size found for another deadline, of all that were searched; None where it is the answer itself.

    Where there is a budget, what it pays comes before what it does not.
    """
    days = limits.days or 0.0
    sizes.first(Limits(days, None).met, min(sizes.least, answer.nodes))
    soon = filter(limits.in_time, sizes.options())
    option = min(soon, key=lambda one: (not limits.in_budget(one), one.nodes), default=None)
    if option is None or option.nodes == answer.nodes:
        return None
    cost, now = option.cost_dollars, answer.cost_dollars
    extra = None if cost is None or now is None else cost - now
    over = None if cost is None or limits.dollars is None or limits.in_budget(option) else cost - limits.dollars
    return Neighbour(deadline_days=days, option=option, extra_dollars=extra, over_dollars=over)


def _statement(sizes: Sizes, found: int, limits: Limits, *, proved: bool) -> str:
    below = range(sizes.least, found)
    if limits.days is None:
        return f"the fastest of {len(sizes.known)} sizes that were searched, halving the gap at the budget's edge"
    if not proved:
        missing = f"{sizes.open_sizes(below)} of {len(below)} smaller sizes"
        return f"{missing} were not searched to the end; --time-limit gives more time"
    every = f"every smaller size of whole nodes was searched ({len(below)}); " if below else ""
    most = f"{(sizes.least - 1) * sizes.each:,} GPUs would need more than 100 % MFU, and " if sizes.least > 1 else ""
    return f"{every}{most}clusters come in whole nodes of {plural(sizes.each, 'GPU')}"


def _missed(sizes: Sizes, limits: Limits, resolved: Resolved) -> Size:
    rest = sizes.open_sizes(range(sizes.least, sizes.most + 1))
    upto = f"up to {sizes.most * sizes.each:,} GPUs"
    missed = f"no size of {upto} meets the limits (searched: {len(sizes.known)} of {sizes.most})"
    if rest:
        known = plural(len(sizes.known), "size")
        missed = f"none meets the limits of {known} searched, {upto}; {rest:,} were not searched"
    nearest = _nearest(sizes, limits)
    return Size(status="infeasible", nearest=nearest, statement=missed, **_frame(sizes, limits, resolved))


def _nearest(sizes: Sizes, limits: Limits) -> Option | None:
    """What comes nearest: the fastest where only the deadline is missed, else the cheapest that is soon enough."""
    options = sizes.options()
    soon = min(filter(limits.in_time, options), key=lambda o: o.cost_dollars or 0.0, default=None)
    return soon or min(options, key=lambda o: o.days, default=None)


def _frame(sizes: Sizes, limits: Limits, resolved: Resolved) -> dict[str, object]:
    defaults = [line for line in resolved.defaults if not line.startswith("global batch") and line != SPARES]
    if sizes.request.global_batch_size is None:
        least = "1024 tokens per GPU, at least 4 Mi in all"
        rule = f"{least}, rounded up to a power of two times the GPUs or a part of them"
        defaults.append(f"global batch as `plan` takes it for each size: {rule}; --global-batch fixes it")
    if resolved.stability:
        defaults.append("interruptions, repairs and spare nodes counted in time and cost")
    return {
        "model": resolved.scenario.model.name,
        "cluster": resolved.machines.name,
        "tokens": resolved.tokens,
        "deadline_days": limits.days,
        "budget_dollars": limits.dollars,
        "defaults": tuple(defaults),
        "searched": len(sizes.known),
        "provenance": provenance_record(resolved),
    }
