"""What is validated is what a search minimises: a measured run is priced as ``predict`` prices its strategy."""

import itertools
import re
from collections import defaultdict

import pytest

from costmodels.pricing import iteration_seconds
from costmodels.stack.stack import stack
from costmodels.strategy import Recompute
from hardware.records import Cluster
from planner import PlanRequest, predict
from planner.request.axes import PIN_AXES
from planner.request.pins import shown_value
from planner.runs.judge import learnt_from
from planner.runs.rows import read_rows
from planner.runs.words.mapping import case
from tests.planner.measured_run import run

WORDS = "by the run's words or its date "
GROUPS = (
    *(
        "korthikanti-2022",
        "bloom-tr11",
        "zero-bubble",
        "vocab-parallel-1f1b",
        "dgxc-bench-v24.11.1",
        "mlperf-train-3.1",
    ),
    *("mosaic-a100-80", "torchtitan-h100-2024.12", "maxtext-tpu", "megatron-bridge-26.02", "moe-parallel-folding"),
    *("internevo", "simumax-b200", "dgxc-bench-v25.05"),
)
"""Dense, with experts, fully sharded, on TPUs; plain, interleaved and other schedules; 16 and 8 bits; old and new."""


def asked(priced, **fields):
    """The question that ``predict`` is asked in place of the run, with the changes that its notes tell."""
    known, changes = priced.scenario, {}
    for note in priced.notes:
        if note.startswith(WORDS):
            changes = dict(pair.split("=", 1) for pair in re.split(r", (?=stack\.)", note.removeprefix(WORDS)))
    pins = {axis: shown_value(axis, int(getattr(priced.rows, axis)[0])) for axis in PIN_AXES}
    sizes = {name: getattr(known, name) for name in ("gpus", "seq_length", "global_batch_size", "precision")}
    cluster = Cluster(name="its", title="its", sources={}, groups=(known.group,))
    name = known.stack.name
    return PlanRequest(model=known.model, cluster=cluster, stack=name, pins=pins, changes=changes, **sizes | fields)


def validated(priced):
    return iteration_seconds(priced.rows, priced.scenario, priced.assignment)


def test_runs_of_every_kind_are_priced_as_predict_prices_them_with_the_changes_that_their_notes_tell():
    (fit,) = [path for path in learnt_from() if path.name.startswith("fit.")]
    rows = defaultdict(list)
    for row in read_rows(fit):
        if row["group"] in GROUPS and row["complete"] and not row.get("suspect"):
            rows[row["group"]].append(row)
    compared = 0
    for row in itertools.chain.from_iterable(found[:: len(found) // 2 or 1] for found in rows.values()):
        priced = case(row)
        layers = priced.assignment.layers.tolist()
        recomputed = priced.assignment.recomputed.tolist() if priced.rows.recompute[0] == Recompute.PARTIAL else None
        answer = predict(asked(priced), layers, recomputed, chunked=False)
        if answer.prediction is not None:  # a rule may refuse what somebody ran
            compared += 1
            assert answer.prediction.iteration_seconds == pytest.approx(validated(priced), rel=1e-9), row["id"]
    assert compared > 20


@pytest.mark.parametrize("framework", ["megatron-core", "Megatron-Core", "nemo", "fsdp", "megascale"])
def test_an_undated_run_of_a_stack_called_by_its_name_has_that_stack_as_it_is(framework):
    row = run(stack={"framework": framework, "attention": None}, cluster={"accelerator": "h100-sxm"})
    priced = case(row)
    usual = stack(framework.lower()).at("bf16")
    assert priced.scenario.stack == usual
    assert not [note for note in priced.notes if note.startswith(WORDS)]


def test_a_date_in_the_words_of_a_run_makes_its_stack_older_and_a_note_says_so():
    said = {"stack": {"framework": "megatron-core"}, "cluster": {"accelerator": "b200"}, "model": {"seq_length": 8192}}
    old, own = case(run(source="our log of 2025-03", **said)), case(run(source="our log", date="2025-03", **said))
    assert f"{WORDS}stack.kernels.recent_cudnn=false" in old.notes
    assert validated(own) == validated(old) > validated(case(run(source="our log", **said)))


def test_an_undated_run_under_a_given_stack_has_that_stack_as_it_is():
    given = stack("megatron-core")
    row = run(stack={"framework": "our own trainer"}, cluster={"accelerator": "h100-sxm"})
    assert case(row, software=given).scenario.stack.kernels.recent_cudnn
    assert not case(row).scenario.stack.kernels.recent_cudnn


def test_what_a_search_would_choose_otherwise_is_said():
    row = run(strategy={"vpp": 1, "schedule": "1f1b", "recompute": "none"})
    assert any("evenly as they go" in note for note in case(row).notes)
    row["strategy"]["layers_per_stage"] = [12, 12]
    assert not any("layers per stage" in note for note in case(row).notes)


def test_the_machines_that_stand_for_a_runs_are_named_with_what_its_words_change():
    notes = case(run(cluster={"accelerator": "h100-sxm", "accelerator_note": "500 W"})).notes
    assert "network of dgx-h100 with 25 GB/s a device in place of 50, by the run's words" in notes
    assert "h100-sxm held to 500 W, by the run's words" in notes
