"""A measured run as a file has it, made up, and what of it a test wants otherwise."""

import copy

from planner.runs.case import case_of
from planner.runs.judge import judge, judge_run
from planner.runs.report import paths_of, written
from planner.runs.schema import run_of

RUN = {
    "schema": "run/1",
    "id": "one",
    "group": "made-up",
    "source": {"title": "a test"},
    "request": {
        "model": {
            "name": "GPT", "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "num_query_groups": 16,
            "ffn_hidden_size": 8192, "gated_ffn": False, "vocab_size": 51200, "seq_length": 2048,
            "tied_embeddings": True, "position": "learned",
        },
        "gpus": 16, "cluster": "dgx-a100-80gb", "stack": "megatron-core", "global_batch_size": 64,
        "seq_length": 2048, "precision": "bf16",
        "pins": {
            "tp": 2, "pp": 2, "vpp": 2, "zero_stage": 1, "sharding_degree": 4, "micro_batch_size": 2,
            "sequence_parallel": True, "schedule": "interleaved-1f1b", "recompute": "full",
        },
        "layers_per_stage": [12, 12],
    },
    "measured": {"iteration_seconds": 2.0},
}  # fmt: skip


def run(*, model=None, pins=None, request=None, **changes):
    """The run with some entries of its model, its pins, its request or of its other parts changed; None leaves out.

    Layers by stage go where other degrees or another depth are asked for.
    """
    row = copy.deepcopy(RUN)
    asked = row["request"]
    asked |= request or {}
    asked["model"] |= model or {}
    asked["pins"] |= pins or {}
    if {"pp", "vpp"} & set(pins or {}) or "num_layers" in (model or {}):
        asked.setdefault("layers_per_stage", None)
        if "layers_per_stage" not in (request or {}):
            del asked["layers_per_stage"]
    for name, value in changes.items():
        row[name] = {**row[name], **value} if isinstance(value, dict) and name in row else value
    for table in (row, row["measured"], asked, asked["pins"], asked["model"]):
        for name in [name for name, value in table.items() if value is None]:
            del table[name]
    return row


def case(document, **given):
    """The run of a document as it is priced."""
    return case_of(run_of(document), **given)


def judged(document):
    """The verdicts on the run of a document."""
    return judge_run(run_of(document))


def only(verdicts, metric):
    """The verdict on one metric."""
    return next(verdict for verdict in verdicts if verdict.metric == metric)


def validate(files, form="table"):
    """What ``plan validate`` says of some files."""
    return written(judge(paths_of(files)), form=form)
