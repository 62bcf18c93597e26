"""What happens once an iteration is priced once for rows that are alike there."""

import numpy as np
import pytest

from costmodels.iteration import row_seconds
from costmodels.layer.forward_backward import Passes
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.traffic import STEP_AXES, share_steps, step_traffic
from planner import PlanRequest
from planner.request.pins import parse_pins
from planner.request.resolve import resolve
from planner.space.lattice import build

DRAWN = 2000


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama3-8b", "pins": {"offload": "any"}},
        {"model": "mixtral-8x7b", "optimizer": "muon"},
        {"model": "nemotron-3-nano-30b-a3b"},
        {"model": "llama3-8b", "precision": "fp8", "cluster": "dgx-h100"},
    ],
    ids=str,
)
def test_rows_that_share_what_happens_once_are_priced_as_if_they_were_alone(asked):
    request = PlanRequest(gpus=32, **asked)
    scenario = resolve(request).scenario
    space = build(scenario, parse_pins(request.pins))
    core, option = np.nonzero(space.allowed)
    drawn = np.random.default_rng(0).choice(len(core), DRAWN)
    alone, together = (space.rows(core[drawn], option[drawn]) for _ in range(2))
    share_steps(together)
    layer = Passes(np.linspace(1e-3, 2e-3, DRAWN), np.linspace(2e-3, 4e-3, DRAWN))
    kinds = row_seconds(alone, scenario).kinds
    one, many = (step_traffic(rows, scenario, layer, kinds) for rows in (alone, together))
    for term in ("gradients", "parameters", "tied"):
        assert (getattr(one, term) == getattr(many, term)).all(), term
    assert (optimizer_seconds(alone, scenario) == optimizer_seconds(together, scenario)).all()
    assert len(together.distinct(*STEP_AXES)[0]) < DRAWN
