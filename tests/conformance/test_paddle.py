"""PaddleFormers: its training arguments on exported JSON, up to the call that would open communication."""

import json

import paddle
import pytest
from paddle.distributed import fleet
from paddleformers.trainer import PdArgumentParser, TrainingArguments

from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans

PLANS = random_plans("paddle", 240, seed=17, precisions=("bf16", "fp16"))
DEGREES = ("mp_degree", "pp_degree", "sharding_degree", "dp_degree")


class Stopped(Exception):
    """Before communication."""


@pytest.fixture
def understood(monkeypatch, tmp_path):
    """The training arguments' strategy for a world of that size."""
    paddle.set_device("cpu")
    kept = {}

    def stop(*_a, strategy=None, **_k):
        kept["strategy"] = strategy
        raise Stopped

    def read(text, world):
        path = tmp_path / "args.json"
        path.write_text(json.dumps(json.loads(text) | {"output_dir": str(tmp_path / "out"), "device": "cpu"}))
        monkeypatch.setattr(paddle.distributed, "get_world_size", lambda *_a: world)
        monkeypatch.setattr(fleet, "init", stop)
        try:
            (made,) = PdArgumentParser(TrainingArguments).parse_json_file(str(path))
        except Stopped:
            return kept["strategy"], None
        return None, made

    return read


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_paddle_understands_the_plan(plan, understood):
    at, text = plan.strategy, export(plan, "paddle").files["paddle_args.json"]
    strategy, made = understood(text, plan.request["gpus"])
    if strategy is None:
        assert (at.tp, at.pp, at.cp, at.ep, at.zero_stage) == (1, 1, 1, 1, 0), label(plan)
        assert made.per_device_train_batch_size == at.micro_batch_size
        return
    hybrid = strategy.hybrid_configs
    alone = json.loads(export(plan, "paddle").files["hybrid_configs.json"])["hybrid_configs"]
    given = fleet.DistributedStrategy()
    given.hybrid_configs = alone
    if [hybrid[name] for name in DEGREES] != [1, 1, 1, -1]:
        assert [given.hybrid_configs[name] for name in DEGREES] == [hybrid[name] for name in DEGREES], label(plan)
    shared = at.sharding_degree if at.zero_stage else 1
    degrees = [hybrid[name] for name in DEGREES]
    if degrees == [1, 1, 1, -1]:  # what is left over, of data parallelism alone
        degrees[-1] = plan.request["gpus"]
    assert degrees == [at.tp, at.pp, shared, at.dp * at.cp // shared], label(plan)
    assert hybrid.get("cp_degree", 1) in {at.cp, 1} if at.cp == 1 else hybrid["cp_degree"] == at.cp
    if at.ep > 1:
        assert hybrid["ep_degree"] == at.ep
    if at.pp > 1:
        assert strategy.pipeline_configs["accumulate_steps"] == at.num_microbatches
        assert strategy.pipeline_configs["micro_batch_size"] == at.micro_batch_size
        placed(strategy.hybrid_parallel_order, at)


def placed(given, at):
    """The order of the axes, outside to inside."""
    order = [name for name in given if name in {"dp", "pp", "sharding", "mp"}]
    inside = at.rank_order == "tp-cp-ep-pp-dp"
    assert order == (["dp", "sharding", "pp", "mp"] if inside else ["dp", "pp", "sharding", "mp"])


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"sharding": "stage3"}, ValueError, "pipeline parallel is not compatible for sharding stage2 or stage3"),
        ({"expert_tensor_model_parallel_size": 2}, AssertionError, "only support expert_tensor_model_parallel_size=1"),
    ],
)
def test_a_mutated_export_is_refused(wrong, error, said, understood):
    plan = next(plan for plan in PLANS if plan.strategy.pp > 1 and plan.strategy.zero_stage == 1)
    text = json.dumps(json.loads(export(plan, "paddle").files["paddle_args.json"]) | wrong)
    with pytest.raises(error, match=said):
        understood(text, plan.request["gpus"])
