"""What runs say of dropout."""

import pytest

from planner.runs.words.dropout_words import dropout_changes
from planner.runs.words.mapping import case
from tests.planner.measured_run import run


@pytest.mark.parametrize(
    ("flags", "notes", "dropped"),
    [
        ({"hidden_dropout": 0.1, "attention_dropout": "0.1"}, "", True),
        ({"hidden_dropout": "0.0", "attention_dropout": 0.1}, "", False),
        ({"attention_dropout": 0.1}, "", True),
        ({}, "softmax and dropout 0.1; eager", True),
        ({}, "dropout=0", False),
        ({}, "no dropout", False),
        ({}, "LoRA dropout 0.05", None),
        ({}, "no bias/dropout/softmax fusion", None),
        ({"hidden_dropout": "as published"}, "", None),
    ],
)
def test_flags_come_before_words_and_a_share_of_nothing_drops_nothing(flags, notes, dropped):
    found = dropout_changes(run(stack={"framework": "Megatron-LM", "flags": flags, "notes": notes}))
    assert found == ({} if dropped is None else {"dropout": dropped})


def test_a_flag_comes_before_what_a_framework_does_usually():
    row = run(stack={"framework": "Megatron-LM", "flags": {"hidden_dropout": 0.1}}, model={"gated_ffn": True})
    assert case(row).scenario.stack.switches.dropout
