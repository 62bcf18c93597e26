"""What depends on few axes is priced once for their combinations, and is the same to the last bit."""

import numpy as np
import pytest

from costmodels import strategy
from costmodels.iteration import row_seconds
from costmodels.layout.parameters_per_rank import heaviest_experts
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import row_bytes
from costmodels.names import RANK_ORDERS, SCHEDULE_NAMES
from costmodels.pricing import price
from planner import PlanRequest
from planner.request.pins import parse_pins
from planner.request.resolve import resolve
from planner.space.lattice import build
from tests.planner.search.test_rows_alone import arrays

DRAWN = 1500
WIDE = {
    "schedule": ",".join(SCHEDULE_NAMES),
    "recompute": "none,selective,full",
    "sharding_degree": "1..",
    "offload": "any",
    "rank_order": ",".join(RANK_ORDERS),
}


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama3-8b", "stack": "torchtitan"},
        {"model": "llama3-8b", "optimizer": "muon", "cluster": "dgx-h100"},
        {"model": "mixtral-8x7b", "precision": "fp8", "cluster": "dgx-h100"},
        {"model": "nemotron-3-nano-30b-a3b"},
        {"model": "deepseek-v3"},
        {"model": "llama2-7b", "stack": "deepspeed"},
        {"model": "gpt-neox-20b", "stack": "gpt-neox"},
    ],
    ids=str,
)
def test_what_is_priced_once_for_few_axes_reads_no_others(asked, monkeypatch):
    rows, scenario = drawn(asked)
    monkeypatch.setattr(strategy, "FEW_ROWS", len(rows))
    alone = priced(rows, scenario)
    monkeypatch.setattr(strategy, "FEW_ROWS", 0)
    together = priced(rows.take(slice(None)), scenario)
    assert together.keys() == alone.keys()
    for name, values in alone.items():
        np.testing.assert_array_equal(together[name], values, err_msg=name)


def drawn(asked):
    """Strategies of many kinds, each twice, so that no axis tells them all apart."""
    scenario = resolve(PlanRequest(gpus=32, **asked)).scenario
    known = {name: value for name, value in WIDE.items() if name != "offload" or scenario.group.host_link}
    space = build(scenario, parse_pins(known))
    core, option = np.nonzero(space.allowed)
    chosen = np.tile(np.random.default_rng(0).choice(len(core), min(DRAWN, len(core)), replace=False), 2)
    return space.rows(core[chosen], option[chosen]), scenario


def priced(rows, scenario):
    seconds, memory = row_seconds(rows, scenario), row_bytes(rows, scenario)
    found = {f"seconds.{name}": values for name, values in arrays(seconds)}
    found |= {f"bytes.{name}": values for name, values in arrays(memory)}
    found["iteration"] = price(rows, scenario).iteration
    found["peak"] = even_peaks(rows, memory, scenario.model.num_layers)
    return found | {"limit": memory_limit(scenario, rows), "experts": heaviest_experts(rows, scenario)}
