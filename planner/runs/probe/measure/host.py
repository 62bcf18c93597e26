"""What the host takes to start kernels, what the allocator reserves, and copies between host and device."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as fn
from torch import nn

from planner.runs.probe.measure.machine import numa_nodes, numa_of_device
from planner.runs.probe.measure.timing import (
    BF16,
    CUDA,
    DEVICE,
    SMALL,
    Entry,
    Left,
    attempt,
    graph_of,
    moved,
    normal,
    spread,
    timed,
    wait,
)


class Layer(nn.Module):  # type: ignore[misc]  # where PyTorch is not installed it is anything
    """A narrow layer as decoders have it, for what the host does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.gate, self.down = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention and a gated network."""
        b, s, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, s, 3, -1, 64).permute(2, 0, 3, 1, 4)
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, width))
        y = self.norms[1](x)
        return x + self.down(fn.silu(self.gate(y)) * self.up(y))


def host(_: Left) -> Iterator[Entry]:
    """What the host needs to start kernels: small ones one after another, and small layers; bound to cores and not."""
    cores, nodes = sorted(os.sched_getaffinity(0)), numa_nodes()
    near = sorted(set(nodes.get(f"node{numa_of_device()}", cores)) & set(cores)) or cores
    layers = nn.Sequential(*(Layer(128) for _ in range(4))).to(DEVICE, BF16)
    x, one = normal(1, 64, 128, grad=True), torch.zeros(1, device=DEVICE)

    def steps() -> None:
        layers(x).sum().backward()

    def measure() -> Entry:
        few = 1 if SMALL else 10
        return {"empty": issued(lambda: one.add_(1.0), 40 * few), "layer": issued(steps, few, parts=4.0)}

    for binding, chosen in {"all cores": cores, "one NUMA node": near, "one core": cores[-1:]}.items():
        bind(chosen)
        time.sleep(0.05)
        yield attempt({"what": "launch", "binding": binding, "cores": len(chosen)}, measure)
    bind(cores)
    if CUDA:
        yield attempt({"what": "kernels", "layers": 4}, partial(kernels_of, steps))
        made = graph_of(lambda _: one.add_(1.0), 200)
        if made is not None:
            yield {"what": "graph", "kernels": 200} | timed(lambda _: made.replay(), 0.2, graph=False)


def bind(cores: Sequence[int]) -> None:
    """All threads of this process to some cores: the one that runs backward passes is another."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), cores)


def issued(call: Callable[[], Any], count: int, parts: float = 1.0) -> Entry:
    """Host seconds to start one call, or one of its ``parts``, while the device keeps up; and until it is done."""
    started, whole = [], []
    for _ in range(4 if SMALL else 40):
        wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        started.append((time.perf_counter() - start) / count / parts)
        wait()
        whole.append((time.perf_counter() - start) / count / parts)
    return {"host": spread(started[2:]), "whole": spread(whole[2:])}


def kernels_of(steps: Callable[[], None]) -> Entry:
    """How many kernels the small layers start, by the profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as traced:
        steps()
        wait()
    return {"kernels": sum(one.count for one in traced.key_averages() if one.device_type.name == "CUDA")}


MIB = 2**20
BLOCKS = (
    1,
    512,
    513,
    MIB,
    MIB + 1,
    2 * MIB,
    5 * MIB,
    9 * MIB,
    10 * MIB,
    10 * MIB + 1,
    15 * MIB,
    20 * MIB + 1,
    33 * MIB,
)


def allocator(_: Left) -> Iterator[Entry]:
    """Bytes that the allocator reserves for a tensor."""
    if not CUDA:
        yield {"what": "allocation", "error": "no device memory"}
        return
    for size in (*BLOCKS, 100 * MIB + 1, 999 * MIB, 2500 * MIB + 1):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
        held = torch.empty(size, dtype=torch.uint8, device=DEVICE)
        after = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
        del held
        yield {"what": "allocation", "bytes": size, "reserved": after[0] - before[0], "allocated": after[1] - before[1]}


def copies(_: Left) -> Iterator[Entry]:
    """Between host and device, both ways, pinned memory and not."""
    for size in (2**12,) if SMALL else (2**16, 2**20, 2**24, 2**28):
        for pinned in (True, False):
            for way in ("to device", "to host"):
                entry = {"what": "copy", "way": way, "pinned": pinned, "bytes": size}
                yield attempt(entry, partial(one_copy, size, pinned, way))


def one_copy(size: int, pinned: bool, way: str) -> Entry:
    """One size, timed."""
    there = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    here = torch.ones(size, dtype=torch.uint8, pin_memory=pinned and CUDA)
    put, got = (there, here) if way == "to device" else (here, there)
    return moved(timed(lambda _: put.copy_(got, non_blocking=pinned), 0.1, graph=False), float(size))
