"""What a calibration says: the constants before and after, the errors, the gaps, and the profile that follows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.answer.plan import Answer, Record


class Constant(Record):
    """One constant of the profile, in SI units or as a share."""

    name: str
    """Where it lives, as in the profile: "stack.calibrated.kernel_efficiency", "cluster.node.efficiency"..."""
    before: float
    after: float
    standard_error: float | None
    """Of the fitted value; null where the data do not tell it and it stays as it was."""
    narrowed: float
    """Uncertainty afterwards over before; 1 where the data say nothing."""
    source: str
    """Which files, how many points, the error before and after."""


class RunError(Record):
    """One training run, predicted over measured minus one."""

    file: str
    id: str
    measured_seconds: float
    before: float
    after: float
    left_out: float | None
    """The error had this run not been used, to first order; null with fewer than three runs."""


class Errors(Record):
    """One set of points that were fitted together: signed bias and size of predicted over measured minus one."""

    what: str
    """"runs", or a test of nccl-tests with its file, or the products of one number format."""
    points: int
    bias_before: float
    bias_after: float
    median_before: float
    median_after: float
    median_left_out: float | None
    """Median size of the errors of points left out of the fit; null with fewer than three."""


class Calibration(Answer):
    """The answer of `plan calibrate`."""

    schema_: Literal["calibration/1"] = Field("calibration/1", alias="schema")
    cluster: str
    stack: str | None
    """None where nothing says which framework was measured."""
    files: tuple[str, ...]
    constants: tuple[Constant, ...]
    runs: tuple[RunError, ...]
    errors: tuple[Errors, ...]
    warnings: tuple[str, ...]
    """One for every constant that the data cannot identify, and for fits at the edge of what is plausible."""
    notes: tuple[str, ...]
    """What was assumed, and what was left aside with the reason."""
    measure_next: str = ""
    """Which run would tell most of what is still uncertain, and of what; empty where none stands out."""
    profile: str
    """The profile as TOML: a cluster and a stack, ready for `--profile`."""
