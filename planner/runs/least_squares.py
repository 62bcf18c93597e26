"""What every calibration shares: the constants that may be fitted, and the least squares that fit them.

The project's own calibration (``planner.runs.fit``) and that of a person's own evidence
(``planner.runs.calibrate``) differ in their data and in what is kept fixed, not in how a constant is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodels.pricing import iteration_seconds
from costmodels.scenario import Scenario
from planner.runs.case import Case

Floats = NDArray[np.float64]
Constants = dict[tuple[str, str], float]
"""Values by the stack or the accelerator that has them, no two of which are called alike, and the path of the field."""

PRIOR = 0.03
"""Weight of the pull towards neutral values against one source group; chosen on runs that nothing is fitted to."""

MOST_ROWS = 60
"""Runs used per group: enough to see its shape."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A constant that may be fitted: the path of its field, neutral value, spread of the prior and bounds."""

    field: str
    neutral: float
    spread: float
    low: float
    high: float

    @property
    def name(self) -> str:
        """The field itself."""
        return self.field.rpartition(".")[2]


STACK_KNOBS = (
    # Kernel tables are what the libraries reach that every stack calls: none is faster than its machine.
    Knob("calibrated.kernel_efficiency", 1.0, 0.15, 0.6, 1.0),
    Knob("calibrated.elementwise_efficiency", 1.0, 0.2, 0.6, 1.3),
    Knob("calibrated.communication_efficiency", 1.0, 0.2, 0.3, 1.2),
    Knob("calibrated.straggler", 0.0, 0.01, 0.0, 0.04),
    Knob("calibrated.iteration_overhead", 0.0, 0.02, 0.0, 0.2),
)
EXPERTS = Knob("calibrated.expert_efficiency", 1.0, 0.15, 0.3, 1.2)
"""Fitted last, on models with experts, which the other constants are not fitted on."""
RATE = Knob("training_rate", 1.0, 0.15, 0.5, 1.2)
"""Of an accelerator."""


def solve(
    residuals: Callable[[Floats], Floats],
    knobs: Sequence[Knob],
    start: Floats,
    *,
    weights: Floats | float = 1.0,
    prior: float = PRIOR,
    scale: float = 0.03,
) -> Floats:
    """The knobs' values that bring the residuals down, each drawn towards its neutral value.

    A residual counts by its square up to ``scale`` and by its size beyond, and so does the pull: convex where the
    residuals are straight, so that there is one answer.

    Args:
        residuals: residuals (N,) of the knobs' values (K,).
        knobs: what is fitted.
        start: values to start from, shape (K,).
        weights: what each residual counts, (N,) or one for all.
        prior: how much one spread away from neutral counts, in the unit of the residuals.
        scale: residual beyond which a point is an outlier.
    """
    from scipy.optimize import least_squares

    neutral, spreads, low, high = np.array([(k.neutral, k.spread, k.low, k.high) for k in knobs]).T

    def pulled(values: Floats) -> Floats:
        return np.concatenate([residuals(values), prior * (values - neutral) / spreads])

    def loss(squares: Floats) -> Floats:
        """Soft L1, weighted, with both derivatives, as SciPy wants it."""
        size = np.sqrt(1.0 + squares)
        rho = np.stack([2.0 * (size - 1.0), 1.0 / size, -0.5 / size**3])
        rho[:, : -len(knobs)] *= weights
        return rho

    inside = np.minimum(1e-4, 0.01 * spreads)
    x0 = np.clip(start, low + inside, high - inside)
    found = least_squares(
        pulled, x0, bounds=(low, high), x_scale=spreads, loss=loss, f_scale=scale, diff_step=1e-3, max_nfev=50
    )
    return np.asarray(found.x)


def with_constants(scenario: Scenario, constants: Constants) -> Scenario:
    """The scenario with those constants on its stack and its accelerator; what is not among them stays."""
    stack, device = scenario.stack, scenario.group.accelerator
    own = {field: value for (owner, field), value in constants.items() if owner == stack.name}
    if own:
        scenario = replace(scenario, stack=stack.changed(own))
    rate = constants.get((device.name, RATE.field))
    return scenario if rate is None else with_rate(scenario, rate)


def with_rate(scenario: Scenario, rate: float) -> Scenario:
    """The scenario on an accelerator of that training rate."""
    device = scenario.group.accelerator.model_copy(update={"training_rate": rate})
    return replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))


def log_error(case: Case, measured: float, constants: Constants | None = None) -> float:
    """Logarithm of predicted over measured iteration time of a run, under other constants than its own."""
    scenario = with_constants(case.scenario, constants or {})
    return math.log(iteration_seconds(case.strategy, scenario, case.assignment) / measured)
