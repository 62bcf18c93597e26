"""The systems that the project began with as a table: what was published, what is predicted, how to see it again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "origins"))

import megascale
import paddle
import yuan1
import yuan2

ADS = ("--model", "examples/ads-6tb.toml", "--cluster", "hierps", "--mode", "sync", "--max-cost", "190 $/h")
SPARSE = ("--model", "examples/ctr-dnn.toml", "--cluster", "fleet-cpu", "--nodes", "cpu=32", "--mode", "async")
PUBLISHED = 2_553_503


def origins_table(printed: Callable[..., str]) -> str:
    """One row a system; ``printed`` runs a command line and returns what it wrote."""
    rows = [*_of_yuan(), *_of_others(), _of_sparse(printed), _of_accelerators(printed)]
    lines = ["| system | published | predicted | again |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _of_yuan() -> Iterator[tuple[str, ...]]:
    ours = sum(yuan1.predicted_terms().values())
    yield (
        "Yuan 1.0, 245B on 2,128 A100, T8 P38 D7",
        "46.20 s an iteration, 44.8 % (recomputation counted, no logits)",
        f"{ours:.1f} s ({ours / 46.20 - 1:+.1%}), {yuan1.efficiency('hardware-no-logits', ours):.1%}",
        "`python examples/origins/yuan1.py`",
    )
    best = yuan2.best(100e9, 96)
    layout = f"T{best.strategy.tp} P{best.strategy.pp} D{best.strategy.dp}"
    formula, priced = (" and ".join(f"{f(100e9, 96, n):.0f}" for n in (1, 2)) for f in (yuan2.seconds, yuan2.predicted))
    yield (
        "Yuan 2.0, 102B on 96 A100 with 100 GB/s links",
        "by formula 584 s (T8 P4) and 239 s (T1 P32)",
        f"its formula {formula} s; ours {priced} s; proved best {layout}, {best.prediction.iteration_seconds:.0f} s",
        "`python examples/origins/yuan2.py`",
    )


def _of_others() -> Iterator[tuple[str, ...]]:
    one, two = (megascale.run(system, 12288) for system in megascale.MFU)
    slow, fast = one.price().iteration, two.price().iteration
    other = f"{slow:.2f} s ({slow / 8.57 - 1:+.1%}), {slow / fast:.2f} times"
    yield (
        "MegaScale, 175B on 12,288 A100",
        "6.34 s, 55.2 % MFU; Megatron-LM 8.57 s, 1.35 times as long",
        f"{fast:.2f} s ({fast / 6.34 - 1:+.1%}), {two.mfu(fast):.1%}; {other}",
        "`python examples/origins/megascale.py`",
    )
    speed, megabytes = paddle.NLP["llama2-13b"][2:]
    found = paddle.nlp("llama2-13b")
    tokens = found.prediction.tokens_per_second_per_gpu
    yield (
        "PaddlePaddle, Llama 2 13B on 8 A100, mp2 sharding4",
        f"{speed:.0f} tokens/s a card, {megabytes / 1024:.1f} GiB",
        f"{tokens:.0f} ({tokens / speed - 1:+.1%}), {paddle.allocated(found) / 1024:.1f} GiB",
        "`python examples/origins/paddle.py`",
    )
    needed = max(stage.total for stage in paddle.reference().memory_bytes) / 2**30
    yield (
        "PaddlePaddle, ERNIE 230B on 256 V100, mp2 sharding4 pp32",
        "runs on 32 GB",
        f"{needed:.1f} of 31.75 GiB, all sharded, two layers an input",
        "`python examples/origins/paddle.py`",
    )


def _of_sparse(printed: Callable[..., str]) -> tuple[str, ...]:
    answer = json.loads(printed("sparse", *SPARSE, "--max-cost", "100 $/h", "--format", "json"))
    rate = answer["examples_per_second"]
    return (
        "PaddlePaddle's CPU parameter server, CTR-DNN on 32 nodes",
        f"{PUBLISHED / 1e6:.2f} M examples/s",
        f"{rate / 1e6:.2f} M ({rate / PUBLISHED - 1:+.1%}; fitted on 4 and 16 nodes)",
        f"`plan sparse {' '.join(SPARSE)} --max-cost '100 $/h'`",
    )


def _of_accelerators(printed: Callable[..., str]) -> tuple[str, ...]:
    by = {one["machines"]: one for one in json.loads(printed("sparse", *ADS, "--format", "json"))["alternatives"]}
    few, many = by["accelerators"], by["cpu"]
    gain = few["examples_per_second"] / many["examples_per_second"]
    return (
        "Baidu's hierarchical parameter server, 4 nodes of 8 V100 against 150 CPU nodes",
        "more than 2 times as fast, 4 to 9 times the price-performance",
        f"{gain:.1f} and {gain * many['cost_per_hour'] / few['cost_per_hour']:.1f} times, on 6 TB",
        "`plan sparse --model examples/ads-6tb.toml --cluster hierps --mode sync --max-cost '190 $/h'`",
    )
