"""From a measured run to a verdict: what a row says is what is priced, and errors are counted as they are."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from costmodels.model.catalogue import model as catalogue_model
from costmodels.model.flops import flops_per_iteration, model_flops
from costmodels.pricing import quote
from costmodels.strategy import CP_KINDS, SCHEDULE_NAMES, Recompute
from planner.answer.build import mfu_of
from planner.cli import main
from planner.runs.fit_memory import caches
from planner.runs.judge import groups, judge_row, memory_kind, summary
from planner.runs.report import validate
from planner.runs.words.machines import Unpriceable
from planner.runs.words.mapping import case
from planner.runs.words.network_words import lane_bandwidth
from planner.trust.interval import interval
from tests.planner.measured_run import RUN, only, run


def test_every_degree_of_a_run_reaches_the_cost_model():
    mapped = case(RUN)
    at = mapped.rows.row(0)
    for axis in ("tp", "cp", "pp", "vpp", "dp", "ep", "zero_stage", "sharding_degree", "micro_batch_size"):
        assert at[axis] == RUN["strategy"][axis], axis
    assert SCHEDULE_NAMES[at["schedule"]] == "interleaved-1f1b"
    assert at["recompute"] == Recompute.FULL
    assert at["num_microbatches"] == 64 // (4 * 2)
    assert mapped.assignment.layers.tolist() == [12, 12]
    assert mapped.scenario.gpus == 16
    assert mapped.scenario.stack.name == "megatron-core"


@pytest.mark.parametrize(
    ("framework", "said", "kind", "assumed"),
    [
        ("Megatron-Core", None, "p2p", True),
        ("Megatron-Core", "a2a", "a2a", False),
        ("torchtitan", None, "all-gather", True),
        ("DeepSpeed", None, "a2a", True),
    ],
)
def test_context_ranks_exchange_as_a_run_says_or_as_its_framework_usually_does(framework, said, kind, assumed):
    row = run(stack={"framework": framework}, strategy={"cp": 2, "cp_kind": said, "dp": 2})
    mapped = case(row)
    assert CP_KINDS[mapped.rows.cp_kind[0]] == kind
    assert any("context parallelism of kind" in note for note in mapped.notes) == assumed
    assert case(run()).rows.cp_kind.tolist() == [0]


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({"tp": 3}, "tp 3 x cp 1 x pp 2 x dp 4 are 24 ranks, which do not make up 16 gpus"),
        ({"tp": 3, "dp": None}, "tp 3 x cp 1 x pp 2 are 6 ranks, which do not make up 16 gpus"),
    ],
)
def test_degrees_that_do_not_make_up_the_devices_are_not_priced_unless_known_to_be_wrong(degrees, said):
    with pytest.raises(Unpriceable, match=said):
        case(run(strategy=degrees))
    assert case(run(strategy=degrees, suspect="the degrees are not those of the devices")).scenario.gpus == 16


def test_a_kind_of_context_parallelism_that_nobody_knows_is_not_priced():
    with pytest.raises(Unpriceable, match="context parallelism of kind star is not priced yet"):
        case(run(strategy={"cp": 2, "cp_kind": "star", "dp": 2}))


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("MegaScale", "megascale"),
        ("Megatron-DeepSpeed", "megatron-deepspeed"),
        ("DeepSpeed ZeRO-3", "deepspeed"),
        ("Aleph Alpha scaling", "aleph-alpha"),
        ("DeepSpeed ZeRO-3, 2021", "deepspeed-2021"),
        ("Megatron-Bridge (NeMo 26.04.01 container)", "nemo"),
        ("Megatron-Bridge (NeMo 26.06.01 container)", "nemo-26.06"),
        ("Megatron-Bridge (NeMo 26.08 container)", "nemo-26.06"),
        ("NeMo AutoModel (PyTorch FSDP2)", "torchtitan"),
        ("something nobody has heard of", "megatron-core"),
    ],
)
def test_a_framework_is_priced_as_the_stack_of_its_name_and_release(framework, stack):
    mapped = case(run(stack={"framework": framework}))
    assert mapped.scenario.stack.name == stack
    assert any(framework in note for note in mapped.notes)


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("8x HDR 200 Gb/s", 25e9),
        ("800 Gb/s per node", 12.5e9),
        ("1x EDR InfiniBand 100Gb/s", 12.5e9 / 8),
        ("1x NDR 400 Gb/s per GPU", 50e9),
        ("50 Gb/s Ethernet", 50e9 / 8 / 8),
        ("100 Gbps Ethernet", 100e9 / 8 / 8),
        ("8 x 400 Gbps RoCE", 50e9),
        ("3.2 Tb/s per node", 50e9),
        ("3200 Gb/s", 50e9),
        ("50 GB/s", 50e9),
        ("8x400G RoCE", 50e9),
        ("RoCE 8x200GE", 25e9),
        ("InfiniBand NDR400 x8", 50e9),
        ("8x HDR100", 12.5e9),
        ("1.6 Tb/s", 25e9),
        ("EFAv2 3,200 Gbps", 50e9),
        ("400 Gbps EFA", 6.25e9),
        ("100 Gb/s per host", 12.5e9 / 8),
        ("10 GbE", 1.25e9 / 8),
        ("single HDR 200Gb/s NIC", 25e9 / 8),
        ("InfiniBand (not detailed)", None),
    ],
)
def test_a_network_in_words_is_bytes_per_second_and_gpu(words, rate):
    assert lane_bandwidth(words, 8) == (rate and pytest.approx(rate))


def test_a_run_that_cannot_be_priced_says_why_and_is_not_counted():
    (verdict,) = [v for v in judge_row(run(cluster={"accelerator": "abacus"})) if v.metric == "iteration_time"]
    assert "abacus" in verdict.reason
    assert verdict.predicted is None
    assert groups([verdict], "iteration_time") == {}
    with pytest.raises(Unpriceable):
        case(run(model={"kind": "moe-hybrid-mamba2"}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"measured": {"mfu": "high"}}, "measured.mfu: expected a number above 0, a share of the peak, such as 0.4"),
        ({"measured": {"iteration_time_s": -1}}, "measured.iteration_time_s: expected a number above 0, got -1"),
        ({"measured": {"tokens_per_s": True}}, "measured.tokens_per_s: expected a number above 0, got True"),
        ({"strategy": {"tp": "eight"}}, "strategy.tp: expected a whole number from 1, got 'eight'"),
        (
            {"strategy": {"micro_batch_size": 0}},
            "strategy.micro_batch_size: expected a number of sequences above 0, got 0",
        ),
        ({"strategy": {"precision": "int3"}}, "strategy.precision: 'int3' is unknown; fp32, fp16"),
    ],
)
def test_a_value_that_no_run_can_have_is_the_reason_why_it_is_not_priced(changes, reason):
    verdict = judge_row(run(**changes))[0]
    assert (verdict.predicted, verdict.error) == (None, None)
    assert verdict.reason.startswith(reason)


def test_a_run_of_one_s_own_is_scored_unless_it_says_that_it_is_incomplete(tmp_path):
    given = run()
    del given["complete"]
    assert all(verdict.scored for verdict in judge_row(given))
    rows = tmp_path / "runs.jsonl"
    rows.write_text(json.dumps(run(complete=False)))
    assert "Priced but not scored, of runs marked incomplete or suspect: " in validate([str(rows)])


def test_a_model_whose_sizes_are_not_said_is_the_catalogue_s_of_that_name_with_what_is_said():
    named = {"name": "NVIDIA Nemotron 3 Nano", "kind": "moe-hybrid-mamba2", "num_layers": 52, "seq_length": 4096}
    plan = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "sharding_degree": 16, "schedule": "none"}
    row = run(strategy=plan) | {"model": named}
    mapped, known = case(row), catalogue_model("nemotron-3-nano-30b-a3b")
    assert mapped.scenario.model == known.model_copy(update={"seq_length": 4096})
    assert "sizes of the catalogue's nemotron-3-nano-30b-a3b, by its name" in mapped.notes
    bare = run() | {"model": {"name": "llama2-7b", "seq_length": 2048}}
    assert case(bare).scenario.model == catalogue_model("llama2-7b").model_copy(update={"seq_length": 2048})


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"name": "Nemotron-3-Nano", "kind": "moe-hybrid-mamba2", "num_layers": 40}, "hidden_size is not stated"),
        ({"name": "Secret", "kind": "dense", "num_layers": 40}, "no model of the catalogue is called 'Secret'"),
        ({"name": "175B", "kind": "dense"}, "num_layers is not stated"),
        ({"kind": "dense-hybrid-mamba2", "num_layers": 8, "hidden_size": 64, "num_heads": 4}, "mixers are not stated"),
    ],
)
def test_a_name_that_means_no_model_of_those_layers_leaves_the_run_unpriced(model, reason):
    with pytest.raises(Unpriceable, match=reason):
        case(run() | {"model": model | {"seq_length": 2048}})


def test_the_error_is_predicted_over_measured_minus_one_and_signed():
    predicted = only(judge_row(RUN), "iteration_time").predicted
    for factor in (0.5, 1.0, 2.0):
        verdict = only(judge_row(run(measured={"iteration_time_s": predicted * factor})), "iteration_time")
        assert verdict.error == pytest.approx(1 / factor - 1, abs=1e-12)


def test_a_time_is_within_the_interval_from_its_low_to_its_high_end():
    mapped = case(RUN)
    predicted = quote(mapped.rows, mapped.scenario, mapped.assignment).iteration
    likely = interval(mapped.scenario, mapped.rows, predicted, mfu=mfu_of(mapped.scenario, predicted))
    inside = 1e-6
    for measured, within in (
        (likely.high * (1 - inside), True),
        (likely.high * (1 + inside), False),
        (likely.low * (1 + inside), True),
        (likely.low * (1 - inside), False),
    ):
        assert only(judge_row(run(measured={"iteration_time_s": measured})), "iteration_time").within is within


def test_memory_is_compared_with_the_quantity_that_was_measured():
    device = run(measured={"memory": 40.0, "memory_kind": "nvidia-smi"})
    allocator = run(measured={"memory": 40.0, "memory_kind": "peak GB per GPU"})
    assert memory_kind(device) == (2.0**30, "shown")
    assert memory_kind(allocator) == (1e9, "allocated")
    assert only(judge_row(device), "memory").predicted > only(judge_row(allocator), "memory").predicted


@pytest.mark.parametrize("oom", [False, True])
@pytest.mark.parametrize(("layers", "fits"), [(24, True), (2400, False)])
def test_a_run_that_ran_or_did_not_is_compared_with_the_fit(oom, layers, fits):
    row = run(measured={"iteration_time_s": None, "oom": oom}, model={"num_layers": layers})
    verdict = only(judge_row(row), "fits")
    assert verdict.measured is (not oom)
    assert verdict.predicted is fits


def test_groups_count_alike_whatever_their_size():
    rows = [run(group="many", measured={"iteration_time_s": 1.0})] * 9 + [run(group="one")]
    verdicts = [verdict for row in rows for verdict in judge_row(row)]
    by_group = groups(verdicts, "iteration_time")
    assert {name: g["n"] for name, g in by_group.items()} == {"many": 9, "one": 1}
    mean = np.mean([g["median_abs_error"] for g in by_group.values()])
    assert summary(by_group)["median_abs_error"] == pytest.approx(mean)


def test_incomplete_and_suspect_runs_are_shown_and_not_scored():
    for changes in ({"complete": False}, {"suspect": "copied wrong"}):
        verdict = only(judge_row(run(**changes)), "iteration_time")
        assert verdict.predicted is not None
        assert not verdict.scored
        assert groups([verdict], "iteration_time") == {}


def test_the_report_on_a_file_of_one_s_own(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(run(id=str(n))) for n in range(3)))
    document = json.loads(validate([str(path)], form="json"))
    assert document["summary"]["n"] == 3
    assert {row["id"] for row in document["rows"]} == {"0", "1", "2"}
    assert "made-up" in validate([str(path)])


def asked(path, rows, *options):
    path.write_text("\n".join(map(json.dumps, rows)))
    return CliRunner().invoke(main, ["validate", str(path), *options])


def test_a_file_of_which_nothing_can_be_priced_is_reported_and_refused(tmp_path):
    unknown = [run(id=str(n), cluster={"accelerator": "abacus"}) for n in range(2)]
    for form in ("table", "json"):
        done = asked(tmp_path / "mine.jsonl", unknown, "--format", form)
        assert done.exit_code == 2
        assert "abacus" in done.stdout
        assert "mine.jsonl: no measured figure could be priced; 4 of 4: " in done.stderr
        assert done.stderr.count("\n") == 1
    assert asked(tmp_path / "mine.jsonl", [*unknown, run()]).exit_code == 0


def test_reasons_that_a_table_has_no_room_for_are_counted(tmp_path):
    unknown = [run(id=str(n), cluster={"accelerator": f"abacus-{n}"}) for n in range(23)]
    shown = asked(tmp_path / "mine.jsonl", unknown).stdout.partition("Not priced:")[2].splitlines()
    assert sum("abacus" in line for line in shown) == 20
    assert shown[-1] == "     6  for 3 further reasons, which --format json tells"
    told = json.loads(asked(tmp_path / "mine.jsonl", unknown, "--format", "json").stdout)["rows"]
    assert len({row["reason"] for row in told}) == 23


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"zero_stage": 7}, "there is no stage 7; 0, 1, 2 and 3 are"),
        ({"recompute": "sometimes"}, "'sometimes' is unknown; none, selective, full, partial are known"),
    ],
)
def test_a_word_of_a_strategy_that_means_nothing_is_refused_by_its_name(strategy, said):
    assert said in only(judge_row(run(strategy=strategy)), "iteration_time").reason


def test_a_batch_of_no_whole_number_of_micro_batches_is_priced_with_a_note():
    assert any("batch of 65" in note for note in case(run(strategy={"global_batch_size": 65})).notes)
    assert not any("batch of" in note for note in case(RUN).notes)


def test_a_split_that_nobody_knows_is_said_to_be_ignored(tmp_path):
    rows = [run(id=str(n), split=split) for n, split in enumerate(("Dev", "Dev", "dev", None))]
    done = asked(tmp_path / "mine.jsonl", rows)
    assert "split 'Dev' is none of fit, dev, check, and is ignored: 2 runs" in done.stdout
    found = json.loads(asked(tmp_path / "mine.jsonl", rows, "--format", "json").stdout)["rows"]
    assert {row["id"] for row in found if any("is ignored" in note for note in row["assumed"])} == {"0", "1"}


def test_a_misspelt_field_is_told_with_how_many_runs_have_it(tmp_path):
    rows = [run(id=str(n), strategy={"micro_batch": 1}) for n in range(2)]
    done = asked(tmp_path / "mine.jsonl", rows)
    assert "strategy.micro_batch is not read; did you mean micro_batch_size?: 2 runs" in done.stdout


def test_the_cache_is_fitted_on_devices_and_needs_enough_of_them(tmp_path):
    stack = case(RUN).scenario.stack
    held = quote(case(RUN).rows, case(RUN).scenario, case(RUN).assignment).footprint
    seen = (1.25 * float(np.max(held.allocated)) + stack.allocator.reserved + float(np.max(held.waiting))) / 2**30
    path = tmp_path / "runs.jsonl"
    rows = [run(id=str(n), measured={"memory": seen, "memory_kind": "nvidia-smi"}) for n in range(10)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert caches([path]) == {"megatron-core": (pytest.approx(0.25), 10)}
    path.write_text("\n".join(map(json.dumps, rows[:9])))
    assert caches([path]) == {}


def test_a_utilisation_of_a_known_convention_is_a_time():
    seconds = only(judge_row(run(measured={"iteration_time_s": 2.0})), "iteration_time").measured
    mapped = case(RUN)
    scenario = mapped.scenario
    flops = scenario.tokens * model_flops(scenario.model, seq_length=scenario.seq_length)
    batch = {"global_batch_size": scenario.global_batch_size, "seq_length": scenario.seq_length}
    computed = flops_per_iteration(scenario.model, **batch, definition="hardware", recompute="full")
    tflops = flops / (seconds * scenario.gpus) / 1e12
    blank = {"iteration_time_s": None}
    for measured in (
        {"tflops_per_gpu": tflops, "flops_convention": "model"},
        {"mfu": tflops / 500.0, "mfu_peak_tflops": 500.0},
        {"mfu": tflops * 1e12 / scenario.group.accelerator.half_rate},
        {"hfu": tflops * 1e12 / scenario.group.accelerator.half_rate * computed / flops},  # all layers are repeated
    ):
        verdict = only(judge_row(run(measured={**blank, **measured})), "iteration_time")
        assert verdict.measured == pytest.approx(seconds, rel=1e-9)
        assert any("derived from the stated efficiency" in note for note in verdict.notes)


def test_a_utilisation_of_an_unknown_convention_says_nothing():
    measured = {"iteration_time_s": None, "tflops_per_gpu": 100.0, "flops_convention": "unknown"}
    assert [verdict.reason for verdict in judge_row(run(measured=measured))] == ["nothing measured"]


def test_nodes_of_another_size_are_other_machines():
    """Four H200 are joined in pairs, eight by a switch; the network begins behind the fourth."""
    said = {"accelerator": "h200-sxm", "inter_node": "NDR 400Gb/s InfiniBand"}
    four = case(run(cluster={**said, "gpus_per_node": 4})).scenario.group
    eight = case(run(cluster={**said, "gpus_per_node": 8})).scenario.group
    assert (four.gpus_per_node, four.tiers[0].domain, four.tiers[0].link.mesh) == (4, 4, 4)
    assert (eight.gpus_per_node, eight.tiers[0].domain, eight.tiers[0].link.mesh) == (8, 8, 0)


def test_the_words_on_a_network_choose_its_link():
    said = {"inter_node": "4x Omni-Path 100Gb/s per node"}
    link = case(run(cluster=said)).scenario.group.tiers[-1].link
    assert "ib-edr100" in link.source
    assert link.bandwidth == pytest.approx(6.25e9)


def test_runs_of_a_fork_have_the_vocabulary_of_its_scripts_where_they_say_none():
    fork = {"framework": "Megatron-LM fork (sail-sg)"}
    unsaid = case(run(stack=fork, model={"vocab_size": None, "tied_embeddings": None}))
    assert unsaid.scenario.model.vocab_size == 32_000
    assert not unsaid.scenario.model.tied_embeddings
    assert any("32000" in note for note in unsaid.notes)
    assert case(run(stack=fork)).scenario.model.vocab_size == 51_200
    assert case(run(model={"vocab_size": None})).scenario.model.vocab_size == 51_200


def test_what_a_run_held_when_it_failed_is_told_but_not_scored():
    row = run(measured={"memory": 40.0, "memory_kind": "peak GB per GPU", "oom": True})
    scored = {verdict.metric: verdict.scored for verdict in judge_row(row)}
    assert scored == {"iteration_time": True, "memory": False, "fits": True}


def test_runs_are_read_from_a_pipe():
    rows = "\n".join(json.dumps(row) for row in (run(id="a"), run(id="b")))
    done = CliRunner().invoke(main, ["validate", "-", "--format", "json"], input=rows)
    assert {row["id"] for row in json.loads(done.stdout)["rows"]} == {"a", "b"}
    assert "-: no runs in it" in CliRunner().invoke(main, ["validate", "-"], input="").stderr
