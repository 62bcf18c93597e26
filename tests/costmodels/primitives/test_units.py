"""Formulas fed with quantities that carry units: what comes out must carry the unit that is documented."""

import typing
from types import SimpleNamespace

import numpy as np
import pint
import pytest

from costmodels.layout.placement import group_of
from costmodels.pipeline import bubbles
from costmodels.pipeline.schedules import pipeline_seconds
from costmodels.primitives import kernels, overlap, sizes
from costmodels.primitives.collectives import (
    all_reduce_seconds,
    all_to_all_seconds,
    gather_seconds,
    link_seconds,
    message_seconds,
    send_seconds,
)
from costmodels.primitives.host import cpu_adam_seconds, transfer_seconds
from costmodels.primitives.kernels import attention_seconds, matmul_seconds, stream_seconds
from costmodels.primitives.overlap import exposed
from costmodels.strategy import strategies
from costmodels.training import training
from costmodels.training.goodput import best_interval, effective_share, expected_wall
from tests.each import each

UNITS = pint.UnitRegistry(None)
for name in ("byte", "second", "dollar", "joule"):
    UNITS.define(f"{name} = [{name}]")
UNITS.define("watt = joule / second")

BYTES = UNITS.byte
SECONDS = UNITS.second
PER_SECOND = 1 / UNITS.second
BANDWIDTH = UNITS.byte / UNITS.second
COUNTS = np.array([512.0, 4096.0, 3.0])


def carries(quantity, unit):
    assert isinstance(quantity, UNITS.Quantity), "the unit got lost"
    assert quantity.dimensionality == (1.0 * unit).dimensionality
    assert np.all(quantity.magnitude > 0)


@pytest.fixture(name="fit")
def fixture_fit():
    """Kernel constants with units; shares and half sizes are counts."""
    return SimpleNamespace(
        k_half=100.0,
        area_half=1e5,
        efficiency=0.8,
        sustained=0.9,
        memory_efficiency=0.7 * UNITS.byte / UNITS.byte,
        word=2.0 * BYTES,
        overhead=3e-6 * SECONDS,
        occupancy=0.5,
        sequence_half=200.0,
        backward_efficiency_ratio=0.8,
    )


@pytest.fixture(name="word", autouse=True)
def fixture_word(monkeypatch):
    """Two bytes an element: the one constant of the kernel formulas that has a unit."""
    monkeypatch.setattr("costmodels.primitives.kernels.WORD", 2.0 * BYTES)


def test_matrix_products_take_seconds(fit):
    known = {"m": COUNTS, "n": COUNTS, "k": COUNTS[::-1], "fit": fit}
    carries(matmul_seconds(**known, peak=1e15 * PER_SECOND, bandwidth=1e12 * BANDWIDTH), SECONDS)


@pytest.mark.parametrize("backward", [False, True])
def test_attention_takes_seconds(backward, fit):
    known = {"flops": COUNTS * 1e9, "span": COUNTS, "rows": COUNTS, "units": 132.0}
    carries(attention_seconds(**known, fit=fit, peak=1e15 * PER_SECOND, backward=backward), SECONDS)


def test_a_pass_over_memory_takes_seconds():
    carries(stream_seconds(traffic=COUNTS * BYTES, share=0.8, bandwidth=1e12 * BANDWIDTH), SECONDS)


def test_a_step_on_the_host_and_its_transfers_take_seconds(monkeypatch):
    monkeypatch.setattr("costmodels.primitives.host.WORD", 2.0 * BYTES)
    step = cpu_adam_seconds(parameters=COUNTS, word=12.0 * BYTES, gradient=4.0 * BYTES, bandwidth=1e11 * BANDWIDTH)
    carries(step, SECONDS)
    carries(transfer_seconds(COUNTS * BYTES, 1e10 * BANDWIDTH), SECONDS)


@pytest.mark.parametrize("hidden", [True, False])
def test_what_stays_exposed_is_seconds(hidden):
    carries(
        exposed(
            COUNTS * SECONDS,
            COUNTS * SECONDS,
            np.full(len(COUNTS), 0.05),
            slow=np.full(len(COUNTS), 0.3),
            hidden=hidden,
        ),
        SECONDS,
    )


def test_a_message_and_a_link_take_seconds():
    size, rate = COUNTS * 1e6 * BYTES, 1e10 * BANDWIDTH
    carries(message_seconds(size, latency=1e-6 * SECONDS, rate=rate), SECONDS)
    carries(link_seconds(size, rate=rate, saturation=1e6 * BYTES), SECONDS)


WORDS = 2.0 * BYTES
BYTE_FORMULAS = {
    "layer_activation_bytes": {
        "tokens": COUNTS,
        "region": COUNTS / 2,
        "tensor_ranks": 2,
        "gathered": WORDS,
        "whole": WORDS,
        "split": WORDS,
    },
    "checkpoint_bytes": {"tokens": COUNTS, "hidden_size": 64, "word": WORDS},
    "optimizer_traffic": {"updated": COUNTS, "step": 14.0 * BYTES, "held": COUNTS, "gradient": 4.0 * BYTES},
    "key_value_bytes": {"tokens": COUNTS, "heads": 8, "key_width": 64, "value_width": 32, "word": WORDS},
    "dispatched_bytes": {"copies": COUNTS, "hidden_size": 64, "word": WORDS, "extra": 4.0 * BYTES},
    "sharded_bytes": {"whole": COUNTS * BYTES, "shards": 4, "sharded": np.array([True, False, True])},
}
"""Formulas of ``primitives.sizes`` that return bytes, with arguments that carry units."""


@each("name", BYTE_FORMULAS)
def test_sizes_are_bytes(name):
    carries(getattr(sizes, name)(**BYTE_FORMULAS[name]), BYTES)


def test_every_size_but_a_count_of_places_is_proved():
    made_here = {name for name, item in vars(sizes).items() if getattr(item, "__module__", "") == sizes.__name__}
    assert made_here - {"expert_places"} == set(BYTE_FORMULAS)


OVERLAPS = {
    "slowdown": {"hidden": COUNTS * SECONDS, "slow": 0.3},
    "exposed": {"seconds": 2 * COUNTS * SECONDS, "window": COUNTS * SECONDS, "share": 0.1, "slow": 0.3, "hidden": True},
    "prefetched": {
        "seconds": 2 * COUNTS * SECONDS,
        "window": COUNTS * SECONDS,
        "slow": 0.3,
        "hidden": np.array([True, False, True]),
    },
    "ring_attention_exposed": {"ranks": 4, "send": COUNTS * SECONDS, "attention": COUNTS * SECONDS, "floor": 0.1},
    "pipelined_exposed": {"moving": 2 * COUNTS * SECONDS, "product": COUNTS * SECONDS, "ranks": 4.0},
    "shared_units": {"moving": COUNTS * SECONDS, "product": COUNTS * SECONDS, "taken": 0.2},
}


@each("name", OVERLAPS)
def test_what_overlap_leaves_is_seconds(name):
    quantities = OVERLAPS[name]
    if name in {"slowdown", "ring_attention_exposed"}:
        carries(getattr(overlap, name)(**quantities), SECONDS)
        return
    by_thousand = {k: 1e3 * v if isinstance(v, UNITS.Quantity) else v for k, v in quantities.items()}
    plain, other = (
        getattr(overlap, name)(**{k: v.magnitude if isinstance(v, UNITS.Quantity) else v for k, v in given.items()})
        for given in (quantities, by_thousand)
    )
    assert other == pytest.approx(1e3 * plain), "a bare zero among seconds: checked by homogeneity"


def test_every_overlap_is_proved():
    made_here = {name for name, item in vars(overlap).items() if getattr(item, "__module__", "") == overlap.__name__}
    assert made_here == set(OVERLAPS)


def test_what_attention_and_muon_multiply_are_counts():
    known = {"key_width": 4, "value_width": 2}
    assert kernels.attention_flops(pairs=6.0, **known) == 3 * kernels.attention_flops(pairs=2.0, **known) == 72.0
    assert kernels.newton_schulz_flops(20.0, 60.0) == pytest.approx(8 * kernels.newton_schulz_flops(10.0, 30.0))
    for pairs in (kernels.causal_pairs, lambda s, **known: kernels.blocked_pairs(s, s / 8, **known)):
        for chunked in (False, True):
            assert pairs(4e3, window=1e3, chunked=chunked) == pytest.approx(4 * pairs(2e3, window=5e2, chunked=chunked))


BUBBLES = [
    item
    for name, item in vars(bubbles).items()
    if callable(item) and getattr(item, "__module__", "") == bubbles.__name__ and not name.startswith("_")
]


@each("idle", BUBBLES)
def test_bubbles_are_as_many_seconds_as_passes(idle):
    """They turn to arrays, which strips units: thrice the seconds of all passes are thrice those that idle."""
    once = idle(8, 32, 2, 1.0, 1.3, 0.9)
    assert idle(8, 32, 2, 3.0, 3.9, 2.7) == pytest.approx(3.0 * once)


def test_intervals_between_checkpoints_are_seconds():
    """Lambert's function takes plain numbers: minutes in, minutes out."""
    in_seconds, in_minutes = best_interval(np.array([60.0]), 1 / 86400.0), best_interval(np.array([1.0]), 1 / 1440.0)
    assert in_seconds == pytest.approx(60.0 * in_minutes)
    wall = expected_wall(COUNTS, stall=COUNTS / 60, downtime=900.0, rate=1 / 86400.0)
    assert wall == pytest.approx(60 * expected_wall(COUNTS / 60, stall=COUNTS / 3600, downtime=15.0, rate=1 / 1440.0))
    share = effective_share(failures=3, lost=COUNTS * SECONDS, wall=1e6 * SECONDS)
    assert share.dimensionless


def test_a_pipeline_takes_seconds_only_if_both_its_terms_do():
    """``pipeline_seconds`` strips units by turning to arrays, so its formula is checked by homogeneity."""
    known = {"micro_batches": 8, "vpp": 2}
    once = pipeline_seconds(slowest=3.0, total=10.0, **known)
    assert pipeline_seconds(slowest=3e3, total=10e3, **known) == pytest.approx(1e3 * once)


def a_link():
    return SimpleNamespace(
        bandwidth=1e11 * BANDWIDTH,
        efficiency=0.8,
        saturation=1e6 * BYTES,
        group_penalty=0.1,
        mesh=4,
        axes=0,
        base_latency=1e-5 * SECONDS,
        step_latency=1e-6 * SECONDS,
        all_reduce_gain=1.3,
        all_to_all_gain=1.2,
        group_bandwidth=2e11 * BANDWIDTH,
        lone_bandwidth=5e10 * BANDWIDTH,
        gain_ranks=4,
        point_to_point=0.8,
        slowdown=0.3,
    )


def a_network(link):
    return (
        SimpleNamespace(domain=4, link=link, oversubscription=1.0),
        SimpleNamespace(domain=0, link=link, oversubscription=2.0),
    )


SYSTEMS = {"byte": (1e3, 1.0), "second": (1.0, 1e-3)}
"""How the number of a byte, and of a second, grows when the system of units changes."""


@pytest.mark.parametrize(("bytes_by", "seconds_by"), SYSTEMS.values(), ids=SYSTEMS)
@pytest.mark.parametrize("operation", [gather_seconds, all_reduce_seconds, all_to_all_seconds])
def test_collectives_take_as_long_in_any_system_of_units(operation, bytes_by, seconds_by):
    """Their accumulators start from bare zeros, which pint refuses; a change of units is the same proof."""
    group, size = group_of(strategies(tp=[2, 4, 16, 64]), "tp"), np.array([1e3, 1e6, 1e8, 1e9])
    plain = operation(size, group, a_network(rescaled(1.0, 1.0)))
    other = operation(size * bytes_by, group, a_network(rescaled(bytes_by, seconds_by)))
    assert other == pytest.approx(plain * seconds_by)


@pytest.mark.parametrize(("bytes_by", "seconds_by"), SYSTEMS.values(), ids=SYSTEMS)
def test_sends_take_as_long_in_any_system_of_units(bytes_by, seconds_by):
    size, step, reach = np.array([1e3, 1e9]), np.array([1.0, 4.0]), np.array([2.0, 8.0])
    plain = send_seconds(size, step, reach, a_network(rescaled(1.0, 1.0)))
    other = send_seconds(size * bytes_by, step, reach, a_network(rescaled(bytes_by, seconds_by)))
    assert other == pytest.approx(plain * seconds_by)


def rescaled(bytes_by, seconds_by):
    """The link's numbers in another system of units, from the units that its quantities carry."""
    names = {"byte": bytes_by, "second": seconds_by}

    def number(value):
        if not isinstance(value, UNITS.Quantity):
            return value
        factor = 1.0
        for name, power in value.unit_items():
            factor *= names[name] ** power
        return value.magnitude * factor

    return SimpleNamespace(**{name: number(value) for name, value in vars(a_link()).items()})


def sample(annotation):
    """A quantity of the unit that an annotation of ``hardware.units`` names."""
    return 3.0 * UNITS.parse_units(typing.get_args(annotation)[1])


@pytest.mark.parametrize("formula", [training.rent, training.energy, training.iterations])
def test_annotated_formulas_return_the_unit_of_their_annotation(formula):
    hints = typing.get_type_hints(formula, include_extras=True)
    wanted = hints.pop("return")
    result = formula(**{name: sample(hint) for name, hint in hints.items()})
    if formula is training.iterations:
        assert isinstance(result, int)
    else:
        unit = UNITS.joule if wanted is float else typing.get_args(wanted)[1]
        carries(result, UNITS.parse_units(str(unit)))


def test_a_formula_that_adds_bytes_to_seconds_is_found():
    fit = SimpleNamespace(occupancy=0.5, sequence_half=2.0, efficiency=0.8, overhead=3e-6 * BYTES)
    known = {"flops": COUNTS, "span": COUNTS, "rows": COUNTS, "peak": 1e12 * PER_SECOND, "units": 132.0}
    with pytest.raises(pint.DimensionalityError):
        attention_seconds(**known, fit=fit)
