"""Formulas fed with quantities that carry units: what comes out must carry the unit that is documented."""

import typing
from types import SimpleNamespace

import numpy as np
import pint
import pytest

from costmodels.layout.placement import group_of
from costmodels.pipeline.schedules import pipeline_seconds
from costmodels.primitives.collectives import all_reduce_seconds, all_to_all_seconds, gather_seconds, send_seconds
from costmodels.primitives.kernels import attention_backward_seconds, attention_seconds, matmul_seconds, stream_seconds
from costmodels.step.offload import cpu_adam_seconds, transfer_seconds
from costmodels.step.traffic import exposed
from costmodels.strategy import strategies
from costmodels.training import training

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


@pytest.mark.parametrize("passes", [attention_seconds, attention_backward_seconds])
def test_attention_takes_seconds(passes, fit):
    known = {"flops": COUNTS * 1e9, "span": COUNTS, "rows": COUNTS, "units": 132.0}
    carries(passes(**known, fit=fit, peak=1e15 * PER_SECOND), SECONDS)


def test_a_pass_over_memory_takes_seconds():
    carries(stream_seconds(traffic=COUNTS * BYTES, share=0.8, bandwidth=1e12 * BANDWIDTH), SECONDS)


def test_a_step_on_the_host_and_its_transfers_take_seconds(monkeypatch):
    monkeypatch.setattr("costmodels.step.offload.WORD", 2.0 * BYTES)
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
