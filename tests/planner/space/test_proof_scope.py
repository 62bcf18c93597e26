"""What a proof covers is said: nothing of what the request pins, nothing that a rule refuses anyway."""

import pytest

from planner import PlanRequest, plan
from planner.answer.headline import headline
from planner.space import lattice
from tests.scenarios import toy_cluster, toy_model, toy_stack

SHORT = {
    "model": "moonlight-16b-a3b",
    "gpus": 4,
    "cluster": "dgx-a100-80gb",
    "global_batch_size": 64,
    "memory_margin": 0.05,
}


@pytest.fixture(autouse=True, scope="module")
def usual_kinds_of_context_parallelism():
    """Short sequences are split as they are outside of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "LONG_SEQUENCE", 8192)
        yield


def ask(**changes):
    usual = {"model": "llama3-8b", "gpus": 16, "global_batch_size": 64, "reasons": False}
    return plan(PlanRequest(**(usual | changes)))


def scope(**changes):
    return ask(**changes).proof.scope


@pytest.fixture(name="short", scope="module")
def fixture_short():
    """The plan of a model that fits without offloading."""
    return ask(ties="fastest")


def test_a_proof_without_offloading_says_so_where_the_plan_is_called_the_best(short):
    assert short.proof.statement.endswith(" s without offloading")
    assert short.proof.scope[0] == "without offloading"


def test_a_proof_with_offloading_does_not_leave_it_out():
    wider = ask(**SHORT, pins={"offload": "any"})
    assert "offloading" not in " ".join((wider.proof.statement, *wider.proof.scope))


def test_a_stack_that_offloads_nothing_leaves_nothing_of_it_out():
    assert "without offloading" not in scope(stack="megatron-lm-2022")
    assert "without offloading" not in scope(stack="fsdp", pins={"zero_stage": 1})


@pytest.mark.parametrize(
    ("phrase", "asked", "pins"),
    [
        ("without layers recomputed together", {}, {"recompute_num_layers": 1}),
        ("with states sharded over all data ranks or within 8 GPUs", {}, {"sharding_degree": "2.."}),
        ("with context parallelism by p2p alone", {"seq_length": 4096}, {"cp_kind": "p2p"}),
        ("with no modules named for recomputation but layernorm", {}, {"recompute_modules": "none"}),
        ("with micro-batches of at most 64 sequences", {"global_batch_size": 128}, {"micro_batch_size": 1}),
        ("with experts over 1, 2, 4 or 8 tensor ranks", {"model": "mixtral-8x7b"}, {"etp": 1}),
    ],
)
def test_an_axis_that_is_not_laid_out_whole_is_said_unless_it_is_pinned(phrase, asked, pins):
    assert phrase in scope(**asked)
    assert phrase not in scope(**asked, pins=pins)


def test_gradients_are_sharded_over_halves_and_quarters_too_and_the_statement_says_what_else_was_not_tried():
    usual = {"model": "opt-175b", "gpus": 992, "cluster": "dgx-a100", "stack": "fsdp", "ties": "fastest"}
    usual |= {"global_batch_size": 992, "seq_length": 2048, "memory_margin": 0.0}
    found = ask(**usual)
    any_degree = ask(**usual, pins={"sharding_degree": "1.."})
    assert found.value == pytest.approx(any_degree.value)
    said = "with states sharded over all data ranks or within 8, 32, 248 or 496 GPUs"
    assert said in found.proof.statement
    assert said in headline(found)
    assert "sharded" not in any_degree.proof.statement + headline(any_degree)


def test_optimizer_states_alone_are_sharded_over_few_or_all_and_the_statement_leaves_that_out():
    found = ask()
    assert "within 8 GPUs" in " ".join(found.proof.scope)
    assert "sharded" not in found.proof.statement


def test_what_rules_refuse_anyway_is_not_called_left_out():
    alone = " ".join(scope(seq_length=4096, pins={"cp": 1, "zero_stage": 0, "recompute": "partial"}))
    for word in ("context", "sharded", "modules", "together", "micro-batches"):
        assert word not in alone


def test_a_long_sequence_is_split_in_every_way():
    assert "context parallelism" not in " ".join(scope(seq_length=8192))


def test_the_least_memory_is_of_even_splits_where_layers_are_unlike():
    unlike = scope(model="nemotron-h-8b", objective="memory")
    assert "with layers split evenly over the stages" in unlike
    assert "with layers split evenly over the stages" not in scope(objective="memory")
    assert not any("split evenly" in said for said in scope(model="nemotron-h-8b", objective="memory", pins={"pp": 1}))
    assert "with all layers recomputed or none" in scope(objective="memory")
    assert "with all layers recomputed or none" not in scope()


@pytest.mark.parametrize("uneven", [False, True])
def test_the_least_memory_is_of_even_splits_where_stages_that_may_differ_hold_two_pieces(uneven):
    stack = toy_stack(schedules=("none", "dualpipe"), uneven_stages=uneven)
    asked = {"model": toy_model(), "cluster": toy_cluster(), "stack": stack, "gpus": 8, "global_batch_size": 16}
    said = plan(PlanRequest(**asked, objective="memory", reasons=False)).proof.scope
    assert ("with layers split evenly where stages hold two pieces of the model" in said) == uneven


def test_several_node_groups_leave_out_what_one_does_but_name_what_they_lack():
    mixed = ask(cluster="a100-h100-mixed", gpus=128)
    assert mixed.proof.scope[0] == "among strategies over all node groups with as many ranks on every stage"
    assert "without offloading" not in mixed.proof.scope
    assert any(said.startswith("with states sharded over all") for said in mixed.proof.scope)


def test_a_lattice_that_is_whole_leaves_nothing_out():
    bare = toy_stack(zero_stages=(0,), recompute_modules=(), recompute_groups=False, offloads=())
    answer = plan(PlanRequest(model=toy_model(), cluster=toy_cluster(), stack=bare, gpus=8, global_batch_size=16))
    assert answer.proof.scope == ()
    assert answer.proof.statement.endswith(" s")
