"""The best strategy of a small instance, found by trying everything: plain loops, no bound, no solver.

Rules are written down again here, and strategies that the planner calls dominated are tried all the same.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from costmodels.iteration import row_seconds
from costmodels.layer.recompute_modules import module_mask
from costmodels.layout.split import Assignment
from costmodels.memory.limits import late_gradients
from costmodels.memory.rows import row_bytes
from costmodels.names import CP_KINDS, RANK_ORDERS, SCHEDULE_NAMES, Recompute
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.pricing import effective_recompute, price_of_terms
from costmodels.strategy import strategies

STRAIGHT = ("gpipe", "1f1b", "zb-1p", "zb-2p", "dualpipe")
IN_LOOPS = ("interleaved-1f1b", "breadth-first", "interleaved-groups", "interleaved-zb")
IN_A_V = ("zb-v", "v-half", "v-min", "dualpipe-v")


@dataclass(frozen=True)
class Best:
    iteration: float
    row: dict
    layers: tuple
    recomputed: tuple


def factors_of(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def every_row(scenario, *, any_degree=False, keep=lambda _row: True, together=(1,), most=None):
    """All valid strategies but for memory, as rows; None where there are none.

    ``together`` are the numbers of layers that may be recomputed from one stored input. A caller that has no use for
    more than ``most`` rows gets one more than these, no matter how many there are.
    """
    kept = (row for row in _recomputing(scenario, any_degree, together) if keep(row))
    rows = list(itertools.islice(kept, None if most is None else most + 1))
    return strategies(**{axis: [row[axis] for row in rows] for axis in rows[0]}) if rows else None


def _recomputing(scenario, any_degree, together):
    """Every row with as many layers recomputed together as divide its chunks, where all are recomputed."""
    for row in _combinations(scenario, any_degree):
        apart = SCHEDULE_NAMES[row["schedule"]] in (*IN_A_V, "dualpipe")
        whole = row["recompute"] == Recompute.FULL and not apart
        for number in together:
            each = row["vpp"] * number * (1 if scenario.stack.supports.uneven_stages else row["pp"])
            least = row["pp"] * row["vpp"] * number
            fits = scenario.model.num_layers % each == 0 and least <= scenario.model.num_layers
            if number == 1 or (whole and fits):
                yield row | {"recompute_num_layers": number}


def _combinations(scenario, any_degree):
    for tp, cp, pp, dp in itertools.product(factors_of(scenario.gpus), repeat=4):
        if tp * cp * pp * dp != scenario.gpus or not _layout_works(scenario, tp=tp, cp=cp, pp=pp, dp=dp):
            continue
        for micro in factors_of(scenario.global_batch_size // dp):
            for vpp, schedule in _schedules(scenario, pp, dp, micro):
                places = (0, 1) if pp > 1 and "spread" in scenario.stack.supports.vocabulary else (0,)
                choices = itertools.product(
                    (0, 1), recomputations(scenario), _orders(scenario), context_kinds(scenario, tp, cp), places
                )
                early = _early(scenario, schedule, pp)
                for split, (again, modules), order, kind, place in choices:
                    if ends_for(scenario, vpp) and (place or again == Recompute.PARTIAL):
                        continue
                    if split and (
                        tp == 1 or not scenario.stack.supports.sequence_parallel or scenario.seq_length % (cp * tp)
                    ):
                        continue
                    for zero, degree in _shardings(scenario, tp=tp, early=early, ranks=dp * cp, any_degree=any_degree):
                        if order == 2 and not _takes_part(degree, cp, dp):
                            continue
                        yield {
                            "tp": tp,
                            "cp": cp,
                            "cp_kind": kind,
                            "pp": pp,
                            "dp": dp,
                            "vpp": vpp,
                            "schedule": schedule,
                            "micro_batch_size": micro,
                            "num_microbatches": scenario.global_batch_size // dp // micro,
                            "sequence_parallel": split,
                            "recompute": int(again),
                            "recompute_modules": modules,
                            "rank_order": order,
                            "vocabulary": place,
                            "zero_stage": zero,
                            "sharding_degree": degree,
                        }


def recomputations(scenario):
    """Kinds of recomputation with the modules that they name: cheap outputs, and these with the experts."""
    model, known = scenario.model, scenario.stack.supports.recompute_modules
    some = {"layernorm"} | ({"moe_act"} if model.moe else set()) | ({"mla_up_proj"} if model.mla else set())
    whole = some | ({"moe"} if model.moe else set())
    named = {module_mask(names & set(known)) for names in (some, whole)} - {0}
    named = named if scenario.stack.switches.adapters is None else ()
    return [(again, 0) for again in Recompute] + [(Recompute.SELECTIVE, modules) for modules in sorted(named)]


def _layout_works(scenario, *, tp, cp, pp, dp):
    model = scenario.model
    widths = (model.num_heads, model.hidden_size, model.ffn_hidden_size)
    groups = model.num_query_groups
    return (
        all(width % tp == 0 for width in widths)
        and (groups % tp == 0 or tp % groups == 0)
        and pp <= model.num_layers
        and (cp == 1 or scenario.seq_length % (2 * cp) == 0)
        and scenario.global_batch_size % dp == 0
    )


def _orders(scenario):
    return [RANK_ORDERS.index(order) for order in scenario.stack.supports.rank_orders]


def _takes_part(degree, cp, dp):
    """Whether some but not all data ranks share their states; else this order is one of the others."""
    beyond = degree // math.gcd(degree, cp)
    return 1 < math.gcd(beyond, dp) < dp


def context_kinds(scenario, tp, cp):
    """How context ranks may exchange, those that repeat another kind included but for a mixture that is none."""
    model, stack = scenario.model, scenario.stack
    if cp == 1:
        return [0]
    kinds = []
    for kind in stack.supports.cp_kinds:
        if kind != "a2a" and scenario.rates.attention is None:
            continue
        if kind == "a2a" and not _heads_split(model, tp * cp, repeats=stack.exchange.repeats_key_values):
            continue
        if kind == "a2a+p2p" and not 1 < _near(scenario, tp, cp) < cp:
            continue
        if "p2p" in kind and model.sliding_window is not None:
            continue
        kinds.append(CP_KINDS.index(kind))
    return kinds


def _heads_split(model, ranks, *, repeats):
    groups = model.num_query_groups
    return model.num_heads % ranks == 0 and (groups % ranks == 0 or (repeats and ranks % groups == 0))


def _near(scenario, tp, cp):
    """The most context ranks that share a node and divide the heads, and the query groups, of a tensor rank."""
    model, node = scenario.model, scenario.group.tiers[0].domain or scenario.gpus
    heads, groups = max(model.num_heads // tp, 1), max(model.num_query_groups // tp, 1)
    room = max(node // tp, 1)
    return max(
        n
        for n in factors_of(cp)
        if room % n == 0 and heads % n == 0 and (scenario.stack.exchange.repeats_key_values or groups % n == 0)
    )


def _schedules(scenario, pp, dp, micro):
    layers, stack = scenario.model.num_layers, scenario.stack
    for vpp in range(1, (layers + 2) // pp + 1):
        missing = ends_for(scenario, vpp)
        places = layers + missing
        if places % vpp or pp * vpp > places or (not stack.supports.uneven_stages and places % (pp * vpp)):
            continue
        batches = scenario.global_batch_size // dp // micro
        names = ("none",) if pp == 1 else IN_LOOPS if vpp > 1 else STRAIGHT
        for name in (*names, *(IN_A_V if vpp == 2 and pp > 1 and not missing else ())):
            split = SCHEDULES[name].splits_backward and stack.switches.adapters
            if name in stack.supports.schedules and SCHEDULES[name].allowed(pp, batches, vpp) and not split:
                yield vpp, SCHEDULE_NAMES.index(name)


def ends_for(scenario, vpp):
    """Layers that the ends of the model stand for: the head is the first to, then the embedding."""
    missing = next(n for n in itertools.count() if (scenario.model.num_layers + n) % vpp == 0)
    return missing if scenario.stack.supports.ends_as_layers and missing <= 2 else 0


def _early(scenario, schedule, pp):
    """ZeRO stages that may share gradients in every micro-batch."""
    if pp == 1 or SCHEDULE_NAMES[schedule] == "breadth-first":
        return (2, 3)
    return (3,) if scenario.stack.supports.zero3_in_pipelines and SCHEDULE_NAMES[schedule] in {"1f1b", "gpipe"} else ()


def _shardings(scenario, *, tp, early, ranks, any_degree):
    group = scenario.group
    inner = group.tiers[0].domain or group.gpus_per_node
    spans = {group.gpus_per_node, inner, 4 * inner, *(tier.domain for tier in group.tiers)}
    for zero in scenario.stack.supports.zero_stages:
        parts = {scenario.gpus // 2, scenario.gpus // 4} if zero >= 2 else set()
        near = {math.gcd(ranks, max(span // tp, 1)) for span in spans | parts if 1 < span < scenario.gpus}
        degrees = factors_of(ranks) if any_degree else {ranks, *near}
        if zero == 0:
            yield 0, 1
        elif zero == 1 or zero in early:
            yield from ((zero, degree) for degree in degrees if degree > 1)


@cache
def every_split(num_layers, pp, vpp, *, uneven, recompute, bare, missing=0):
    """All (layers, recomputed) of all stages, arrays (splits, stages): the chunks of a stage are equal.

    ``vpp`` counts the layers that cannot be told apart: one of every chunk, or as many as are recomputed together.
    Where ``missing`` layers are, the head stands for one on the last stage, the embedding for one on the first.
    """
    if missing:
        short = [int(missing == 2)] + [0] * (pp - 2) + [1]
        places, _ = every_split(num_layers + missing, pp, vpp, uneven=uneven, recompute=Recompute.NONE, bare=bare)
        layers = places - np.array(short)
        return layers, layers if recompute == Recompute.FULL else np.zeros_like(layers)
    splits = []
    least = [0 if bare and uneven and stage in {0, pp - 1} else vpp for stage in range(pp)]
    for layers in itertools.product(*(range(fewest, num_layers + 1, vpp) for fewest in least)):
        if sum(layers) != num_layers or (not uneven and len(set(layers)) > 1):
            continue
        again = [layers if recompute == Recompute.FULL else (0,) * pp]
        if recompute == Recompute.PARTIAL:
            again = itertools.product(*(range(0, n + 1, vpp) for n in layers))
        splits += [(layers, r) for r in again]
    shape = (len(splits), pp)
    return tuple(np.array([split[k] for split in splits], dtype=np.int64).reshape(shape) for k in (0, 1))


def splits_of(row, scenario):
    """Every assignment that the row allows."""
    uneven, recompute = scenario.stack.supports.uneven_stages, row["recompute"]
    bare = scenario.stack.supports.empty_ends and row["pp"] > 2 and row["vpp"] == 1 and not row["vocabulary"]
    bare = bare and SCHEDULE_NAMES[row["schedule"]] != "dualpipe"
    sizes = scenario.model.num_layers, row["pp"], row["vpp"] * row["recompute_num_layers"]
    missing = ends_for(scenario, row["vpp"])
    return every_split(*sizes, uneven=uneven, recompute=recompute, bare=bare, missing=missing)


def seconds_and_bytes(rows, scenario, index, seconds, memory):
    """Iteration seconds and the worst stage's allocated bytes of every split of one row, arrays (splits,)."""
    row = rows.row(index)
    layers, again = splits_of(row, scenario)
    name, first, last = SCHEDULE_NAMES[row["schedule"]], np.zeros(row["pp"]), np.zeros(row["pp"])
    first[0], last[0 if name in IN_A_V else -1] = 1.0, 1.0
    held_times = 2 if name == "dualpipe" else 1
    if held_times == 2:  # a stage holds a piece of each way, and half of the micro-batches pass it
        layers, again, first, last = ((x + x[..., ::-1]) / 2 for x in (layers, again, first, last))
    extras = (
        first * seconds.embedding[index]
        + last * seconds.head[index]
        + seconds.host[index]
        + seconds.vocabulary_spread[index]
    )
    extras = extras + seconds.send[index] * messages(row) / (4 * row["vpp"])
    stages = layers * seconds.layer[index] + again * seconds.recompute[index] + extras
    slowest, total = stages.max(axis=1), stages.sum(axis=1)
    pipeline = row["num_microbatches"] * slowest + (total - slowest) * seconds.bubble[index]
    once = seconds.data_parallel[index] + seconds.optimizer[index] + seconds.overhead[index]
    once = once + seconds.offload[index]
    schedule = SCHEDULES[SCHEDULE_NAMES[row["schedule"]]]
    held = schedule.in_flight(row["pp"], row["num_microbatches"], row["vpp"], np.arange(row["pp"]))
    held = held + scenario.stack.pipeline.vocabulary_in_flight * row["vocabulary"]
    parameters = held_times * (
        layers * memory.layer_parameters[index]
        + first * memory.embedding_parameters[index]
        + last * memory.head_parameters[index]
    )
    state = memory.state.weights[index] + memory.state.gradients[index] + memory.state.optimizer[index]
    kept = (layers - again) * memory.stored[index] + again * memory.checkpoint[index]
    edges = first * memory.embedding_parameters[index] + last * memory.head_parameters[index]
    used = parameters * state + held_times * edges * (
        memory.end_optimizer_extra[index] + memory.end_weights_extra[index]
    )
    used = used + held * (kept + first * memory.embedding_activation[index])
    released = memory.logits_released[index] * last  # recomputed when the logits are gone
    used = used + (again > 0) * (memory.working[index] - released) + memory.everywhere[index]
    used = used + held_times * (last * memory.logits[index] + first * memory.first_peak[index])
    pipeline = pipeline * (1 + seconds.straggler[index])
    return (pipeline + once) * seconds.upkeep[index], used.max(axis=1)


def messages(row):
    """Activations and gradients that a micro-batch has to and from every stage, counted along its way."""
    p, v, name = row["pp"], row["vpp"], SCHEDULE_NAMES[row["schedule"]]
    down = list(range(p))
    way = down + down[::-1] if name in IN_A_V else down * v
    counts = np.zeros(p)
    for one, other in itertools.pairwise(way):
        if one != other:
            counts[[one, other]] += 2  # forward and back
    return counts


def slack(stack, tp):
    """Fragments over what is allocated."""
    return (
        stack.calibrated.tensor_fragmentation
        if tp > 1 and stack.calibrated.tensor_fragmentation is not None
        else stack.allocator.fragmentation
    )


def brute_force(rows, scenario):
    """The fastest row and split that fit, or None."""
    if rows is None:
        return None
    usable, late = scenario.group.accelerator.usable_memory, late_gradients(rows, scenario)
    seconds, memory = row_seconds(rows, scenario), row_bytes(rows, scenario)
    best = None
    for index in range(len(rows)):
        iteration, used = seconds_and_bytes(rows, scenario, index, seconds, memory)
        limit = (usable - scenario.stack.allocator.reserved) / (1.0 + slack(scenario.stack, rows.row(index)["tp"]))
        iteration = np.where(used <= limit + late[index], iteration, math.inf)
        place = int(np.argmin(iteration))
        if iteration[place] < (best.iteration if best else math.inf):
            layers, again = splits_of(rows.row(index), scenario)
            split = (tuple(layers[place].tolist()), tuple(again[place].tolist()))
            best = Best(float(iteration[place]), rows.row(index), *split)
    return best


def brute_force_by_price_strategy(rows, scenario):
    """The least iteration, every split of every row priced as it runs; infinite where nothing fits."""
    limit, best = scenario.group.accelerator.usable_memory, math.inf
    for index in range(0 if rows is None else len(rows)):
        given = rows.take(np.array([index]))
        price = cache(lambda kind, row=given: _priced_as(row, kind, scenario))
        for layers, again in zip(*splits_of(rows.row(index), scenario), strict=True):
            split = Assignment(layers, again)
            one, seconds, memory = price(int(effective_recompute(given, split).recompute[0]))
            priced = price_of_terms(one, seconds, memory, scenario, split)
            if priced.footprint.total.max() <= limit:
                best = min(best, priced.iteration)
    return best


def _priced_as(row, kind, scenario):
    """A single row with another kind of recomputation, its seconds and its bytes."""
    one = replace(row, recompute=np.array([kind]))
    return one, row_seconds(one, scenario), row_bytes(one, scenario)
