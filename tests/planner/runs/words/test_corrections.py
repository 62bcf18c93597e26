"""What sources say of their runs, where their own times contradict it."""

from planner.runs.words.corrections import UNPADDED, as_committed, as_configured, as_dispatched, as_run, as_timed
from planner.runs.words.mapping import case
from tests.planner.measured_run import run


def test_single_nodes_of_vtrain_recompute_nothing_and_do_not_pad():
    said = run(
        source="vTrain data/ground_truth_single.csv", strategy={"recompute": "full"}, model={"vocab_size": UNPADDED}
    )
    found = case(said)
    assert found.rows.recompute[0] == 0
    assert found.scenario.model.padded_vocab_size == UNPADDED


def test_its_many_nodes_and_every_other_run_are_as_they_say():
    for source in ("vTrain data/ground_truth_multi.csv", "a test"):
        row = run(source=source)
        assert as_timed(row) is row


def test_fms_fsdp_recomputes_the_blocks_that_its_own_counts_say():
    told = {}
    for released in ("2024-05", "2024-02b"):
        for size in ("13B", "34B"):
            source = f"foundation-model-stack/fms-fsdp README ({released}, torch.compile on)"
            said = run(
                source=source, strategy={"recompute_detail": "selected whole blocks"}, model={"name": f"X-{size}"}
            )
            told[released, size] = as_run(said)["strategy"]["recompute_detail"]
    assert told == {
        ("2024-05", "13B"): "full recompute of 13 layers per stage",
        ("2024-05", "34B"): "full recompute of 48 layers per stage",
        ("2024-02b", "13B"): "every second layer",
        ("2024-02b", "34B"): "selected whole blocks",
    }
    other = run(source="a test", strategy={"recompute_detail": "selected whole blocks"})
    assert as_run(other) is other


def test_runs_with_and_without_overlap_had_the_dispatcher_that_heads_their_table():
    source = "Megatron-Bridge skills/ performance study notes (2026), expert-parallel-overlap"
    silent, named = (
        run(source=source, stack={"framework": "Megatron-Bridge", "overlap": words})
        for words in ("EP A2A overlap; CUDA graphs moe_router", "EP A2A overlap; HybridEP 32 SMs")
    )
    assert as_dispatched(silent)["stack"]["overlap"].endswith("moe_router; HybridEP")
    assert as_dispatched(named) is named
    other = run(source="a test")
    assert as_dispatched(other) is other


def test_megatron_lm_s_speed_tests_hold_two_embeddings_by_their_configuration():
    tested = run(source="Megatron-LM tests/functional_tests gpt/gpt3_7b_tp1_pp4_memory_speed golden values")
    tested["model"].pop("tied_embeddings", None)
    assert as_configured(tested)["model"]["tied_embeddings"] is False
    said = {**tested, "model": tested["model"] | {"tied_embeddings": True}}
    assert as_configured(said) is said
    other = run(source="a test")
    assert as_configured(other) is other


def test_megascale_s_baseline_is_the_commit_that_merged_flash_attention():
    source = "Jiang et al. 2024 MegaScale (arXiv 2402.15627) Table 2"
    silent, said, other = (
        run(source=source, stack={"framework": framework, "attention": attention})
        for framework, attention in (("Megatron-LM", None), ("Megatron-LM", False), ("MegaScale", None))
    )
    assert as_committed(silent)["stack"]["attention"] == "v1"
    assert as_committed(said) is said
    assert as_committed(other) is other


def test_products_with_recomputation_would_outrun_the_machine():
    """The times' own figures: a layer of 2048, 8 x 1024 tokens, 16.3 ms on one A100."""
    tokens, h, s, seconds = 8 * 1024, 2048, 1024, 16.3e-3
    pairs, hidden = 16 * s * tokens, tokens * h
    for passes, streams, low, high in ((4, (45, 61), 0.95, 1.0), (3, (32, 42), 0.6, 0.7)):
        flops = passes * (2 * 12 * h * h * tokens + 4 * s * tokens * h)
        moved = (streams[0] * pairs + streams[1] * 2 * hidden) / 1.8e12
        assert low < flops / (seconds - moved) / 312e12 < high
