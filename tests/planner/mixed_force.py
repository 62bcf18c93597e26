"""The best strategy over a few node groups, found by trying everything: plain loops, no bound, no solver."""

import itertools
import math
from dataclasses import replace

import numpy as np

from costmodels.iteration import row_seconds
from costmodels.memory.rows import row_bytes
from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.step.traffic import stage_send_seconds, tied_embedding_seconds
from costmodels.strategy import strategies
from tests.planner.brute_force import context_kinds, every_split, factors_of, recomputations, slack

ON_GROUPS = ("gpipe", "1f1b", "interleaved-1f1b", "interleaved-groups")


def layouts(scenario):
    """(tp, cp, dp) that divide a group's GPUs and that the model allows."""
    model, gpus = scenario.model, scenario.gpus
    for tp, cp, dp in itertools.product(factors_of(gpus), repeat=3):
        widths = (model.num_heads, model.hidden_size, model.ffn_hidden_size)
        groups = model.num_query_groups
        if (
            gpus % (tp * cp * dp) == 0
            and all(width % tp == 0 for width in widths)
            and (groups % tp == 0 or tp % groups == 0)
            and (cp == 1 or scenario.seq_length % (2 * cp) == 0)
        ):
            yield tp, cp, dp


def shardings(scenario, ranks, tps):
    """ZeRO stage and the sharding degree of every group, by its data and context ranks."""
    if 0 in scenario[0].stack.supports.zero_stages:
        yield [(0, 1)] * len(ranks)
    if 1 in scenario[0].stack.supports.zero_stages and max(ranks) > 1:
        yield [(1, n) if n > 1 else (0, 1) for n in ranks]
        near = []
        for one, n, tp in zip(scenario, ranks, tps, strict=True):
            inside = math.gcd(n, max((one.group.tiers[0].domain or one.gpus) // tp, 1))
            near.append((1, inside if 1 < inside < n else n) if n > 1 else (0, 1))
        yield near


def schedules(stack, pp, m, vpp):
    """Codes of the schedules that unequal stages can run in turn."""
    known = [name for name in ON_GROUPS if name in stack.supports.schedules and ("interleaved" in name) == (vpp > 1)]
    return [SCHEDULE_NAMES.index(name) for name in known if SCHEDULES[name].allowed(pp, m, vpp)]


def every_row(mixed, *, one_width):
    """Every strategy: per group a row of one, its stages, and the groups in order."""
    parts, stack = mixed.scenarios, mixed.scenarios[0].stack
    model, batch = parts[0].model, parts[0].global_batch_size
    for chosen in itertools.product(*(list(layouts(one)) for one in parts)):
        widths = [tp * cp * dp for tp, cp, dp in chosen]
        if len({cp for _, cp, _ in chosen}) > 1 or (one_width and len(set(widths)) > 1):
            continue
        stages = [one.gpus // width for one, width in zip(parts, widths, strict=True)]
        pp, cp = sum(stages), chosen[0][1]
        for together in factors_of(batch):
            if pp > model.num_layers or any(together % dp for _, _, dp in chosen):
                continue
            m = batch // together
            for vpp in factors_of(model.num_layers):
                if vpp * pp > model.num_layers:
                    continue
                if not stack.supports.uneven_stages and model.num_layers % (pp * vpp):
                    continue
                for schedule in schedules(stack, pp, m, vpp):
                    choices = itertools.product((0, 1), recomputations(parts[0]), shared_kinds(parts, chosen))
                    for split, (again, modules), kind in choices:
                        if split and (
                            min(tp for tp, _, _ in chosen) == 1
                            or not stack.supports.sequence_parallel
                            or any(parts[0].seq_length % (cp * tp) for tp, _, _ in chosen)
                        ):
                            continue
                        ranks, tps = [dp * cp for _, cp, dp in chosen], [tp for tp, _, _ in chosen]
                        for shards in shardings(parts, ranks, tps):
                            rows = [
                                strategies(
                                    tp=tp,
                                    cp=cp,
                                    cp_kind=kind,
                                    dp=dp,
                                    pp=pp,
                                    vpp=vpp,
                                    schedule=schedule,
                                    micro_batch_size=together // dp,
                                    num_microbatches=m,
                                    sequence_parallel=split,
                                    recompute=int(again),
                                    recompute_modules=modules,
                                    zero_stage=zero,
                                    sharding_degree=degree,
                                )
                                for (tp, _, dp), (zero, degree) in zip(chosen, shards, strict=True)
                            ]
                            for order in itertools.permutations(range(len(parts))):
                                yield rows, stages, order


def shared_kinds(parts, chosen):
    """How context ranks may exchange in every group."""
    each = [set(context_kinds(one, tp, cp)) for one, (tp, cp, _) in zip(parts, chosen, strict=True)]
    return set.intersection(*each)


def link(mixed, rows, one, other):
    """Seconds of a stage that sends to and receives from stages of two groups."""
    sides = zip((one, other), mixed.crossing(one, other), strict=True)
    return max(stage_send_seconds(replace(rows[g], pp=np.array([2])), scenario)[0] for g, scenario in sides)


def best_of_row(mixed, rows, stages, order):
    """The least iteration of one strategy over all its splits that fit; infinite where none does."""
    parts = mixed.scenarios
    at = [group for group in order for _ in range(stages[group])]
    pp, vpp, m = len(at), int(rows[0].vpp[0]), int(rows[0].num_microbatches[0])
    seconds = [row_seconds(row, one) for row, one in zip(rows, parts, strict=True)]
    memory = [row_bytes(row, one) for row, one in zip(rows, parts, strict=True)]
    uneven, recompute = parts[0].stack.supports.uneven_stages, Recompute(int(rows[0].recompute[0]))
    bare = parts[0].stack.supports.empty_ends and pp > 2 and vpp == 1
    layers, again = every_split(parts[0].model.num_layers, pp, vpp, uneven=uneven, recompute=recompute, bare=bare)

    def between(one, other):
        if at[one] != at[other]:
            return link(mixed, rows, at[one], at[other])
        return stage_send_seconds(replace(rows[at[one]], pp=np.array([stages[at[one]]])), parts[at[one]])[0]

    held = SCHEDULES[SCHEDULE_NAMES[int(rows[0].schedule[0])]].in_flight(pp, m, vpp, np.arange(pp))
    held = held + parts[0].stack.pipeline.vocabulary_in_flight * rows[0].vocabulary[0]
    times, fits = [], np.ones(len(layers), dtype=bool)
    for stage, group in enumerate(at):
        price, bytes_ = seconds[group], memory[group]
        sides = [between(stage, stage + 1)] if stage < pp - 1 else []
        sides += [between(stage - 1, stage)] if stage else []
        if len(sides) == 1:
            sides.append(between(0, pp - 1) * (vpp - 1) / vpp)  # back to the first stage after every chunk but the last
        beside = sum(sides) / 2 + price.host[0] + price.vocabulary_spread[0]
        beside += (price.embedding[0] if stage == 0 else 0.0) + (price.head[0] if stage == pp - 1 else 0.0)
        n, r = layers[:, stage], again[:, stage]
        times.append(n * price.layer[0] + r * price.recompute[0] + beside)
        used = n * bytes_.layer_state[0] + bytes_.everywhere[0]
        used = used + held[stage] * ((n - r) * bytes_.stored[0] + r * bytes_.checkpoint[0])
        used = used + (r > 0) * (bytes_.working[0] - (bytes_.logits_released[0] if stage == pp - 1 else 0.0))
        used = used + (bytes_.first[0] + held[stage] * bytes_.embedding_activation[0] if stage == 0 else 0.0)
        used = used + (bytes_.last[0] if stage == pp - 1 else 0.0)
        usable = parts[group].group.accelerator.usable_memory
        fits &= used <= (usable - parts[group].stack.allocator.reserved) / (
            1 + slack(parts[group].stack, int(rows[group].tp[0]))
        )
    if not fits.any():
        return math.inf
    table = np.array(times)
    slowest, total = table.max(axis=0), table.sum(axis=0)
    pipeline = m * slowest + (total - slowest) / vpp
    nodes = sum(one.gpus / one.group.gpus_per_node for one in parts)
    stretch = 1 + parts[0].stack.calibrated.straggler * math.sqrt(2 * math.log(max(nodes, 1)))
    return float(np.where(fits, pipeline, math.inf).min() * stretch + once(mixed, rows, seconds, order))


def once(mixed, rows, seconds, order):
    """Seconds once per iteration: the slowest group's, the tied embedding's, the host's."""
    parts, own = mixed.scenarios, []
    for row, one, price in zip(rows, parts, seconds, strict=True):
        stages = [
            part.gpus // int(other.tp[0] * other.cp[0] * other.dp[0]) for part, other in zip(parts, rows, strict=True)
        ]
        alike = sum(n * price.layer[0] / other.layer[0] for n, other in zip(stages, seconds, strict=True))
        depth = min(max(int(np.rint(alike)), 2), max(one.model.num_layers, 2))
        even = replace(row, pp=np.array([depth]))
        step = row_seconds(even, one)
        own.append(step.data_parallel[0] - tied_embedding_seconds(even, one)[0] + step.optimizer[0])
    ends = order[0], order[-1]
    sides = zip(ends, mixed.crossing(*ends), strict=True)
    tied = max(tied_embedding_seconds(rows[g], scenario)[0] for g, scenario in sides)
    return max(own) + tied + max(price.overhead[0] for price in seconds)


def brute_force(mixed, *, one_width=True):
    """The least iteration over everything; infinite where nothing fits."""
    found = (best_of_row(mixed, *row) for row in every_row(mixed, one_width=one_width))
    return min(found, default=math.inf)
