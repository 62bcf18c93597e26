"""Passes over memory, cross-entropies, and steps of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as fn
from torch import nn

from planner.runs.probe.measure.timing import BF16, DEVICE, SMALL, Entry, Left, attempt, moved, normal, rotated, timed

PASSES: dict[str, tuple[Callable[..., torch.Tensor], int, int]] = {
    "copy": (lambda x: x.clone(), 2, 0),
    "add": (lambda x, y: x + y, 3, 0),
    "rms_norm": (lambda x, w: fn.rms_norm(x, (x.shape[-1],), w), 2, 3),
    "layer_norm": (lambda x, w: fn.layer_norm(x, (x.shape[-1],), w), 2, 3),
    "gelu": (lambda x: fn.gelu(x, approximate="tanh"), 2, 3),
    "swiglu": (lambda x, y: fn.silu(x) * y, 3, 5),
    "softmax": (lambda x: fn.softmax(x, dim=-1), 2, 3),
    "dropout": (lambda x: fn.dropout(x, 0.1), 2, 2),
}
"""By name: what is computed, and how many tensors the forward and the backward pass read and write at least."""


def memory(left: Left) -> Iterator[Entry]:
    """Eager passes of several sizes, a cross-entropy, then some of them compiled."""
    sizes = [(32, 64)] if SMALL else [(8192, 4096), (4096, 1024), (16384, 14336)]
    plans = [(name, rows, width, False) for rows, width in sizes for name in PASSES]
    plans.append(("cross_entropy", *((16, 128) if SMALL else (8192, 32000)), False))
    if not SMALL:
        plans += [(name, *sizes[0], True) for name in ("rms_norm", "swiglu", "gelu")]
        plans.append(("cross_entropy", 8192, 32000, True))
    for name, rows, width, compiled in plans:
        entry = {"what": "pass", "name": name, "rows": rows, "width": width, "compiled": compiled}
        measure = (
            partial(loss, rows, width, compiled)
            if name == "cross_entropy"
            else partial(one_pass, name, rows, width, compiled)
        )
        yield attempt(entry, measure)
        if left() < 0:
            return


def one_pass(name: str, rows: int, width: int, compiled: bool) -> Entry:
    """Seconds of the forward pass, and of both passes together."""
    call, forward, backward = PASSES[name]
    call = torch.compile(call) if compiled else call
    size, trained = 2.0 * rows * width, backward > 0

    def make() -> list[torch.Tensor]:
        first = normal(rows, width, grad=trained)
        if name.endswith("norm"):
            return [first, normal(width, grad=True)]
        return [first, normal(rows, width, grad=trained)] if name in {"add", "swiglu"} else [first]

    pick = rotated(make, 3 * size)

    def alone(number: int) -> torch.Tensor:
        with torch.no_grad():
            return call(*pick(number))

    found = {"forward": moved(timed(alone, 0.06), forward * size)}
    if not trained:
        return found
    gradient = torch.randn_like(alone(0))

    def both(number: int) -> Any:
        taken = pick(number)
        return torch.autograd.grad(call(*taken), taken, gradient)

    return found | {"both": moved(timed(both, 0.08), (forward + backward) * size)}


def loss(tokens: int, words: int, compiled: bool) -> Entry:
    """Both passes of a cross-entropy of logits in bf16, computed in fp32 as training does."""

    def computed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return fn.cross_entropy(x.float(), y)

    call = torch.compile(computed) if compiled else computed
    x, y = normal(tokens, words, grad=True), torch.randint(words, (tokens,), device=DEVICE)
    return {"both": moved(timed(lambda _: torch.autograd.grad(call(x, y), x), 0.1), 2.0 * tokens * words * 3)}


STEPS: dict[str, dict[str, bool]] = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}


def optimizer(left: Left) -> Iterator[Entry]:
    """One step of AdamW, and clipping of gradients, on equal square matrices."""
    side, count = (32, 4) if SMALL else (2048, 96)
    for dtype in (torch.float32, BF16):
        for kind in STEPS:
            entry = {
                "what": "adamw",
                "kind": kind,
                "dtype": str(dtype)[6:],
                "tensors": count,
                "parameters": side * side * count,
            }
            yield attempt(entry, partial(one_step, side, count, dtype, kind))
        if left() < 0:
            return


def one_step(side: int, count: int, dtype: torch.dtype, kind: str) -> Entry:
    """One optimizer, timed."""
    weights = [nn.Parameter(normal(side, side, dtype=dtype)) for _ in range(count)]
    for one in weights:
        one.grad = torch.randn_like(one)
    adam = torch.optim.AdamW(weights, lr=1e-4, **STEPS[kind])
    found = {"step": timed(lambda _: adam.step(), 0.2, graph=False)}
    if kind == "foreach":
        found["clip"] = timed(lambda _: nn.utils.clip_grad_norm_(weights, 1.0), 0.1, graph=False)
    return found
