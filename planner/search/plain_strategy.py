"""One strategy of a few degrees, each other axis at its plainest value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodels.names import CP_KINDS, SCHEDULE_NAMES, VOCABULARIES, Recompute
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies, strategies
from planner.rules.conditions import FOLDED
from planner.space.lattice import MESH_AXES


def plain_strategy(scenario: Scenario, axes: Mapping[str, int], batches: int) -> Strategies:
    """One strategy of so many micro-batches: tp, cp, pp and dp are given, what else is not takes its plainest value."""
    tp, cp, pp, dp = (axes[name] for name in MESH_AXES)
    supports = scenario.stack.supports
    vpp = axes.get("vpp", 2 if SCHEDULE_NAMES[axes.get("schedule", 0)] in FOLDED else 1)
    zero = axes.get("zero_stage", int(1 in supports.zero_stages and dp * cp > 1))
    usual = {
        "cp_kind": CP_KINDS.index(supports.cp_kinds[0]) if cp > 1 else 0,
        "vpp": vpp,
        "zero_stage": zero,
        "sharding_degree": dp * cp if zero else 1,
        "schedule": SCHEDULE_NAMES.index(_usual_schedule(pp, vpp, batches, supports.schedules)),
        "sequence_parallel": int(tp > 1 and supports.sequence_parallel and scenario.seq_length % (tp * cp) == 0),
        "recompute": _usual_recompute(axes),
        "vocabulary": VOCABULARIES.index(supports.vocabulary[0]),
    }
    return strategies(**{**usual, **axes, "num_microbatches": batches})


def _usual_schedule(pp: int, vpp: int, batches: int, known: Sequence[str]) -> str:
    """The schedule where none is named: of chunks, the one that takes this number of micro-batches."""
    if pp == 1 or vpp == 1:
        return "none" if pp == 1 else "1f1b"
    grouped = batches % pp != 0 and "interleaved-groups" in known
    return "interleaved-groups" if grouped else "interleaved-1f1b"


def _usual_recompute(axes: Mapping[str, int]) -> Recompute:
    """Recomputation as the other pins imply it: modules are selective, layers that go together are all of them."""
    if axes.get("recompute_num_layers", 1) > 1:
        return Recompute.FULL
    return Recompute.SELECTIVE if axes.get("recompute_modules") else Recompute.NONE
