"""Both passes of attention by every backend."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as fn
from torch.nn.attention import SDPBackend, sdpa_kernel

from planner.runs.probe.measure.timing import SMALL, Entry, Left, attempt, normal, rate, timed

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def attention(left: Left) -> Iterator[Entry]:
    """Both passes, causal, some 16k tokens; every backend, head widths 128 and 64, and grouped queries."""
    tokens, lengths = (64, (32,)) if SMALL else (16384, (4096, 8192, 2048, 1024, 16384, 32768))
    for s in lengths:
        for d, share in ((128, 1), (64, 1), (128, 4)):
            b, h = max(1, tokens // s), 4 if SMALL else (2048 if d == 64 else 4096) // d
            for name, backend in BACKENDS.items():
                if (name == "math" and s > 2048) or (name == "efficient" and share > 1):
                    continue
                entry = {
                    "what": "attention",
                    "backend": name,
                    "batch": b,
                    "heads": h,
                    "kv_heads": h // share,
                    "s": s,
                    "d": d,
                }
                yield attempt(entry, partial(both_passes, b, h, h // share, s, d, backend))
        if left() < 0:
            return


def both_passes(b: int, h: int, kv: int, s: int, d: int, backend: SDPBackend) -> Entry:
    """Seconds of the forward pass, and of both passes together."""
    q, k, v = (normal(b, heads, s, d, grad=True) for heads in (h, kv, kv))

    def run(_: int = 0) -> torch.Tensor:
        return fn.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != h)

    with sdpa_kernel(backend):
        with torch.no_grad():
            forward = timed(run, 0.1)
        gradient = torch.randn_like(run())
        both = timed(lambda _: torch.autograd.grad(run(), (q, k, v), gradient), 0.15)
    flop = 2.0 * b * h * s * s * d  # of the causal half; the backward pass has 2.5 times as many
    return {"forward": rate(forward, flop), "both": rate(both, 3.5 * flop)}
