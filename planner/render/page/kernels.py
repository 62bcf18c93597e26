"""The kernels of a plan's layers under the roofs of its machine."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from costmodels.layer.forward_backward import Passes
from costmodels.layer.kernels import Kernel, layer_kernels
from costmodels.model.layer_kinds import Kind
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.answer.load import strategy_from_plan
from planner.answer.plan import Plan
from planner.errors import MeshwrightError
from planner.render.by_group import parts_by_group
from planner.request.request import PlanRequest
from planner.request.resolve import resolve

_NAMES: Final = {
    "qkv": "queries, keys, values",
    "output": "attention output",
    "gate": "attention gate",
    "q": "queries",
    "q_down": "queries to latent",
    "q_up": "queries from latent",
    "kv_down": "keys, values to latent",
    "kv_up": "keys, values from latent",
    "memory-efficient": "attention (memory-efficient)",
    "flash-1": "attention (FlashAttention)",
    "flash-2": "attention (FlashAttention-2)",
    "flash-3": "attention (FlashAttention-3)",
    "cudnn": "attention (cuDNN)",
    "attention": "attention, unfused",
    "gate and up": "feed-forward in (gate and up)",
    "up": "feed-forward in (up)",
    "down": "feed-forward out (down)",
    "mixer": "projections of the mixer",
    "indexer": "indexer, own embedding",
}


def kernels_of(plan: Plan) -> dict[str, Any] | None:
    """The kernels of every kind of layer, most frequent first, one micro-batch on one GPU; None where there are none.

    ``machine`` has the roofs: FLOP/s of the layers' precision and of 16 bits, bytes/s. Of every kernel ``flops``,
    ``bytes`` and ``seconds`` are [forward, backward]. Over several node groups ``parts`` have both of
    each, by ``name``.
    """
    if plan.strategy is None:
        return None
    try:
        resolved = resolve(PlanRequest(**plan.request))
    except MeshwrightError:
        return None
    if resolved.mixed is None:
        return _of_group(strategy_from_plan(plan.strategy), resolved.scenario)
    parts = parts_by_group(plan.strategy, resolved.mixed)
    return {"parts": [{"name": part.scenario.group.name, **_of_group(part.row, part.scenario)} for part in parts]}


def _of_group(row: Strategies, scenario: Scenario) -> dict[str, Any]:
    counts = Counter(scenario.depth.kinds[place] for place in scenario.depth.layers.tolist())
    layers = [_layer(row, scenario, kind, count) for kind, count in counts.most_common()]
    return {"machine": _machine(scenario), "layers": layers}


def _machine(scenario: Scenario) -> dict[str, Any]:
    device = scenario.group.accelerator
    return {
        "name": device.title,
        "precision": scenario.precision,
        "peak": scenario.peak_rate,
        "half": device.half_rate,
        "bandwidth": device.memory_bandwidth,
    }


def _layer(row: Strategies, scenario: Scenario, kind: Kind, count: int) -> dict[str, Any]:
    parts = [kind.mixer if kind.mixer != "none" else "", kind.ffn if kind.ffn != "none" else ""]
    kernels = [_told(kernel) for kernel in layer_kernels(row, scenario, kind)]
    return {"kind": " + ".join(filter(None, parts)), "count": count, "kernels": kernels}


def _told(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": _NAMES.get(kernel.name, kernel.name),
        "kind": kernel.kind,
        "flops": _both(kernel.flops),
        "bytes": _both(kernel.traffic),
        "seconds": _both(kernel.seconds),
    }


def _both(passes: Passes) -> list[float]:
    return [float(f"{float(way[0]):.6g}") for way in (passes.forward, passes.backward)]
