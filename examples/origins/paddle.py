"""PaddlePaddle's four dimensions: tensor (mp), grouped sharding, pipeline and data; published and predicted.

    python examples/origins/paddle.py

Sources: ERNIE 3.0 Titan (arXiv 2112.12731); documentation of PaddleFleetX and PaddleNLP, 2021 to 2023, and Paddle's
sharding_optimizer.py, on GitHub.

ERNIE 230B ran as a static graph. There sharding inside a pipeline is no sharded optimizer: the graph is given a
broadcast of every parameter in front of each pass that reads it and a reduction of its gradient behind, in every
micro-step, which is what the documentation counts as 3M, and a rank keeps its share of weights, gradients and moments
alone. That is ZeRO stage 3 within pipeline stages, which the dynamic graphs of 2022 and later refuse. With it the
reference run fits its 32 GB, if two layers share one stored input, and in no other way that was found:

    GiB on the first stage                          stage 1   stage 3, one layer an input   two layers
    weights, gradients, 4 bytes of 3.65e9 / 1 or 4     13.6                  3.4                   3.4
    masters and moments, 12 bytes / 4                  10.2                 10.2                  10.2
    matrices whole for the moment                                            1.1                   1.1
    inputs of 4 or 2 layers of 32 micro-batches        12.0                 12.0                   6.0
    a layer or two recomputed, the embedding's mask     3.6                  3.6                   5.1
    runtime and fragments                               3.6                  3.2                   3.0
    of 31.75                                           43.0                 33.6                  28.9

The memory is paid for in time. By stage 3 the four dimensions lose to three on 512 cards, as the documented volumes say
too: of 3M/pp in every micro-step they would lose, and that they win presupposes what stage 1 sends, once an iteration.

The speed of recomputing BERT-Large is not met. Published are 23.94 and 17.82 sequences a second with 18 and 180
sequences: 1 / 0.744 = 1 + 0.344, as if a tenfold batch gained nothing and more than the third of the work that a
forward pass is were repeated. Here the head is not repeated (0.77 at one batch size), and the larger batch saves a
twentieth each on products and on the optimizer (0.84). 23.94 sequences a second are 24 TFLOP/s of a V100, half of
what is predicted, so something else took half of the time. The memory is about right: 18 and 180 sequences are what
32 GB hold there, 24 and 207 here.
"""

from itertools import product
from pathlib import Path

import numpy as np

from costmodels.layout.placement import group_of
from costmodels.names import RANK_ORDERS
from costmodels.primitives.rank_groups import split_group
from costmodels.strategy import Strategies, strategies
from planner import Plan, PlanRequest, predict

HERE = Path(__file__).parent
ORDER = "tp-cp-ep-sharding-pp-dp"
"""mp inside sharding inside pp inside dp."""
STATIC = "paddle-2021"
"""Static graphs, where what is sharded is parameters, gradients and moments."""
ERNIE = {"model": "ernie-230b", "stack": STATIC, "cluster": "v100-dgx1-edr", "precision": "fp16"}
PLANS = {
    "PP64 Sharding4 MP2": {"tp": 2, "pp": 64, "zero_stage": 1, "sharding_degree": 4},
    "DP2 PP32 MP8": {"tp": 8, "pp": 32},
    "DP2 PP32 Sharding4 MP2": {"tp": 2, "pp": 32, "zero_stage": 1, "sharding_degree": 4},
}
"""The three plans of the documentation for 512 cards."""
WHOLE = {"zero_stage": 3}
"""What the static graphs do where the plans have a sharding degree."""
VOLUMES = {
    "PP64 Sharding4 MP2": "2 ms act | (4L/pp act + 3M/pp) ms | 63/(ms+63)",
    "DP2 PP32 MP8": "2 ms act + M/pp | 4L/pp act ms | 31/(ms+31)",
    "DP2 PP32 Sharding4 MP2": "2 ms act + M/pp | (4L/pp act + 3M/pp) ms | 31/(ms+31)",
}
"""What the documentation says a card sends between nodes and inside one, in elements, and the bubble, for ms
micro-steps of act activations. Were 3M/pp sent in every micro-step, the third plan would lose; sharded optimizers
send it once."""
BATCHES = (2048, 4096, 8192, 16384)
NLP = {"llama2-13b": (1, 64, 1975.63, 64294), "llama2-7b": (2, 64, 3755.21, 52092)}
"""Micro-batch, batch, tokens per second and card, MB of the allocator: eight A100, mp2 sharding4."""
BERT = {4: 4841, 8: 4127, 16: 3700}
"""MB of a card with sharding over so many; without sharding 8667."""
BERT_WHOLE = 8667


def four_dimensional(dp: int, pp: int, sharding: int, mp: int, micro: int = 1, batch: int = 0) -> Strategies:
    """One strategy with the documentation's degrees."""
    return strategies(
        tp=mp,
        pp=pp,
        dp=dp * sharding,
        zero_stage=1,
        sharding_degree=sharding,
        micro_batch_size=micro,
        num_microbatches=max(batch // (micro * dp * sharding), 1),
        schedule=2 if pp > 1 else 0,
        rank_order=RANK_ORDERS.index(ORDER),
    )


def documented(dp: int, pp: int, sharding: int, mp: int) -> str:
    """The documentation's rules, applied to degrees: between nodes | inside one | bubble."""
    between = "2 ms act" + (" + M/pp" if dp > 1 else "")
    inside = " + ".join(["4L/pp act"] * (mp > 1) + ["3M/pp"] * (sharding > 1))
    inside = f"({inside})" if " + " in inside else inside
    return f"{between} | {inside} ms | {pp - 1}/(ms+{pp - 1})"


def groups(dp: int, pp: int, sharding: int, mp: int) -> dict[str, list[int]]:
    """The group of rank 0 along every dimension."""
    rows = four_dimensional(dp, pp, sharding, mp)
    near, far = split_group(group_of(rows, "dp"), np.array([sharding]))
    found = {"mp": group_of(rows, "tp"), "sharding": near, "pp": group_of(rows, "pp"), "dp": far}
    places = {}
    for name, group in found.items():
        steps = [range(0, int(size[0] * stride[0]), int(stride[0])) for size, stride in group.parts]
        places[name] = sorted({sum(place) for place in product(*steps)})
    return places


def fastest(name: str, batch: int, *, whole: bool = False) -> Plan:
    """One of the three plans under its best micro-batch; ``whole``: what is sharded is as in static graphs."""
    plan = PLANS[name] | (WHOLE if whole and "zero_stage" in PLANS[name] else {})
    asked = [
        PlanRequest(**ERNIE, gpus=512, global_batch_size=batch, pins=common(micro) | plan) for micro in (1, 2, 4, 8)
    ]
    found = [plan for plan in map(predict, asked) if plan.fits]
    return min(found, key=lambda plan: plan.prediction.iteration_seconds)


def common(micro: int) -> dict[str, str | int]:
    """What all three share: everything recomputed, no sequence parallelism in 2021."""
    return {"micro_batch_size": micro, "sequence_parallel": "false", "recompute": "full", "rank_order": ORDER}


def reference(together: int = 2, *, whole: bool = True) -> Plan:
    """ERNIE 230B on 256 V100 as recommended: mp2 sharding4 pp32, micro-batch 8, batch 4096.

    ``together`` layers share one stored input; without ``whole`` the optimizer alone is sharded.
    """
    pins = common(8) | PLANS["DP2 PP32 Sharding4 MP2"] | {"recompute_num_layers": together} | (WHOLE if whole else {})
    return predict(PlanRequest(**ERNIE, gpus=256, global_batch_size=4096, pins=pins))


def nlp(name: str) -> Plan:
    """A run of PaddleNLP's table."""
    micro, batch, _, _ = NLP[name]
    pins = {"tp": 2, "zero_stage": 2, "sharding_degree": 4, "micro_batch_size": micro, "recompute": "none"}
    known = {"stack": "paddle", "cluster": "dgx-a100-80gb", "gpus": 8, "seq_length": 4096}
    return predict(PlanRequest(model=name, global_batch_size=batch, pins=pins, **known))


def bert(cards: int = 1, *, sequences: int = 16, recompute: str = "full") -> Plan:
    """BERT-Large with so many sequences a card, all states sharded over the cards."""
    pins = {"recompute": recompute, "micro_batch_size": sequences} | ({"zero_stage": 3} if cards > 1 else {})
    known = {"stack": STATIC, "cluster": "v100-dgx1-edr", "precision": "fp16"}
    model = str(HERE / "bert-large.toml")
    return predict(PlanRequest(model=model, gpus=cards, global_batch_size=sequences * cards, pins=pins, **known))


def slowdown(sequences: int) -> float:
    """Speed with everything recomputed over that of 18 sequences of which nothing is."""
    asked = (sequences, "full"), (18, "none")
    speeds = [n / bert(sequences=n, recompute=r).prediction.iteration_seconds for n, r in asked]
    return speeds[0] / speeds[1]


def states(cards: int) -> float:
    """MB of weights, gradients and optimizer on one card."""
    (stage,) = bert(cards).memory_bytes
    return (stage.weights + stage.gradients + stage.optimizer) / 2**20


def allocated(plan: Plan) -> float:
    """MB that the allocator gives out on the fullest card."""
    return max(stage.total - stage.reserved - stage.slack for stage in plan.memory_bytes) / 2**20


def main() -> None:
    """Print the comparison."""
    print("groups of rank 0 for dp2 pp2 sharding2 mp2:", groups(2, 2, 2, 2))
    print(f"\nERNIE 230B on 512 V100, seconds by batch{'':9}" + "".join(f"{batch:>9}" for batch in BATCHES))
    for name in PLANS:
        for whole in (False, True) if "Sharding" in name else (False,):
            times = [fastest(name, batch, whole=whole).prediction.iteration_seconds for batch in BATCHES]
            said = name + (", all sharded" if whole else "")
            print(f"  {said:46}" + "".join(f"{seconds:9.1f}" for seconds in times))
    print("  as documented: between nodes | inside a node | bubble")
    for name, volumes in VOLUMES.items():
        print(f"  {name}: {volumes}")

    found = reference()
    count = found.strategy.num_microbatches
    print(
        f"\nERNIE 230B on 256 V100, mp2 pp32 sharding4: {count} micro-batches, "
        f"bubble 31/{count + 31} = {31 / (count + 31):.1%}"
    )
    for together, whole in ((1, False), (1, True), (2, True)):
        found = reference(together, whole=whole)
        need = max(stage.total for stage in found.memory_bytes) / 2**30
        print(
            f"  {'all' if whole else 'the optimizer alone'} sharded, {together} layers recomputed together: "
            f"{need:.1f} GiB of 31.75 {'fit' if found.fits else 'do not fit'}, "
            f"{found.prediction.iteration_seconds:.0f} s"
        )

    print("\nPaddleNLP, 8 A100: tokens/s per card published, predicted; MB allocated published, predicted")
    for name, (_, _, speed, megabytes) in NLP.items():
        found = nlp(name)
        ours = found.prediction.tokens_per_second_per_gpu
        print(
            f"  {name:12} {speed:8.0f} {ours:8.0f} ({speed / ours - 1:+.1%} time)"
            f"  {megabytes:7} {allocated(found):8.0f}"
        )

    print("\nBERT-Large on V100, recomputed: MB of a card, published and predicted from the 8667 without sharding")
    for cards, megabytes in BERT.items():
        ours = BERT_WHOLE - states(1) + states(cards)
        print(f"  sharding {cards:2}: {megabytes:6} {ours:8.0f} ({ours / megabytes - 1:+.1%})")
    speeds = f"x{slowdown(180):.3f}, x{slowdown(18):.3f} at 18"
    print(f"  speed of recomputing everything: published x0.744, predicted {speeds}")


if __name__ == "__main__":
    main()
