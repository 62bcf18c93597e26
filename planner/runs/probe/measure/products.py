"""Matrix products in 16 and 8 bits, and one product for every expert."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from planner.runs.probe.measure.machine import Watch
from planner.runs.probe.measure.timing import (
    BF16,
    DEVICE,
    SMALL,
    Call,
    Entry,
    Left,
    attempt,
    normal,
    rate,
    rotated,
    timed,
)


def shapes() -> list[tuple[int, int, int]]:
    """m, n, k of forward products: tokens by the widths of layers of several models, and squares."""
    if SMALL:
        return [(64, 64, 64), (128, 96, 64)]
    layers = [(768, 3072), (1024, 4096), (2048, 8192), (4096, 14336), (8192, 28672)]
    found = [(side, side, side) for side in (8192, 4096, 16384, 2048, 1024)]
    for tokens in (8192, 2048, 32768):
        for h, f in layers:
            found += [(tokens, h, h), (tokens, f, h), (tokens, h, f)]
    found += [(8192, 6144, 4096), (8192, 1024, 4096), (8192, 128256, 4096), (8192, 50304, 1024), (4096, 32000, 2048)]
    return [*found, (128, 4096, 4096), (512, 4096, 4096), (16, 8192, 8192), (8192, 16, 4096), (8192, 64, 4096)]


def operands(m: int, n: int, k: int, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Both sides of a product as a linear layer has them: inputs (tokens, k), weights (n, k), last axes dense.

    The tokens are m, or k in the gradient of the weights.
    """
    if layout == "forward":
        return normal(m, k), normal(n, k).t()
    return (normal(m, k) if layout == "dgrad" else normal(k, m).t()), normal(k, n)


def product(m: int, n: int, k: int, layout: str) -> Call:
    """One product in 16 bits."""
    pick = rotated(partial(operands, m, n, k, layout), 2 * (m * k + n * k + m * n))
    return lambda number: torch.mm(*pick(number))


def fp8_product(m: int, n: int, k: int, scaling: str) -> Call:
    """One product in 8 bits of operands that are quantised already."""
    sides = ((m, 1), (1, n)) if scaling == "row" else ((), ())
    scales = [torch.ones(side, device=DEVICE) for side in sides]

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        return normal(m, k).to(torch.float8_e4m3fn), normal(n, k).to(torch.float8_e4m3fn).t()

    pick = rotated(make, m * k + n * k + 2 * m * n)
    return lambda number: torch._scaled_mm(*pick(number), *scales, out_dtype=BF16, use_fast_accum=True)  # noqa: SLF001


def matrix(left: Left) -> Iterator[Entry]:
    """Products hot: first the largest for some seconds, so that clocks settle, and then every shape."""
    size = 64 if SMALL else 8192
    call, samples, start = product(size, size, size, "forward"), list[Entry](), time.perf_counter()
    time.sleep(0.0 if SMALL else 1.5)
    square = {"m": size, "n": size, "k": size, "dtype": "bf16"}
    yield {"what": "burst"} | square | timed(call, 0.02, fewest=3)
    with Watch() as watch:
        while (at := time.perf_counter() - start) < (0.02 if SMALL else 6.0):
            samples.append({"at": round(at, 3), "seconds": timed(call, 0.2, fewest=3)["seconds"]})
    yield {"what": "soak"} | square | {"samples": samples, "states": watch.states}
    for m, n, k in shapes():
        whole = m in {8192, 64}  # with the other two passes of the same layer
        for layout, *dims in [("forward", m, n, k), ("dgrad", m, k, n), ("wgrad", n, k, m)][
            : 3 if whole and m != n else 1
        ]:
            entry = {"what": "product", "dtype": "bf16", "layout": layout} | dict(zip("mnk", dims, strict=True))
            yield attempt(entry, partial(one_product, dims, partial(product, layout=layout)))
        if SMALL or (m >= 1024 and m * n * k >= 2**30):
            for scaling in ("tensor", "row")[: 1 + whole]:
                entry = {
                    "what": "product",
                    "dtype": "fp8",
                    "layout": "forward",
                    "scaling": scaling,
                    "m": m,
                    "n": n,
                    "k": k,
                }
                yield attempt(entry, partial(one_product, [m, n, k], partial(fp8_product, scaling=scaling)))
        if left() < 0:
            return


def one_product(dims: Sequence[int], make: Callable[..., Call]) -> Entry:
    """One shape, timed."""
    return rate(timed(make(*dims), 0.12), 2.0 * math.prod(dims))


EXPERTS = [
    (8, 2048, 4096, 14336),
    (8, 2048, 14336, 4096),
    (64, 512, 2048, 1408),
    (64, 128, 2048, 1408),
    (128, 256, 4096, 1536),
    (16, 1024, 5120, 8192),
    (32, 32, 2880, 2880),
    (8, 1024, 1024, 2048),
]
"""Experts, rows of each, k and n."""


def grouped(left: Left) -> Iterator[Entry]:
    """One product for every expert, tokens evenly shared: forward, the gradient of the weights, and one by one."""
    for experts, rows, k, n in [(2, 32, 32, 48)] if SMALL else EXPERTS:
        for layout in ("forward", "wgrad", "loop"):
            entry = {"what": "grouped", "layout": layout, "experts": experts, "rows": rows, "n": n, "k": k}
            yield attempt(entry, partial(one_group, experts, rows, k, n, layout))
        if left() < 0:
            return


def one_group(experts: int, rows: int, k: int, n: int, layout: str) -> Entry:
    """One set of experts, timed."""
    ends = torch.arange(1, experts + 1, device=DEVICE, dtype=torch.int32) * rows
    x, w, y = normal(experts * rows, k), normal(experts, n, k), normal(experts * rows, n)
    calls: dict[str, Call] = {
        "forward": lambda _: torch._grouped_mm(x, w.transpose(1, 2), offs=ends),  # noqa: SLF001
        "wgrad": lambda _: torch._grouped_mm(y.t(), x, offs=ends),  # noqa: SLF001
        "loop": lambda _: [torch.mm(part, one.t()) for part, one in zip(x.split(rows), w, strict=True)],
    }
    return rate(timed(calls[layout], 0.1), 2.0 * experts * rows * n * k)
