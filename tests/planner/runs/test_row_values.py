"""Values that no run can have, machines of other sizes, and layouts that no framework makes."""

import json

import pytest

from hardware.errors import BadFile
from planner.runs.judge import judge_row, shipped
from planner.runs.report import FEW, validate
from planner.runs.row_values import wrong_value
from planner.runs.rows import contradicting, read_rows
from planner.runs.words.machines import machines
from planner.runs.words.mapping import case
from tests.planner.measured_run import run


@pytest.mark.parametrize(
    ("section", "values", "told"),
    [
        ("stack", {"flags": 7}, "stack.flags: expected a table of names and values"),
        (
            "measured",
            {"iteration_time_s": 10**400},
            "expected a number above 0, 1e-09 to 1e+18, got a number of 1329 bits",
        ),
        ("measured", {"mfu": 40}, "measured.mfu: expected a share of the peak, such as 0.4, got 40"),
        ("measured", {"mfu": "40 %"}, "measured.mfu: expected a number above 0, a share of the peak, such as 0.4, got"),
        ("measured", {"memory": "74 GiB"}, "expected a number above 0, GB of one device, such as 61.2, got '74 GiB'"),
        ("measured", {"memory": 70e9}, "measured.memory: expected GB of one device"),
        ("measured", {"oom": "no"}, "measured.oom: expected true, false or null, got 'no'"),
        ("strategy", {"sequence_parallel": "off"}, "strategy.sequence_parallel: expected true, false or null"),
        ("strategy", {"sharding_degree": "x"}, "strategy.sharding_degree: expected a whole number from 1, got 'x'"),
        ("strategy", {"global_batch_size": 10**400}, "expected a whole number from 1 to 1,000,000,000"),
        ("cluster", {"gpus_per_node": "8"}, "cluster.gpus_per_node: expected a whole number from 1, got '8'"),
        ("cluster", {"accelerator": None}, "cluster.accelerator: expected a name such as h100-sxm, got None"),
    ],
)
def test_a_value_of_another_kind_is_named_with_what_was_wanted(section, values, told):
    assert told in wrong_value(run(**{section: values}))


def test_whether_a_run_is_complete_is_no_word():
    assert wrong_value(run(complete="no")) == "complete: expected true, false or null, got 'no'"


def test_no_shipped_run_has_a_wrong_value():
    rows = [row for path in shipped() for row in read_rows(path)]
    assert len(rows) > 4000
    assert not [row["id"] for row in rows if wrong_value(row)]


@pytest.mark.parametrize(
    ("strategy", "model", "told"),
    [
        ({"ep": 2}, {}, "2 expert ranks, and "),
        ({"ep": 3, "gpus": 24, "dp": 3, "tp": 8}, {"name": "mixtral-8x7b"}, "3 ranks do not share 8 experts; 1 would"),
        ({"ep": 8, "etp": 16}, {"name": "mixtral-8x7b"}, "ep 8 x etp 16 do not divide the"),
        (
            {"pp": 64, "vpp": 1, "tp": 1, "dp": 1, "gpus": 64},
            {"name": "llama3-8b"},
            "pp 64 x vpp 1 pieces of 32 layers; at most 34",
        ),
        ({"tp": 64, "dp": 1, "pp": 1, "gpus": 64}, {"name": "llama3-8b"}, "64 ranks share 32 heads; at most 32 work"),
        ({"global_batch_size": 1}, {}, "a batch of 1 is no whole number of micro-batches of"),
    ],
)
def test_a_layout_that_no_framework_makes_is_not_priced(strategy, model, told):
    row = run(strategy={"dp": 8, "tp": 1, "pp": 1, "gpus": 8, "micro_batch_size": 1} | strategy)
    if model:
        row["model"] = {"seq_length": 2048} | model
    assert told in judge_row(row)[0].reason


def group(**cluster):
    notes = []
    return machines(run(cluster={"accelerator": "h100-sxm"} | cluster), notes).groups[0], notes


def test_nodes_have_the_size_that_is_said():
    small, notes = group(gpus_per_node=4)
    usual, _ = group(gpus_per_node=8)
    alone, _ = group(gpus_per_node=1)
    assert (small.gpus_per_node, small.tiers[0].domain) == (4, 4)
    assert notes[0] == "nodes of 4 joined as the 8 of dgx-h100 are assumed"
    assert small.tiers[0].link == usual.tiers[0].link
    assert [tier.name for tier in alone.tiers] == [tier.name for tier in usual.tiers[1:]]
    assert group(gpus_per_node=512)[0].tiers[0].domain == 512
    rack, said = group(accelerator="gb200", gpus_per_node=4)
    assert rack.tiers[0].domain == 72
    assert not [note for note in said if "joined" in note]


def test_words_on_a_network_that_say_no_bandwidth_are_named():
    for words, unread in (("foo", True), ("RoCE RDMA", True), ("none (single node)", False), ("", False)):
        _, notes = group(gpus_per_node=8, inter_node=words)
        assert notes == [f"network of dgx-h100 assumed{f', of which {words!r} names no bandwidth' if unread else ''}"]


def test_the_table_of_a_few_runs_says_what_was_assumed_and_which_names_are_double(tmp_path):
    one = run(id="twice", group="a\x1b[31mb\nc")
    (tmp_path / "runs.jsonl").write_text("\n".join(json.dumps(row) for row in (one, one)), encoding="utf-8")
    table = validate([str(tmp_path / "runs.jsonl")])
    assert "Assumed of 1 run:" in table
    assert "runs.jsonl: several runs are called twice" in table
    assert "a?[31mb?c" in table
    assert "\x1b" not in table
    many = [one | {"id": f"run {n}"} for n in range(FEW + 1)]
    (tmp_path / "runs.jsonl").write_text("\n".join(json.dumps(row) for row in many), encoding="utf-8")
    assert "Assumed of" not in validate([str(tmp_path / "runs.jsonl")])


def test_figures_of_a_run_that_tell_two_times_are_told_with_the_one_that_counts():
    said = {"iteration_time_s": 2.0, "tokens_per_s": None, "samples_per_s": None}
    row = run(measured=said)
    batch = row["strategy"]["global_batch_size"]
    assert contradicting(row) == ()
    assert contradicting(run(measured=said | {"samples_per_s": batch / 2.1})) == ()
    told = contradicting(run(measured=said | {"samples_per_s": batch / 4.0}))
    assert told == ("iteration_time_s counts, by which an iteration takes 2 s; by samples_per_s 4 s",)
    verdict = judge_row(run(measured=said | {"samples_per_s": batch / 4.0}))[0]
    assert told[0] in verdict.notes
    assert verdict.measured == 2.0


@pytest.mark.parametrize(("words", "told"), [("foo", "strategy.offload: 'foo'; none, activations"), (True, "'true'")])
def test_words_that_name_nothing_to_offload_are_refused(words, told):
    assert told in judge_row(run(strategy={"offload": words}))[0].reason


def test_a_precision_that_nobody_says_is_noted():
    assert "precision bf16 assumed" in judge_row(run(strategy={"precision": None}))[0].notes
    assert not [note for note in judge_row(run(strategy={"precision": "bf16"}))[0].notes if "precision" in note]


def test_plain_text_under_the_name_of_a_packed_file_is_told_as_such(tmp_path):
    path = tmp_path / "runs.jsonl.gz"
    path.write_text(json.dumps(run()), encoding="utf-8")
    with pytest.raises(BadFile, match="not packed by gzip, as its name says"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("said", "release"),
    [("flash_attention_2", "v2"), ("FlashAttention-3", "v3"), ("FA 1", "v1"), ("eager", False), ("SDPA", True)],
)
def test_attention_in_the_words_of_other_frameworks_is_the_kernel_that_they_mean(said, release):
    theirs, ours = (case(run(stack={"attention": word})) for word in (said, release))
    assert theirs.scenario.stack.switches.attention_backend == ours.scenario.stack.switches.attention_backend
    assert theirs.notes == ours.notes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"stack": {"attention": "magic"}},
            "attention 'magic' names no kernel that is known; one that is fused assumed",
        ),
        ({"task": "dpo"}, "task 'dpo' is none of pretrain, sft, lora; training of all weights assumed"),
        ({"model": {"gated_ffn": None}}, "gated_ffn false assumed"),
        ({"model": {"vocab_size": None}}, "vocab_size 51200 assumed"),
        ({"model": {"ffn_hidden_size": None}}, "ffn_hidden_size 8192 assumed"),
    ],
)
def test_what_is_not_said_or_not_understood_is_noted_with_what_stands_for_it(changes, told):
    assert told in case(run(**changes)).notes
    assert told not in case(run()).notes


def test_a_schedule_that_nobody_knows_is_refused_on_one_stage_too():
    told = judge_row(run(strategy={"pp": 1, "dp": 2, "gpus": 2, "tp": 1, "schedule": "zigzag"}))[0].reason
    assert told == "schedule zigzag is not priced yet"


def test_a_time_that_was_not_measured_is_none():
    verdict = judge_row(run(measured={"iteration_time_s": None}))[0]
    assert verdict.reason == "nothing measured"
    assert verdict.document()["measured"] is None
    failed = judge_row(run(measured={"iteration_time_s": None, "oom": True}))[0]
    assert failed.document()["measured"] is False


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("cluster", "cluster.accelerator: expected a name"),
        ("model", "num_layers is not stated, and neither is its name"),
        ("strategy", "gpus is not stated"),
        ("measured", "nothing measured"),
    ],
)
def test_a_section_that_a_run_leaves_out_costs_no_other_run_its_price(tmp_path, section, told):
    whole = run(measured={"iteration_time_s": 1.0})
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (whole, whole | {section: None})))
    first, second = (judge_row(row)[0] for row in read_rows(path))
    assert first.predicted is not None
    assert told in second.reason


def test_a_line_with_no_section_of_a_run_is_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"id": "a"}')
    with pytest.raises(BadFile, match=r"line 1: no run, which has sections cluster, stack"):
        list(read_rows(path))
