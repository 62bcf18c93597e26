"""What was asked, as the screen says it before it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.answer.text import format_count, name_in, plural


def model_facts(request: Mapping[str, Any]) -> list[str]:
    """Sizes of the model and of its training."""
    model = request.get("model")
    sizes = model if isinstance(model, Mapping) else {}
    asked = {"seq": "seq_length", "batch": "global_batch_size", "adapters": "adapters"}
    return [
        f"{format_count(sizes['parameters'])} parameters" if "parameters" in sizes else "",
        plural(sizes["num_layers"], "layer") if "num_layers" in sizes else "",
        *(f"{word} {request[name]}" for word, name in asked.items() if request.get(name)),
        str(request.get("precision") or ""),
        f"{format_count(request['tokens'])} tokens" if request.get("tokens") else "",
    ]


def machine_facts(request: Mapping[str, Any]) -> list[str]:
    """Nodes, devices and the software on them."""
    cluster = request.get("cluster")
    machines = cluster if isinstance(cluster, Mapping) else {}
    return [
        " + ".join(filter(None, map(_machines, machines.get("groups", [machines])))),
        plural(request["gpus"], "GPU") if "gpus" in request else "",
        _software(request.get("stack")),
    ]


def _software(stack: object) -> str:
    return f"stack {name_in(stack)}" + (", as you gave it" if isinstance(stack, Mapping) else "")


def _machines(group: Mapping[str, Any]) -> str:
    nodes, each = group.get("nodes"), group.get("gpus_per_node")
    held = f" within {group['power_limit']}" if "power_limit" in group else ""
    return f"{plural(nodes, 'node')} x {each} {group.get('accelerator', 'GPUs')}{held}" if nodes and each else ""
