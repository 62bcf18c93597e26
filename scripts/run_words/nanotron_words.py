"""What the benchmark table of the Ultra-Scale Playbook counts, and the machines that it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model.model import Model
from run_words import heard as re

Row = Mapping[str, Any]

TABLE: Final = r"nanotron docs/benchmark_summary"
"""Words of the source: best configurations by model and nodes, with their utilisation and memory [UltraScale]."""


def in_table(row: Row) -> bool:
    """Whether a run is of the table."""
    return bool(re.search(TABLE, str(row.get("source"))))


NETWORK: Final = "8x EFA 400Gb/s, NCCL 2.18"
"""What joins the nodes of the sweep: its scripts name hosts of AWS and a Python environment of PyTorch 2.1
(``run_multinode.sh`` at commit 67c5ebb6 [nanotron]), the playbook EFA [UltraScale]."""


def as_networked(row: Row) -> Row:
    """The run on the network that its sweep had, where what the row says of it was filled in."""
    if not in_table(row) or "hardware.inter_node" not in (row.get("filled") or ()):
        return row
    return {**row, "cluster": {**row["cluster"], "inter_node": NETWORK}}


def counted_beyond(row: Row, model: Model) -> float:
    """FLOP per token that the table's utilisation counts beyond weights, full attention and logits.

    Its notebook multiplies every parameter that the run held by 6, the embedding's too, which multiplies nothing: a
    tied one is held once on one stage, and at both ends of a pipeline. The playbook's interactive figure gives
    utilisation and tokens/s of the same runs: 9.66 and 11.27 GFLOP per token of 1.34B without and with a pipeline,
    25.67 and 28.09 of 3.57B, 59.59 of 8.86B either way [UltraScale].
    """
    if not in_table(row):
        return 0.0
    once = model.tied_embeddings and int(row["strategy"].get("pp") or 1) == 1
    return 0.0 if once else 6.0 * model.vocab_size * model.hidden_size
