"""Images with text: asked for by number, described in a line, refused where nothing could encode them."""

import pytest

from planner.errors import BadRequest
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from tests.costmodels.configs import small
from tests.each import each

TOWER = {"num_layers": 4, "hidden_size": 512, "num_heads": 8, "ffn_hidden_size": 2048, "parameters": 13_000_000}


def asked(tower=TOWER, **more):
    from costmodels.model.huggingface import from_config

    model = from_config(small("llama"), seq_length=4096)
    return PlanRequest(model=model.model_copy(update={"tower": tower_of(tower)}), gpus=8, seq_length=4096, **more)


def tower_of(fields):
    from costmodels.model.mechanisms import VisionTower

    return None if fields is None else VisionTower(**fields)


def line(**more):
    return next(said for said in resolve(asked(**more)).defaults if "vision tower" in said)


def test_text_alone_says_how_images_are_given():
    assert line() == "text alone, without the vision tower of 13 M parameters (--images-per-sample N prices it)"


def test_images_say_whether_the_tower_trains_and_how_large_they_are():
    frozen = line(images_per_sample=1)
    assert "13 M parameters is frozen and runs forward only (--train-tower), on the first stage: 1 image a" in frozen
    assert "1,024 tokens each, within the sequence (assumed; --image-tokens)" in frozen
    assert "trains, on the first stage: 2 images a sample, 256 tokens each, within the sequence;" in line(
        images_per_sample=2, image_tokens=256, train_tower=True
    )


@each(
    ("more", "said"),
    [
        ({"tower": None, "images_per_sample": 1}, "images_per_sample: .* has no vision tower whose sizes are known"),
        ({"tower": None, "image_tokens": 256}, "image_tokens: .* has no vision tower whose sizes are known"),
        ({"image_tokens": 256}, "image_tokens without images changes nothing"),
        ({"images_per_sample": 5000}, "the sequence of 4096; a longer one, or fewer images, would do"),
        (
            {"images_per_sample": 5},
            "5 of 1024 tokens are more than the sequence of 4096; .* image_tokens 819, would do",
        ),
        ({"train_tower": True}, "train_tower without images changes nothing"),
    ],
)
def test_images_that_nothing_encodes_or_holds_are_refused(more, said):
    with pytest.raises(BadRequest, match=said):
        resolve(asked(**more))
