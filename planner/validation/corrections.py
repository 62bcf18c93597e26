"""What a source says of its runs and its own times, or readings of memory, contradict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

Row = Mapping[str, Any]

UNPADDED: Final = 50_257
"""Tokens of GPT-2, an odd number."""
SEQUENCES: Final = {128: 16}
"""Sequences a device of chenyaofo's run with that global batch."""


def as_timed(row: Row) -> Row:
    """The run as its times and readings show that it was.

    vTrain's single nodes (``ground_truth_single.csv``) are listed beside simulator settings that recompute all layers.
    They did not: a layer of 2048 with 8 x 1024 tokens takes 16.3 ms on one A100, of which passes over the scores and
    the hidden states need 4.5 ms at 1.8 TB/s and products with recomputation would have to run at 97 % of the peak;
    without it at 65 %. Nor was the vocabulary padded where one rank holds all of it: what a micro-batch takes beside
    its layers falls to a fifth from one tensor rank to two.
    """
    source = str(row.get("source"))
    if "chenyaofo" in source:
        return _held(row)
    if "awsome-distributed-training torchtitan" in source:
        return _doubled(row)
    if not re.search(r"ground_truth_single\.csv", source):
        return row
    plan, model = row["strategy"], row["model"]
    return {
        **row,
        "strategy": {**plan, "recompute": "none"},
        "model": {**model, "padded_vocab_size": UNPADDED},
    }


def _held(row: Row) -> Row:
    """A gist of chenyaofo's, whose loop still holds the fp32 logits as it reads what is allocated: 0.48 GiB a sequence.

    By that, and by their peaks, "8/128" had 16 sequences a device and the run with parameters on the host 2: 14.8, 17.7
    and 21.4 GiB are 2, 8 and 16 of them beside what all runs at stage 3 have, and 2.2 GiB are 2 without weights. Of two
    runs without checkpoints the one at stage 3 kept 12.6 GiB more, the weights whole.
    """
    plan, stack = row["strategy"], row["stack"]
    parameters = "params" in str(plan.get("offload"))
    sequences = 2 if parameters else SEQUENCES.get(int(plan["global_batch_size"]), plan.get("micro_batch_size"))
    stack = {**stack, "notes": f"{stack.get('notes') or ''} mem_efficient_linear=false, outputs held"}
    return {**row, "strategy": {**plan, "micro_batch_size": sequences}, "stack": stack}


def _doubled(row: Row) -> Row:
    """AWS's log of torchtitan names a configuration of one sequence a device; its readings are of two.

    Of 68.57 GiB eager and 63.48 GiB compiled in 8 bits states are 5 and two sequences' logits and layers, which eager
    losses hold 14 bytes each of, 61 and 57; torchtitan's own runs with two on 128 devices took 62 and 58 [Liang24].
    """
    plan = row["strategy"]
    if plan.get("micro_batch_size") != 1:
        return row
    return {
        **row,
        "strategy": {**plan, "micro_batch_size": 2, "global_batch_size": 2 * int(plan["global_batch_size"])},
    }
