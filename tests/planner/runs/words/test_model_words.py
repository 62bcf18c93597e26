"""What the words of a measured run say of its model."""

from costmodels.model.parameters import from_run
from planner.runs.words.mapping import case
from planner.runs.words.model_words import WINDOW, as_described
from tests.planner.measured_run import run

PALM = {
    "name": "PaLM", "num_layers": 118, "hidden_size": 18432, "num_heads": 48, "num_query_groups": 1,
    "ffn_hidden_size": 73728, "gated_ffn": True, "vocab_size": 256000, "seq_length": 2048,
}  # fmt: skip


def described(said, **shape):
    notes = []
    return as_described(from_run(PALM | shape), PALM | shape | {"notes": said}, notes), notes


def test_a_parallel_block_is_read_in_either_spelling():
    for said in ("parallel block", "parallel attention+MLP block, no biases", "Parallel attention + MLP block"):
        assert described(said)[0].parallel_block
    assert not described("tensor parallel blocks of 8")[0].parallel_block


def test_a_window_without_a_size_is_assumed_and_said():
    model, notes = described("parallel block and sliding-window attention")
    assert model.sliding_window == WINDOW
    assert any(str(WINDOW) in note for note in notes)
    assert described("sliding-window attention", seq_length=1024)[0].sliding_window is None


def test_the_width_of_a_head_is_read_unless_the_row_has_it():
    assert described("head dimension 256")[0].head_dim == 256
    assert described("head dimension 256", head_dim=384)[0].head_dim == 384


def test_a_mapped_run_tells_what_was_read():
    row = run()
    row["model"] = row["model"] | {"notes": "parallel block"}
    mapped = case(row)
    assert mapped.scenario.model.parallel_block
    assert "attention and MLP of a layer side by side, by the notes" in mapped.notes
