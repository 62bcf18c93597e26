"""How long sequences are where a model's description leaves it open."""

import json

import pytest

from hardware.errors import BadFile
from planner.render.terminal.dry_run import lines
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.studies.study_file import study_of


@pytest.fixture
def config(tmp_path):
    """Writes a Hugging Face configuration whose positions reach that far."""

    def written(reach):
        sizes = {"hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 32000, "num_attention_heads": 16}
        path = tmp_path / "config.json"
        more = {"intermediate_size": 5504, "max_position_embeddings": reach}
        path.write_text(json.dumps({"model_type": "llama", **sizes, **more}))
        return str(path)

    return written


def test_a_length_that_is_asked_for_serves_where_a_configuration_says_none(config):
    with pytest.raises(BadFile, match="max_position_embeddings: missing"):
        resolve(PlanRequest(model=config(None), gpus=8))
    assert resolve(PlanRequest(model=config(None), gpus=8, seq_length=16384)).scenario.seq_length == 16384
    studied = study_of({"model": config(None), "gpus": 8, "seq_len": [2048, 4096], "model.qkv_bias": [True, False]})
    assert studied.product == 4


@pytest.mark.parametrize(
    ("reach", "length", "whose"),
    [(4096, 4096, "the model's"), (131072, 8192, "the model reaches 131072; --seq-len asks for more")],
)
def test_a_length_that_is_less_than_positions_reach_is_said_to_be(config, reach, length, whose):
    asked = PlanRequest(model=config(reach), gpus=8)
    assert f"sequence length {length} ({whose})" in resolve(asked).defaults
    assert ("seq_length", str(length), whose) in lines(asked, {}, searched=False)
    longer = PlanRequest(model=config(reach), gpus=8, seq_length=16384)
    assert "sequence length" not in " ".join(resolve(longer).defaults)
