"""Where nobody says a batch, it is the one that the model was trained with, if anybody published it."""

from costmodels.model.catalogue import model as find_model
from costmodels.model.catalogue import names
from planner import PlanRequest, plan
from planner.request.batches import BATCH_TOKENS_PER_GPU, NEAR_BATCH, default_batch, near_batch
from planner.request.resolve import resolve
from tests.each import each


def asked(**fields):
    return resolve(PlanRequest(**({"model": "deepseek-v3", "gpus": 2048} | fields)))


@each(
    ("model", "gpus", "batch"),
    [
        ("deepseek-v3", 2048, 15360),
        ("llama3.1-405b", 16384, 2048),
        ("llama2-70b", 2048, 1024),
        ("gpt3-175b", 1024, 1536),
        ("nemotron4-340b", 6144, 2304),
        ("kimi-k2", 4096, 16384),
        ("bloom", 384, 2048),
        ("opt-175b", 96, 1024),
        ("mt-nlg", 2240, 1920),
        ("yuan1-245b", 2128, 3360),
    ],
)
def test_published_batches_are_taken_and_said(model, gpus, batch):
    found = asked(model=model, gpus=gpus)
    assert found.scenario.global_batch_size == batch
    assert f"global batch {batch} sequences (the batch it was trained with)" in found.defaults


@each(
    ("fields", "batch", "said"),
    [
        ({"model": "bloom", "gpus": 384, "stack": "fsdp"}, 2112, "as near as the GPUs divide"),
        ({"model": "bloom", "gpus": 1000}, 2000, "as near as the GPUs divide"),
        ({"model": "llama-7b", "gpus": 384}, 2112, "as near as the GPUs divide"),
        ({"model": "llama2-70b", "gpus": 384}, 1056, "as near as the GPUs divide"),
        ({"model": "kimi-k2", "gpus": 384}, 16512, "as near as the GPUs divide"),
        ({"model": "bloom", "gpus": 6144}, 3072, "1024 tokens per GPU"),
        ({"model": "palm-540b", "gpus": 6144, "cluster": "dgx-h100"}, 3072, "1024 tokens per GPU"),
        ({"model": "palm-540b", "gpus": 3072, "cluster": "tpu-v4-pod"}, 2112, "as near as the GPUs divide"),
    ],
)
def test_a_batch_is_not_exact_where_that_leaves_no_good_degrees(fields, batch, said):
    found = asked(**fields)
    assert found.scenario.global_batch_size == batch
    assert any(said in line for line in found.defaults if line.startswith("global batch"))


@each(
    ("pins", "batch"),
    [
        ({"tp": 4, "pp": 12}, 2048),
        ({"tp": 8}, 2112),
        ({"tp": 8, "pp": 1}, 2112),
        ({"pp": "6,12"}, 2112),
        ({"dp": 8}, 2112),
        ({"offload": "optimizer", "vpp": 2}, 2048),
    ],
)
def test_a_batch_is_divided_by_the_degrees_that_are_pinned(pins, batch):
    assert asked(model="bloom", gpus=384, pins=pins).scenario.global_batch_size == batch


@each(("model", "gpus"), [("bloom", 384), ("opt-175b", 96), ("mt-nlg", 2240)])
def test_an_exact_batch_is_hardly_slower_than_one_that_all_degrees_divide(model, gpus):
    asked = PlanRequest(model=model, gpus=gpus, cluster="dgx-a100-80gb", reasons=False)
    exact = plan(asked)
    near = plan(asked.model_copy(update={"global_batch_size": near_batch(find_model(model), gpus, 2048)}))
    assert exact.request["global_batch_size"] != near.request["global_batch_size"]
    seconds = [one.prediction.iteration_seconds / one.request["global_batch_size"] for one in (exact, near)]
    assert seconds[0] < 1.03 * seconds[1]


def test_a_rule_of_tokens_holds_for_models_of_which_nobody_published_it():
    found = asked(model="qwen3-235b-a22b", gpus=256)
    assert found.scenario.global_batch_size == default_batch(256, found.scenario.seq_length)
    assert any(line.startswith("global batch") and "1024 tokens per GPU" in line for line in found.defaults)


def test_so_many_gpus_that_each_has_few_tokens_take_a_larger_batch():
    found = asked(model="gpt3-175b", gpus=12288)
    assert found.scenario.global_batch_size * 2048 == BATCH_TOKENS_PER_GPU * 12288
    assert not any("trained with" in line for line in found.defaults)


def test_other_lengths_have_as_many_tokens():
    found = asked(seq_length=8192)
    assert found.scenario.global_batch_size == 15360 // 2
    assert any("the batch it was trained with, 62.9 M tokens" in line for line in found.defaults)


@each("name", [name for name in names() if find_model(name).batch_tokens])
def test_every_published_batch_is_near_and_its_parts_are_a_replica_s_each(name):
    model = find_model(name)
    assert model.batch_tokens % model.seq_length == 0 or model.seq_length > 4096
    for gpus in (8, 48, 96, 384, 1024):
        batch = near_batch(model, gpus, model.seq_length)
        if batch is None:
            assert model.batch_tokens < BATCH_TOKENS_PER_GPU * gpus
            continue
        wanted = model.batch_tokens / model.seq_length
        assert abs(batch - wanted) <= NEAR_BATCH * wanted
        odd = gpus // (gpus & -gpus)
        assert batch % odd == 0


def test_who_says_a_batch_or_fine_tunes_gets_that():
    assert asked(global_batch_size=512).scenario.global_batch_size == 512
    assert asked(model="llama2-70b", gpus=64, adapters="16").scenario.global_batch_size == 64
