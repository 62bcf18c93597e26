"""Which layer is of which kind, what stages hold of each, and that no stage that could be the worst is left out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.iteration import row_seconds
from costmodels.layout.layers_by_kind import kind_slices, kinds_held, leading_stages, lightest_runs, stage_layers
from costmodels.layout.split import Assignment, even_stages
from costmodels.layout.stage_contents import copies, in_flight, of_both_ways
from costmodels.layout.stage_contents import folded as turned
from costmodels.memory.rows import row_bytes
from costmodels.model import catalogue
from costmodels.model.layer_kinds import DENSE, EXPERTS, Depth, Kind, depth_of, layer_kinds
from costmodels.names import SCHEDULE_NAMES
from costmodels.pricing import stage_seconds
from costmodels.strategy import strategies
from tests.costmodels.priced import check_peaks, check_prices, quotes_that_add_up
from tests.drawn import drawn_depths, drawn_scenarios
from tests.each import each
from tests.scenarios import random_rows, toy_hybrid, toy_model, toy_scenario

LOCAL = Kind("local", "dense")
MANY = settings(max_examples=50, deadline=None)


def depth(kinds):
    names = [Kind("global", "dense"), Kind("mamba", "none"), Kind("none", "experts")]
    return Depth(tuple(names[: max(kinds) + 1]), np.array(kinds, dtype=np.int64))


def test_leading_layers_of_deepseek_are_dense_and_every_second_of_maverick_has_experts():
    assert layer_kinds(catalogue.model("deepseek-v3")) == (DENSE,) * 3 + (EXPERTS,) * 58
    kinds = layer_kinds(catalogue.model("llama4-maverick"), 8192)
    assert kinds == (DENSE, EXPERTS) * 24


def test_every_sixth_layer_of_gemma_3_attends_globally_unless_the_window_holds_everything():
    model = catalogue.model("gemma3-27b")
    assert layer_kinds(model, 8192)[:7] == (LOCAL,) * 5 + (DENSE, LOCAL)
    assert depth_of(model, 1024).uniform


def test_letters_of_a_pattern_are_parts_alone():
    kinds = layer_kinds(toy_hybrid("M*-E"))
    assert [(kind.mixer, kind.ffn, kind.parts) for kind in kinds] == [
        ("mamba", "none", 1),
        ("global", "none", 1),
        ("none", "dense", 1),
        ("none", "experts", 1),
    ]


def test_a_slice_has_one_layer_of_every_chunk():
    chain = depth([0, 1, 2, 0, 0, 1])
    assert kind_slices(chain, 1).tolist() == np.eye(3, dtype=int)[[0, 1, 2, 0, 0, 1]].tolist()
    assert kind_slices(chain, 2).tolist() == [[2, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert kind_slices(chain, 2, folded=True).tolist() == [[1, 1, 0], [1, 1, 0], [1, 0, 1]]
    assert kind_slices(chain, 5).shape == (6, 3)  # six layers make no five equal chunks, whatever the ends stand for


@MANY
@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(1, 4), st.booleans(), st.randoms())
def test_stages_hold_the_layers_that_interleaving_gives_them(kinds, vpp, folded, chance):
    chain, count = depth(kinds), len(kinds)
    vpp = vpp if count % vpp == 0 else 1
    pp = chance.randint(1, count // vpp)
    cuts = sorted(chance.sample(range(1, count // vpp), pp - 1))
    per_chunk = np.diff([0, *cuts, count // vpp])
    folded = folded and vpp == 2
    held = kinds_held(chain, per_chunk * vpp, vpp, folded=folded)
    for stage in range(pp):
        mine = []
        for chunk in range(vpp):
            start = chunk * (count // vpp) + int(per_chunk[:stage].sum())
            if folded and chunk == 1:
                start = count - int(per_chunk[: stage + 1].sum())
            mine += kinds[start : start + per_chunk[stage]]
        assert held[stage].tolist() == [mine.count(kind) for kind in range(len(chain.kinds))]
    assert held.sum() == count


def test_recomputed_layers_are_a_stage_s_first():
    chain = depth([1, 1, 0, 2, 2, 0])
    held = kinds_held(chain, np.array([4, 2]), 1, only=np.array([2, 1]))
    assert held.tolist() == [[0, 2, 0], [0, 0, 1]]


@MANY
@given(st.lists(st.integers(0, 2), min_size=2, max_size=16), st.integers(1, 8), st.integers(1, 2), st.integers(0, 9))
def test_the_worst_stage_is_among_those_that_are_looked_at(kinds, pp, vpp, seed):
    chain, chance = depth(kinds), np.random.default_rng(seed)
    pp = min(pp, len(kinds) // vpp) or 1
    held = kinds_held(chain, even_stages(len(kinds), pp, vpp), vpp)
    some = leading_stages(chain, pp, vpp, folded=False)
    assert (held[some.stage] == some.held).all()
    each, flights = chance.uniform(size=len(chain.kinds)), np.sort(chance.uniform(size=pp))[::-1]
    ends = chance.uniform(size=2)
    cost = flights * (held @ each)
    cost[0], cost[-1] = cost[0] + ends[0], cost[-1] + ends[1]
    assert cost[some.stage].max() == cost.max()


@MANY
@given(st.lists(st.integers(0, 2), min_size=1, max_size=14), st.integers(1, 6), st.integers(0, 9))
def test_no_split_has_a_slowest_stage_below_the_lightest_run(kinds, pp, seed):
    chain, chance = depth(kinds), np.random.default_rng(seed)
    pp = min(pp, len(kinds))
    each = chance.uniform(size=len(chain.kinds))
    cuts = np.sort(chance.choice(np.arange(1, len(kinds)), pp - 1, replace=False))
    held = kinds_held(chain, np.diff([0, *cuts, len(kinds)]), 1)
    least = (lightest_runs(chain, pp, 1, folded=False) @ each).min()
    assert least <= (held @ each).max() * (1 + 1e-12)


@each("name", SCHEDULE_NAMES)
def test_later_stages_never_hold_more_micro_batches(name):
    """Which the choice of stages to look at rests on."""
    pp, vpp = 8, 2 if name in ("interleaved-1f1b", "zb-v", "v-half", "v-min") else 1
    rows = strategies(pp=[pp] * pp, vpp=vpp, num_microbatches=32, schedule=SCHEDULE_NAMES.index(name))
    assert (np.diff(in_flight(rows, np.arange(pp))) <= 0).all()


@MANY
@given(drawn_scenarios(models=drawn_depths, layers=(2, 3, 4, 6, 8)), st.integers(0, 2**32 - 1))
def test_one_price_for_a_row_and_for_many_where_layers_differ(scenario, seed):
    rows = random_rows(scenario, 10, seed)
    check_prices(rows, scenario)
    check_peaks(rows, scenario)


@MANY
@given(drawn_scenarios(models=drawn_depths, layers=(2, 3, 4, 6, 8)), st.integers(0, 2**32 - 1))
def test_the_terms_of_any_split_add_up_where_layers_differ(scenario, seed):
    for one, split, _ in quotes_that_add_up(scenario, seed, 8):
        held = stage_layers(one, scenario.depth, split.layers, split.recomputed)[0].sum(axis=1)
        assert held == pytest.approx(of_both_ways(split.layers, float(copies(one)[0])), rel=1e-12)


def test_the_first_stage_of_leading_dense_layers_is_the_fast_one():
    model = catalogue.model("deepseek-v3").model_copy(update={"num_layers": 8, "seq_length": 1024})
    scenario = toy_scenario(model=model)
    one = strategies(pp=2, num_microbatches=4, schedule=SCHEDULE_NAMES.index("1f1b"))
    seconds = row_seconds(one, scenario)
    ((first, last),) = stage_seconds(one, seconds, [Assignment(np.array([4, 4]), np.zeros(2, np.int64))])
    dense, experts = (part.layer[0] for part in seconds.kinds.parts)
    assert dense < experts
    assert first == pytest.approx(3 * dense + experts + seconds.embedding[0] + seconds.send[0] / 2)
    assert last == pytest.approx(4 * experts + seconds.head[0] + seconds.send[0] / 2)


def test_layers_alike_are_priced_as_one_kind():
    assert row_seconds(strategies(), toy_scenario()).kinds is None
    assert row_bytes(strategies(), toy_scenario(model=toy_model(num_layers=3))).kinds is None


def test_only_schedules_that_turn_back_are_folded():
    rows = strategies(schedule=list(range(len(SCHEDULE_NAMES))))
    folded = [name for name, turns in zip(SCHEDULE_NAMES, turned(rows), strict=True) if turns]
    assert folded == ["zb-v", "v-half", "v-min", "dualpipe-v"]
