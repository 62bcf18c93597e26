"""What the table of the Ultra-Scale Playbook counts, and the machines behind it."""

import pytest

from planner.frameworks.nanotron import stage_layers
from planner.runs.judge import judge_row
from planner.runs.words.mapping import case
from planner.runs.words.nanotron_words import as_networked, counted_beyond
from tests.planner.measured_run import run

SOURCE = "nanotron docs/benchmark_summary.svg"
SIZES = {"hidden_size": 2048, "num_layers": 16, "num_heads": 32, "num_query_groups": 32, "ffn_hidden_size": 8192}
MODEL = SIZES | {"gated_ffn": True, "vocab_size": 131072, "seq_length": 4096, "tied_embeddings": True}


def tabled(pp=1, tied=True, **sections):
    plan = {"gpus": 8, "tp": 1, "pp": pp, "dp": 8 // pp, "micro_batch_size": 1, "global_batch_size": 256}
    plan |= {
        "vpp": 1,
        "zero_stage": 1,
        "sharding_degree": 8 // pp,
        "recompute": "none",
        "schedule": "1f1b" if pp > 1 else "none",
    }
    model = MODEL | {"tied_embeddings": tied}
    return run(source=SOURCE, stack={"framework": "nanotron v0.5"}, model=model, strategy=plan, **sections)


@pytest.mark.parametrize(
    ("pp", "tied", "utilisation", "rate"),
    [(1, True, 0.383, 39_273), (2, True, 0.433, 37_995), (1, False, 0.443, 38_895)],
)
def test_its_utilisation_is_the_rate_that_its_figure_shows(pp, tied, utilisation, rate):
    """Of 1.34B on one node; untied it would count as much as tied at both ends of a pipeline."""
    said = {"iteration_time_s": None, "tokens_per_s_per_gpu": None, "mfu": utilisation, "mfu_peak_tflops": 989}
    seconds = next(v.measured for v in judge_row(tabled(pp, tied, measured=said)) if v.metric == "iteration_time")
    assert seconds == pytest.approx(256 * 4096 / 8 / rate, rel=2e-3)


def test_other_tables_count_what_they_say():
    model = case(tabled()).scenario.model
    assert counted_beyond(run(source="another"), model) == 0.0
    assert counted_beyond(tabled(pp=2), model) == 6 * 131072 * 2048


def test_its_nodes_are_joined_by_what_its_jobs_measured():
    filled = {**tabled(cluster={"inter_node": "8x NDR 400Gb/s InfiniBand"}), "filled": ["hardware.inter_node"]}
    assert "ultrascale" in case(filled).scenario.group.tiers[-1].link.source
    told = {**filled, "filled": []}
    assert as_networked(told) is told


def test_its_stages_end_where_their_share_is_reached():
    model = case(tabled()).scenario.model
    assert case(tabled(pp=2)).assignment.layers.tolist() == stage_layers(model, 2, reached=True) == [10, 6]
    assert stage_layers(model, 2) == [11, 5]
    assert stage_layers(model, 4, reached=True) == [5, 5, 5, 1]
