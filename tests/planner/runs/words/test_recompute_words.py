"""The words of a measured run on recomputation, as others write them."""

import pytest

from costmodels.layer.recompute_modules import module_mask
from planner.runs.judge import judge_row
from planner.runs.words.mapping import case
from planner.runs.words.recompute_words import kind, modules_named
from tests.planner.measured_run import only, run


@pytest.mark.parametrize(
    "words",
    [
        "gradient_checkpointing: true", "--gradient_checkpointing", "activation checkpointing", "full ac", "remat",
        "enable_activation_checkpointing=True", "checkpoint_activations", "nothing_saveable", "unsloth",
        "uniform, 1 layer", "recompute-granularity full", "activation_checkpointing of Block", "all layers", "true",
        "gradient checkpointing enabled", "checkpointing with CPU off-load", "recomputation",
        "non-reentrant checkpointing",
    ],
)  # fmt: skip
def test_all_layers_are_recomputed_however_it_is_put(words):
    assert kind(words) == "full"


@pytest.mark.parametrize(
    "words",
    ["selective activation checkpointing", "selected modules: feed-forward", "minimal remat", "budget 0.5",
     "attention only", "selective_recompute: true",
     "dots_with_no_batch_dims_saveable", "op-level", "partial: 3 layers"],
)  # fmt: skip
def test_parts_are_recomputed_however_it_is_put(words):
    assert kind(words) == "selective"


@pytest.mark.parametrize(
    "words",
    ["no recompute", "without activation checkpointing", "gradient_checkpointing: false", "checkpointing off",
     "recompute disabled", "none (flash attention)", "use_checkpoint = False", "0"],
)  # fmt: skip
def test_nothing_is_recomputed_however_it_is_put(words):
    assert kind(words) == "none"


@pytest.mark.parametrize("words", ["-", "unknown", "not stated", "?", "default"])
def test_words_that_leave_recomputation_open_say_nothing(words):
    assert kind(words) is None
    row = run(strategy={"recompute": words})
    assert "recomputation none assumed" in case(row).notes


@pytest.mark.parametrize("words", ["sometimes", "12", "a checkbox", "academic", "early stopping"])
def test_words_on_other_things_are_no_kind_of_recomputation(words):
    assert kind(words) == words
    assert "is unknown" in only(judge_row(run(strategy={"recompute": words})), "iteration_time").reason


@pytest.mark.parametrize(
    ("words", "detail"),
    [("full, 12 of 24 layers", "12 of 24 layers"), ("block 3", "block, 3 layers"), ("every 2nd layer", "12/24 layers"),
     ("partial: 3 layers", "block, 3 layers")],
)  # fmt: skip
def test_what_else_is_said_of_the_kind_counts_as_a_detail(words, detail):
    said = run(strategy={"recompute": words})
    known = run(strategy={"recompute": "full", "recompute_detail": detail})
    times = [only(judge_row(row), "iteration_time").predicted for row in (said, known)]
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        ("rmsnorm and mla up-projection", {"layernorm", "mla_up_proj"}),
        ("core attention, swiglu", {"core_attn", "moe_act"}),
        ("selective: ffn", {"mlp"}),
        ("operators recomputed: layer norm", {"layernorm"}),
    ],
)
def test_modules_are_named_in_the_words_of_papers(words, modules):
    assert modules_named(words) == modules


@pytest.mark.parametrize(
    "words",
    ["selected whole blocks", "op level", "layer inputs kept, rest recomputed", "norm of gradients", "none", ""],
)
def test_words_that_are_no_list_of_modules_name_none(words):
    assert modules_named(words) == set()


def test_modules_in_other_words_are_those_that_are_recomputed():
    plan = {"recompute": "selective", "recompute_detail": "core attention and feed-forward"}
    assert case(run(strategy=plan)).rows.recompute_modules[0] == module_mask({"core_attn", "mlp"})


@pytest.mark.parametrize(
    ("words", "moved"),
    [
        ("activation checkpointing w/ CPU offload", True),
        ("unsloth", True),
        ("full, no offload", False),
        ("full", False),
    ],
)
def test_checkpoints_go_to_the_host_where_the_words_say_so(words, moved):
    assert bool(case(run(strategy={"recompute": words})).rows.offload[0]) is moved
