import io

from rich.console import Console

from planner.render.terminal.reading import Reading, print_reading

MODEL = {
    "name": "given",
    "num_layers": 27,
    "hidden_size": 2048,
    "gated_ffn": True,
    "qkv_bias": False,
    "moe": {"num_experts": 64, "top_k": 6, "router_groups": 1, "shared_expert_gate": False},
}


def shown(**values):
    stream = io.StringIO()
    print_reading(Reading((), values, {}, {}), Console(file=stream, width=80, highlight=False))
    return " ".join(stream.getvalue().split())


def test_a_model_is_said_in_the_words_of_an_engineer_its_experts_apart():
    text = shown(model=MODEL)
    assert "model 27 layers, hidden size 2,048, gated experts 64 experts, top 6" in text
    assert not set("{}'=") & set(text)


def test_switches_that_are_off_are_said_to_be_off():
    assert "dropout on, overlap grad reduce off" in shown(
        changes={"stack.dropout": True, "stack.overlap_grad_reduce": False}
    )


def test_tables_in_a_list_are_said_in_words():
    text = shown(cluster={"gpus_per_node": 8, "tiers": [{"name": "node", "gpus": 8}, {"name": "leaf", "gpus": 256}]})
    assert "tiers gpus 8; gpus 256" in text
    assert not set("{}'=") & set(text)
