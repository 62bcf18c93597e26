"""Yuan 2.0: uneven stages, optimizer parallelism and slow links: published, by the formulas, predicted.

    python examples/origins/yuan2.py

Source: Yuan 2.0 (arXiv 2311.15786), sections 3.1 and 3.4, tables 1, 6 and 8, figure 3, appendix D; launch scripts of
GitHub IEIT-Yuan/Yuan-2.0. Table 6 holds the paper's own predictions, of the times of two methods: tensor, pipeline and
data parallelism (T8 P4) against pipeline and data parallelism with a sharded optimizer (T1 P32).

The saving of 28 % in figure 3 is that of its first stage, 78 to 56 GB, not of the fullest one. Reckoned as the labels
of its first stages are (``on_paper``), the split that it shows needs 66 GB, on its fifth stage, against 77: 15 % less,
and no split needs less than 62, 20 %. Ours, whose logits are smaller, comes to 23 %. A quarter is out of reach.
"""

from pathlib import Path

from costmodels.model.catalogue import model
from costmodels.model.parameters import parameters
from hardware.catalogue import cluster
from hardware.records import Cluster
from planner import Plan, PlanRequest, plan, predict

HERE = Path(__file__).parent
RUN = {"model": "yuan2-102b", "stack": "yuan2", "global_batch_size": 1152}
# links within a node in GB/s, GPUs: seconds of method 1 and of method 2
TABLE_6 = {
    (100, 96): (584.28, 239.06),
    (200, 96): (405.45, 238.40),
    (400, 96): (316.32, 238.10),
    (100, 256): (224.10, 101.22),
    (200, 256): (156.64, 100.92),
    (400, 256): (123.21, 100.81),
}
METHODS = ({"tp": 8, "pp": 4, "recompute": "full"}, {"tp": 1, "pp": 32, "recompute": "partial"})
FIGURE_3 = {(3, 3, 3, 3, 3, 3, 3, 3): (78, 60), (2, 2, 3, 3, 4, 4, 4, 2): (56, 39)}
"""Layers of eight stages: GB of the first and of the second."""
OF_FIGURE_3 = {
    "model": str(HERE / "yuan2-figure3.toml"),
    "stack": "yuan2",
    "cluster": "yuan1-a100",
    "gpus": 8,
    "global_batch_size": 128,
}
EIGHT_STAGES = {"pp": 8, "zero_stage": 0, "recompute": "none"}
SHIPPED = [2] * 10 + [3] * 20 + [2] * 2
"""Layers of the 32 stages that the 102B model was trained with."""


def seconds(links: float, gpus: int, method: int) -> float:
    """Seconds per iteration by the equations 2 and 4, with the settings that table 6 was made with.

    These are 55 % of an A100's peak, 0.85 of the links (half of it for tensor parallelism, whose coefficient
    counts both directions already), two cards of 195 Gb/s per node, and 12 bytes of
    gradients and parameters per parameter.
    """
    L, H, S, V, B, F = 84, 8192, 4096, 134953, 1, 0.55 * 312e12
    T, P, D = (8, 4, gpus // 32) if method == 1 else (1, 32, gpus // 32)
    A, N, network, link = 1152 // D, 16 * L * H**2 + V * H, 2 * 195e9 / 8, 0.85 * links
    compute = 128 * A * B * L * S * H**2 * (1 + S / (8 * H)) / (P * T * F)
    bubble = compute * (P - 1) / A
    states = N * 12 * (D - 1) / D / (P * network)
    if method == 2:
        return compute + bubble + 8 * A * B * S * H / link + states
    tensor = 64 * L * (T - 1) / (P * T * link / 2) * A * B * S * H
    return compute + bubble + 8 * A * B * S * H / network + tensor + states


def with_links(bandwidth: float) -> Cluster:
    """The machines with so many bytes per second between two GPUs of a node."""
    base = cluster("yuan1-a100")
    group = base.groups[0]
    inner = group.tiers[0]
    link = inner.link.model_copy(update={"bandwidth": bandwidth, "efficiency": 0.85})
    tiers = (inner.model_copy(update={"link": link}), *group.tiers[1:])
    return base.model_copy(update={"groups": (group.model_copy(update={"tiers": tiers}),)})


def predicted(links: float, gpus: int, method: int) -> float:
    """Ours of the same layouts."""
    asked = PlanRequest(**RUN, gpus=gpus, cluster=with_links(links), pins=METHODS[method - 1] | {"vpp": 1})
    return predict(asked).prediction.iteration_seconds


def best(links: float, gpus: int) -> Plan:
    """The proved best layout, free in everything."""
    return plan(PlanRequest(**RUN, gpus=gpus, cluster=with_links(links), top=0))


def figure_3(layers: tuple[int, ...]) -> list[float]:
    """GB that the allocator gives out on every stage of the figure's model, the optimizer not sharded."""
    asked = PlanRequest(**OF_FIGURE_3, pins=EIGHT_STAGES)
    return [(stage.total - stage.reserved - stage.slack) / 1e9 for stage in predict(asked, list(layers)).memory_bytes]


def on_paper(layers: tuple[int, ...]) -> list[float]:
    """GB of every stage by the terms that give the labels of the first ones.

    18 bytes a parameter are 12.2 GB a layer, the embedding and the head 14.9, the logits 9, and of each of the P - s
    micro-batches that stage s holds a layer keeps 1.08.
    """
    ends = {0: 14.9, len(layers) - 1: 14.9 + 9.0}
    return [n * (12.2 + 1.08 * (len(layers) - s)) + ends.get(s, 0.0) for s, n in enumerate(layers)]


def least_on_paper(total: int = 24, stages: int = 8) -> float:
    """GB of the fullest stage, at least, of any split of the layers by ``on_paper``."""
    fullest = sorted(max(on_paper((n,) * stages)[s], 0.0) for n in range(total + 1) for s in range(stages))
    return next(most for most in fullest if _room(most, stages) >= total)


def _room(most: float, stages: int) -> int:
    """Layers that fit if no stage may need more."""
    none, one = on_paper((0,) * stages), on_paper((1,) * stages)
    return sum(max(int((most - a) / (b - a) + 1e-9), 0) for a, b in zip(none, one, strict=True))


def leanest() -> Plan:
    """The split of the figure's model whose fullest stage needs least."""
    return plan(PlanRequest(**OF_FIGURE_3, objective="memory", top=0, pins=EIGHT_STAGES | {"micro_batch_size": 1}))


def shipped(recompute: str, layers: list[int]) -> Plan:
    """The 102B model on 96 GPUs of 80 GB with given layers."""
    pins = {"tp": 1, "pp": 32, "recompute": recompute}
    return predict(PlanRequest(**RUN, gpus=96, cluster=with_links(400e9), pins=pins), layers)


def main() -> None:
    """Print the comparison."""
    print("parameters: " + ", ".join(f"{n} {parameters(model(n)) / 1e9:.2f} B" for n in NAMES))
    print("\ntable 6, seconds           published         formula          predicted       proved best")
    print("links GB/s  GPUs        M1      M2      M1      M2      M1      M2")
    for (links, gpus), (one, two) in TABLE_6.items():
        figures = [one, two, *(f(links * 1e9, gpus, n) for f in (seconds, predicted) for n in (1, 2))]
        found = best(links * 1e9, gpus)
        s = found.strategy
        layout = f"T{s.tp} P{s.pp} D{s.dp} {s.recompute}"
        told = "".join(f"{x:8.1f}" for x in figures)
        print(f"{links:10} {gpus:5}  {told}{found.prediction.iteration_seconds:8.1f}  {layout}")

    print("\nfigure 3, GB of stages 1 and 2   published   predicted")
    for layers, (first, second) in FIGURE_3.items():
        ours = figure_3(layers)
        print(f"  {','.join(map(str, layers)):28} {first:6} {second:4} {ours[0]:8.1f} {ours[1]:5.1f}")
    lean = leanest()
    held = [stage.layers for stage in lean.strategy.stages]
    fullest, even = max(figure_3(tuple(held))), max(figure_3((3,) * 8))
    print(f"  leanest: {','.join(map(str, held))}: {fullest:.1f} GB against {even:.1f} ({fullest / even - 1:+.0%})")

    shown, uniform = (max(on_paper(layers)) for layers in reversed(FIGURE_3))
    print(f"  on paper: shown {shown:.1f} GB against {uniform:.1f}, no split below {least_on_paper():.1f}")

    print("\n102B on 96 GPUs of 80 GB, T1 P32 D3")
    for said, found in (
        ("shipped layers, as much recomputed as it takes", shipped("partial", SHIPPED)),
        ("3 layers in the first 20 stages, nothing recomputed", shipped("none", [3] * 20 + [2] * 12)),
    ):
        need = max(stage.total for stage in found.memory_bytes) / 2**30
        print(f"  {said}: {'fits' if found.fits else 'does not fit'}, {need:.1f} GiB")


NAMES = ("yuan2-102b", "yuan2-51b", "yuan2-2.1b")

if __name__ == "__main__":
    main()
