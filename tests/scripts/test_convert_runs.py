"""Runs in free text become the documents that are shipped; what is not understood is said and nothing is lost."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from convert_runs import convert, main
from run_words.shape_words import from_run

from costmodels.model.model import BadModel
from planner.runs.files import json_lines
from planner.runs.judge import shipped
from planner.runs.schema import run_of
from tests.each import each

WORDS = Path(__file__).parent / "runs_in_words.jsonl.gz"
"""One run of every fourth source, and two that cannot be priced."""
ROW = {
    "id": "one",
    "source": "our log of 2025-03",
    "complete": True,
    "cluster": {"accelerator": "h100-sxm", "gpus_per_node": 8, "inter_node": "8x NDR 400 Gb/s; painted blue"},
    "stack": {"framework": "Megatron-Core", "attention": True, "notes": "selective quiescence of the flux"},
    "model": {
        "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "num_query_groups": 16, "ffn_hidden_size": 8192,
        "gated_ffn": False, "vocab_size": 51200, "seq_length": 2048, "tied_embeddings": True, "position": "rope",
    },
    "strategy": {
        "gpus": 16, "tp": 2, "pp": 2, "dp": 4, "zero_stage": 1, "micro_batch_size": 2, "global_batch_size": 64,
        "schedule": "1f1b", "precision": "bf16", "recompute": "full", "sequence_parallel": True,
    },
    "measured": {"tokens_per_s_per_gpu": 8192.0, "memory": 40.0, "memory_kind": "nvidia-smi, rank-0"},
}  # fmt: skip


def row(**changes):
    return {name: {**value, **changes[name]} if name in changes else value for name, value in ROW.items()} | {
        name: value for name, value in changes.items() if name not in ROW
    }


def converted(tmp_path, *rows):
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return convert([path])


@cache
def documents():
    return {(one["group"], one["id"]): one for path in shipped() for _, one in json_lines(path)}


ROUNDING = "measured.rounding", "measured.peak_memory.rounding"
HOSTS = "request.cluster.host_memory", "request.cluster.host_bandwidth"
OF_THE_GROUP = "source.publication", "source.kind", "source.published"
OTHERWISE = *ROUNDING, *HOSTS, *OF_THE_GROUP, "derived_from", "not_fitted", "constants", "source.printed", "unread"
"""The other runs of a group tell digits; people chose what is fitted to and what is shown, and read on. The catalogue
knows more hosts than when the runs were converted."""


def without(document, paths):
    """The document without what is at some paths, of which names in ``changes`` have points."""
    kept = json.loads(json.dumps(document))
    for path in paths:
        inner = kept
        for name in path.split(".", 2 if ".changes." in path else -1):
            holder, inner = inner, inner.get(name, {}) if isinstance(inner, dict) else {}
            if inner == {}:
                break
        if isinstance(holder, dict):
            holder.pop(name, None)
    return {name: value for name, value in kept.items() if value}


def test_runs_of_many_sources_become_the_documents_that_are_shipped():
    """But for what somebody completed with a reason, of which no rule of the converter knows."""
    made = convert([WORDS])
    assert len(made) > 40
    assert sum("unpriced" in document for document in made) >= 2
    for document in made:
        shipped = documents()[document["group"], document["id"]]
        here, there = (one.get("assumed", {}) for one in (document, shipped))
        completed = [path for path in {**here, **there} if here.get(path) != there.get(path)]
        told = ("assumed", "said") if completed else ()
        found, known = (without(one, [*OTHERWISE, *completed, *told]) for one in (document, shipped))
        assert found == known, document["id"]
        assert not set(shipped.get("said", ())) & set(completed)


def test_a_run_says_what_was_said_assumed_and_not_understood(tmp_path):
    (document,) = converted(tmp_path, row())
    run = run_of(document)
    assert run.group == "old.jsonl"
    assert run.source.date == "2025-03"
    assert run.request.stack == "megatron-core@2025-03"
    assert run.measured.iteration_seconds == 64 * 2048 / (16 * 8192.0)
    assert run.derived_from == "tokens_per_s_per_gpu 8192"
    assert (run.measured.peak_memory.kind, run.measured.peak_memory.stage) == ("device", 0)
    assert run.measured.peak_memory.bytes == 40 * 2.0**30
    assert {"request.gpus", "request.pins.tp", "request.precision"} <= set(run.said)
    assert set(run.assumed) >= {"request.stack", "request.layers_per_stage"}
    assert not set(run.said) & set(run.assumed)
    assert {"cluster.inter_node: painted blue", "stack.notes: selective quiescence of the flux"} <= set(run.unread)
    assert not any("NDR" in clause for clause in run.unread)


def test_a_field_that_nothing_reads_is_unread(tmp_path):
    (document,) = converted(tmp_path, row(strategy={"recomptue": "full"}))
    assert "strategy.recomptue is not read; did you mean recompute?" in document["unread"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy": {"gpus": None}}, "gpus is not stated"),
        ({"cluster": {"accelerator": "abacus"}}, "accelerator abacus is not in the catalogue"),
        ({"strategy": {"tp": "eight"}}, "strategy.tp: expected a whole number from 1, got 'eight'"),
        ({"measured": {"tokens_per_s_per_gpu": None, "memory": None}}, "nothing measured"),
    ],
)
def test_a_run_that_makes_no_request_is_kept_with_the_reason_and_told(tmp_path, capsys, changes, reason):
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(row(**changes)) + "\n" + json.dumps({**ROW, "id": "two"}) + "\n")
    assert main([str(path), "-o", str(tmp_path / "new.jsonl")]) == 0
    said = capsys.readouterr().err
    assert said == f"old.jsonl one: not converted: {reason}\n"
    lost, kept = [run_of(json.loads(line)) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert (lost.id, lost.unpriced) == ("one", reason)
    assert (kept.id, kept.unpriced) == ("two", "")


def test_a_file_that_holds_no_runs_ends_with_one_line(tmp_path, capsys):
    path = tmp_path / "old.jsonl"
    path.write_text("not json\n")
    assert main([str(path), "-o", str(tmp_path / "new.jsonl.gz")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_packed_file_has_the_same_bytes_every_time(tmp_path):
    targets = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for target in targets:
        main([str(WORDS), "-o", str(target)])
    first, second = (target.read_bytes() for target in targets)
    assert first == second
    assert len(gzip.decompress(first).splitlines()) == len(convert([WORDS]))


@pytest.mark.parametrize(
    ("words", "kind", "size"),
    [
        ("max_memory_allocated", "allocated", 2.0**30),
        ("peak GiB, max_memory_reserved", "reserved", 2.0**30),
        ("NVML, GB", "device", 2.0**30),
        ("MiB, nvidia-smi", "device", 2.0**20),
        ("whole GB as printed (GB or GiB not stated)", "allocated", 1e9),
        ("GB, sum over all GPUs", "allocated", 1e9 / 16),
        ("%", "device", 0.01 * 80 * 2.0**30),
    ],
)
def test_words_on_a_memory_figure_say_what_it_is(tmp_path, words, kind, size):
    changes = {"cluster": {"memory_gb": 80}, "measured": {"memory": 10.0, "memory_kind": words}}
    (document,) = converted(tmp_path, row(**changes))
    peak = document["measured"]["peak_memory"]
    assert (peak["kind"], peak["bytes"]) == (kind, pytest.approx(10.0 * size))


@each(
    ("words", "rate"),
    [
        ("8x HDR 200 Gb/s", 25e9),
        ("800 Gb/s per node", 12.5e9),
        ("50 Gb/s Ethernet", 50e9 / 8 / 8),
        ("3.2 Tb/s per node", 50e9),
        ("InfiniBand NDR400 x8", 50e9),
        ("single HDR 200Gb/s NIC", 25e9 / 8),
        ("InfiniBand (not detailed)", None),
    ],
)
def test_a_network_in_words_is_bytes_per_second_and_gpu(words, rate):
    from run_words.network_words import lane_bandwidth

    assert lane_bandwidth(words, 8) == (rate and pytest.approx(rate))


def test_a_utilisation_is_a_time_by_its_convention(tmp_path):
    blank = {"tokens_per_s_per_gpu": None, "memory": None}
    told = {"model": {"tflops_per_gpu": 200.0, "flops_convention": "model"}, "unknown": {"tflops_per_gpu": 200.0}}
    told["unknown"]["flops_convention"] = "unknown"
    hardware = {"tflops_per_gpu": 200.0, "flops_convention": "hardware, with recompute"}
    (plainly,), (counted,), (none,) = (
        converted(tmp_path, row(measured=blank | said)) for said in (told["model"], hardware, told["unknown"])
    )
    assert counted["measured"]["iteration_seconds"] > 1.2 * plainly["measured"]["iteration_seconds"]
    assert plainly["derived_from"] == "tflops_per_gpu 200, FLOP convention model"
    assert none["unpriced"] == "nothing measured"


NEMOTRON = {
    "num_layers": 32, "hidden_size": 6144, "num_heads": 48, "num_query_groups": 8, "ffn_hidden_size": 24576,
    "gated_ffn": False, "vocab_size": 256000, "seq_length": 4096, "params_b": 15.6,
}  # fmt: skip


def test_the_size_of_a_measured_run_settles_whether_its_head_is_shared():
    assert not from_run(NEMOTRON).tied_embeddings
    assert from_run(NEMOTRON | {"params_b": 14.1}).tied_embeddings
    assert from_run(NEMOTRON | {"tied_embeddings": True}).tied_embeddings
    assert from_run(NEMOTRON | {"params_b": None}).tied_embeddings


def test_a_rounded_size_does_not_overrule_the_usual_head():
    gpt3 = {"num_layers": 96, "hidden_size": 12288, "num_heads": 96, "vocab_size": 51200, "seq_length": 2048}
    assert from_run(gpt3 | {"params_b": 175}).tied_embeddings


def test_an_unsaid_vocabulary_of_a_measured_run_is_megatrons():
    run = NEMOTRON | {"vocab_size": None, "params_b": None}
    assert from_run(run).vocab_size == 51200


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "moe"}, "not those of a model of kind 'moe'"),
        ({"kind": "dense", "experts": 8, "top_k": 2, "expert_ffn": 64}, "not those of a model of kind 'dense'"),
        ({"kind": "moe-hybrid-mamba2"}, "of kind 'moe-hybrid-mamba2'"),
        ({"kind": "encoder"}, "of kind 'encoder'; known are dense, moe, dense-hybrid-mamba2"),
        ({"kind": ["moe"]}, "known are dense, moe"),
    ],
)
def test_a_kind_of_model_that_its_sizes_contradict_is_refused(changes, reason):
    with pytest.raises(BadModel, match=reason):
        from_run(NEMOTRON | changes)
