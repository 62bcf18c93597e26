"""Yuan 1.0, 245 billion parameters on 2,128 A100: what was published, the published formulas, and what is predicted.

    python examples/origins/yuan1.py

Sources: Yuan 1.0 (arXiv 2110.04725) and its released scripts; Yuan 2.0 (arXiv 2311.15786), equation 1, table 5 and
appendix C, which analyse the run; PaLM (arXiv 2204.02311) for GPT-3.
"""

from costmodels.model.catalogue import model
from costmodels.model.flops import logit_matmul_weights, model_flops, recomputed_flops
from costmodels.model.parameters import active_parameters
from planner import PlanRequest, plan, predict

RUN = {
    "model": "yuan1-245b",
    "gpus": 2128,
    "cluster": "yuan1-a100",
    "stack": "megatron-lm-2021",
    "precision": "fp16",
    "global_batch_size": 3360,
}
LAYOUT = {"tp": 8, "pp": 38, "micro_batch_size": 1, "recompute": "full"}
MEASURED = 46.20  # seconds per iteration
PUBLISHED = {"compute": 36.666, "bubble": 2.826, "pipeline": 2.643, "tensor": 2.602, "data": 0.455}
PEAK = 312e12
NETWORK = 2 * 195e9 / 8  # bytes per second and node: two cards with 195 Gb/s each
LINK = 520e9  # bytes per second between the GPUs of a node, both directions


def five_terms(*, printed: bool = True, speed: float = 172.73e12) -> dict[str, float]:
    """Seconds per iteration [Yuan 2.0, equation 1]: nothing overlaps, the cards of a node are shared.

    ``printed`` takes 1 / 6H where the sequence length belongs (S / 6H), as the paper's figures do.
    """
    L, H, S, V, P, T, D, A, B = 76, 16384, 2048, 53228, 38, 8, 7, 480, 1
    N = 12 * L * H**2 * (1 + 13 / (12 * H) + V / (12 * L * H))
    compute = 96 * A * B * L * S * H**2 * (1 + (1 if printed else S) / (6 * H)) / (P * T * speed)
    return {
        "compute": compute,
        "bubble": compute * (P - 1) / A,
        "pipeline": 8 * A * B * S * H / NETWORK,
        "tensor": 48 * L * (T - 1) / (P * T * LINK) * A * B * S * H,
        "data": N * 4 * (D - 1) / D / (P * NETWORK),
    }


def efficiency(definition: str, seconds: float = MEASURED) -> float:
    """Share of the peak under a named definition of FLOP."""
    return flops_per_token("yuan1-245b", definition) * 3360 * 2048 / (seconds * 2128 * PEAK)


def flops_per_token(name: str, definition: str) -> float:
    """FLOP of training for a token under a named definition, all layers recomputed."""
    what, length = model(name), {"seq_length": 2048}
    useful, again = model_flops(what, **length), recomputed_flops(what, **length, recompute="full")
    return {
        "6N": 6.0 * active_parameters(what),
        "8N": 8.0 * active_parameters(what),
        "model": useful,
        "hardware": useful + again,
        "hardware-no-logits": useful + again - 6.0 * logit_matmul_weights(what),
    }[definition]


def predicted_terms() -> dict[str, float]:
    """Our terms of the same layout, by the paper's names; the optimizer's step is in none of them."""
    ours = predict(PlanRequest(**RUN, pins=LAYOUT)).breakdown_seconds
    return {
        "compute": ours["compute"] + ours["recompute"],
        "bubble": ours["bubble"],
        "pipeline": ours["pp"],
        "tensor": ours["tp"],
        "data": ours["dp"],
    }


def main() -> None:
    """Print the comparison."""
    print("one run, five efficiencies (46.20 s per iteration):")
    for definition, said in (
        ("6N", "weights alone"),
        ("model", "the MFU of today"),
        ("8N", "weights, recomputation counted: the 4095 petaflop/s-days"),
        ("hardware-no-logits", "recomputation counted, no logits: the published 44.8 %"),
        ("hardware", "recomputation counted: the published 45 %"),
    ):
        print(f"  {definition:20} {efficiency(definition):6.2%}  {said}")
    print(
        "  on one scale, model: GPT-3 on V100 21.3 %, Yuan 1.0 33.8 %, "
        "Huaihai 40.3 % if its 53.5 % counts as the 44.8 % does"
    )
    for name, tokens, definition in (("175b", 300e9, "6N"), ("yuan1-245b", 180e9, "8N"), ("yuan1-245b", 180e9, "6N")):
        days = flops_per_token(name, definition) * tokens / 8.64e19  # of 1e15 FLOP/s
        print(f"  {name:12} {tokens / 1e9:3.0f}B tokens under {definition}: {days:.0f} PD")

    print(f"\n{'seconds':10}{'published':>10}{'formula':>10}{'S / 6H':>10}{'predicted':>10}")
    columns = PUBLISHED, five_terms(), five_terms(printed=False), predicted_terms()
    for name in PUBLISHED:
        print(f"{name:10}" + "".join(f"{column[name]:10.3f}" for column in columns))
    print(f"{'sum':10}" + "".join(f"{sum(column.values()):10.3f}" for column in columns) + "   measured 46.20")

    print("\nwhich layout? (published: T8 P38 D7, every layer recomputed)")
    print(f"  predicted for it: {predict(PlanRequest(**RUN, pins=LAYOUT)).prediction.iteration_seconds:.1f} s")
    for said, pins, margin in QUESTIONS:
        print(f"  proved best {said}: {best(pins, margin)}")


QUESTIONS = (
    ("with 40 GB a device, every layer recomputed", {"recompute": "full"}, 0.5),
    ("with 80 GB, every layer recomputed", {"recompute": "full"}, 0.0),
    ("with 80 GB, free to recompute less", {}, 0.0),
)


def best(pins: dict[str, str], margin: float) -> str:
    """The proved best layout in words."""
    found = plan(PlanRequest(**RUN, pins=pins, memory_margin=margin, top=0))
    s = found.strategy
    return f"T{s.tp} P{s.pp} D{s.dp}, recompute {s.recompute}: {found.prediction.iteration_seconds:.1f} s"


if __name__ == "__main__":
    main()
