"""A plan beyond all measured degrees gives way to one inside that is not surely slower."""

import pytest

from planner import PlanRequest, plan
from planner.search import within_measured
from planner.search.choice import SURE, WIDEST

QUESTION = {
    "model": "llama3-8b",
    "gpus": 64,
    "reasons": False,
    "global_batch_size": 256,
    "pins": {"tp": "4", "pp": "2,4"},
}


def answers(monkeypatch, most, **changes):
    """The plan as it is, and where no measured run had more than these degrees."""
    request = PlanRequest(**(QUESTION | changes))
    free = plan(request)
    monkeypatch.setattr(within_measured, "measured_extents", lambda _: most)
    monkeypatch.setattr(
        within_measured,
        "degrees_past",
        lambda _, row: {axis: known for axis, known in most.items() if getattr(row, axis)[0] > known},
    )
    return free, plan(request)


def test_a_tied_plan_inside_is_taken_and_what_is_beyond_stands_beside_it(monkeypatch):
    monkeypatch.setattr(within_measured, "WORTH_SHOWING", 0.0)
    free, inside = answers(monkeypatch, {"vpp": 4})
    assert free.strategy.vpp > 4 >= inside.strategy.vpp
    slower = inside.prediction.iteration_seconds / free.prediction.iteration_seconds
    assert 1.0 <= slower <= 1.0 + WIDEST
    (line,) = (said for said in inside.warnings if "no measured run of such models has more than" in said)
    assert line.startswith(f"VPP {free.strategy.vpp} would be {1.0 - 1.0 / slower:.1%} faster")
    assert int(line.partition("it has a ")[2].partition("%")[0]) / 100 < SURE
    assert inside.proof.scope[0] == "among strategies with at most VPP 4, the most that was measured"
    assert inside.proof.scope[0] in inside.proof.statement


def test_what_is_hardly_faster_beyond_has_no_line(monkeypatch):
    monkeypatch.setattr(within_measured, "WORTH_SHOWING", 0.5)
    _, inside = answers(monkeypatch, {"vpp": 4})
    assert inside.strategy.vpp <= 4
    assert not any("VPP" in said for said in inside.warnings)


@pytest.mark.parametrize(
    ("most", "changes"),
    [
        ({"vpp": 1}, {"global_batch_size": 32, "pins": {"tp": "4", "pp": "4"}}),  # far slower without
        ({"vpp": 4}, {"ties": "fastest"}),
        ({"vpp": 4}, {"pins": {"tp": "4", "pp": "2,4", "vpp": "8.."}}),
    ],
)
def test_what_is_surely_faster_pinned_or_asked_to_be_the_fastest_stays(monkeypatch, most, changes):
    free, other = answers(monkeypatch, most, **changes)
    assert other.strategy == free.strategy
    assert not other.proof.scope[0].startswith("among strategies")
