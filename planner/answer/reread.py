"""Saved answers, priced again."""

from __future__ import annotations

import numpy as np

from costmodels.layer.recompute_modules import module_mask
from costmodels.layout.split import Assignment
from costmodels.names import CP_KINDS, OFFLOADS, RANK_ORDERS, SCHEDULE_NAMES, VOCABULARIES, Recompute
from costmodels.strategy import Strategies, strategies
from planner.answer.plan import Strategy as StrategyRecord


def row_of(record: StrategyRecord) -> Strategies:
    """The row behind a record; what was recomputed in part is PARTIAL, whatever it came to."""
    same = {name: value for name, value in record.model_dump().items() if name in Strategies.__dataclass_fields__}
    recompute = Recompute[record.recompute.upper()]
    if any(stage.recompute_layers not in (0, stage.layers) for stage in record.stages):
        recompute = Recompute.PARTIAL
    named = {
        "schedule": SCHEDULE_NAMES.index(record.schedule),
        "rank_order": RANK_ORDERS.index(record.rank_order),
        "cp_kind": CP_KINDS.index(record.cp_kind),
        "recompute_modules": module_mask(record.recompute_modules),
        "offload": OFFLOADS.index(record.offload),
        "vocabulary": VOCABULARIES.index(record.vocabulary),
        "recompute": int(recompute),
    }
    return strategies(**same | named)


def split_of(record: StrategyRecord) -> Assignment:
    """Layers and recomputed layers of every stage."""
    layers, again = ([getattr(s, name) for s in record.stages] for name in ("layers", "recompute_layers"))
    return Assignment(np.array(layers, dtype=np.int64), np.array(again, dtype=np.int64))
