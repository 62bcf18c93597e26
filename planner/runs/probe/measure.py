"""Measure the machine that this runs on; needs nothing but PyTorch.

    python measure.py -o probe.json                          one device
    torchrun --nproc-per-node 8 measure.py -o probe.json     and the links between devices

Writes the file after every section and skips sections that it holds already, so that it may be stopped and started.
Times are in seconds: the median of repeated blocks of calls behind a warm-up, with the 10th and 90th percentile.
Device times are of calls that a graph replays, where that works, so that they hold no time of the host.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.nn.functional as fn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SCHEMA = "probe/1"
RANK, WORLD, LOCAL = (
    int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
)
PER_NODE = int(os.environ.get("LOCAL_WORLD_SIZE", WORLD))
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", LOCAL) if CUDA else torch.device("cpu")
BF16 = torch.bfloat16
SMALL = not CUDA
"""Small shapes and few repetitions, where there is no GPU: a test of this program and not of a machine."""
CACHE = 256e6 if CUDA else 1e6
"""Bytes over which inputs rotate, several times what caches hold."""
STATE = ("clocks.sm", "power.draw", "temperature.gpu", "clocks_throttle_reasons.active")
LIMITS = (
    "driver_version",
    "power.limit",
    "clocks.max.sm",
    "clocks.max.mem",
    "pcie.link.gen.max",
    "pcie.link.width.max",
)

Entry = dict[str, Any]
Call = Callable[[int], Any]
"""What is timed; its number says which of several inputs to take."""
Left = Callable[[], float]
"""Seconds that a section has left."""


# ------------------------------------------------------------------ timing


def say(text: str) -> None:
    """One line of progress."""
    if RANK == 0:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def wait() -> None:
    """Until the device has done all that was started."""
    if CUDA:
        torch.cuda.synchronize()


def spread(values: Sequence[float]) -> Entry:
    """The median of some seconds with their spread."""
    ordered = sorted(values)
    low, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.1, 0.9))
    found = {"seconds": statistics.median(ordered), "p10": low, "p90": high}
    return {name: float(f"{value:.5g}") for name, value in found.items()} | {"blocks": len(ordered)}


def graph_of(call: Call, count: int) -> torch.cuda.CUDAGraph | None:
    """``count`` calls as a graph that replays them, None where they cannot be captured."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(count):
                call(number)
    except Exception:  # noqa: BLE001 - whatever a kernel does that no graph may
        wait()
        return None
    return graph


def timed(call: Call, seconds: float = 0.2, *, graph: bool = True, fewest: int = 5) -> Entry:
    """Seconds of a call: blocks of some 10 ms, for ``seconds``, and for half as long before to warm up."""
    if SMALL:
        seconds, fewest = 0.004, 3
    for number in range(3):
        call(number)
    wait()
    start = time.perf_counter()
    call(0)
    wait()
    count = max(1, min(256, round(0.01 / max(time.perf_counter() - start, 1e-6))))
    made = graph_of(call, count) if CUDA and graph else None

    def block() -> None:
        if made is not None:
            made.replay()
            return
        for number in range(count):
            call(number)

    ends, found = time.perf_counter() + seconds / 2, list[float]()
    while time.perf_counter() < ends:
        block()
        wait()
    ends = time.perf_counter() + seconds
    while len(found) < fewest or time.perf_counter() < ends:
        found.append(_one_block(block) / count)
    return spread(found) | {"graph": made is not None}


def _one_block(block: Callable[[], None]) -> float:
    if not CUDA:
        start = time.perf_counter()
        block()
        return time.perf_counter() - start
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    block()
    ended.record()
    wait()
    return float(begun.elapsed_time(ended)) / 1e3


def normal(*shape: int, dtype: torch.dtype = BF16, grad: bool = False) -> torch.Tensor:
    """Random values: products of zeros run faster."""
    return torch.randn(*shape, device=DEVICE, dtype=dtype, requires_grad=grad)


def rotated(make: Callable[[], Any], size: float) -> Callable[[int], Any]:
    """Inputs of ``size`` bytes made often enough that caches cannot hold them; picked by number."""
    made = [make() for _ in range(max(1, min(64, math.ceil(CACHE / size))))]
    return lambda number: made[number % len(made)]


def attempt(entry: Entry, measure: Callable[[], Entry]) -> Entry:
    """The entry with what was measured, or with the reason why it was not."""
    try:
        return entry | measure()
    except Exception as error:  # noqa: BLE001 - a machine that lacks a kernel says so in many ways
        return entry | {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    finally:
        if CUDA:
            torch.cuda.empty_cache()


def rate(found: Entry, flop: float) -> Entry:
    """Seconds with the rate that follows, FLOP/s."""
    return found | {"flops": float(f"{flop / found['seconds']:.4g}")}


def moved(found: Entry, size: float) -> Entry:
    """Seconds with the rate that follows, bytes/s."""
    return found | {"bytes_per_second": float(f"{size / found['seconds']:.4g}")}


# ------------------------------------------------------------------ the machine


def smi_command(*fields: str) -> list[str]:
    """A call of nvidia-smi for this device."""
    uuid = str(torch.cuda.get_device_properties(DEVICE).uuid)
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", "GPU-" + uuid]


def smi_line(fields: Sequence[str], line: str) -> Entry:
    """A line of its answer."""
    return dict(zip(fields, (number_in(one.strip()) for one in line.split(",")), strict=False))


def number_in(text: str) -> float | str:
    """A number where the text is one."""
    try:
        return float(text)
    except ValueError:
        return text


def smi(*fields: str) -> Entry:
    """What nvidia-smi says of this device; nulls where it is not there."""
    if not CUDA:
        return {}
    try:
        said = subprocess.run(smi_command(*fields), capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError):
        return dict.fromkeys(fields)
    return smi_line(fields, said.stdout)


class Watch:
    """Clock, power and temperature of the device every quarter of a second, while it works."""

    def __enter__(self) -> Self:
        self.process: subprocess.Popen[str] | None = None
        self.states: list[Entry] = []
        with contextlib.suppress(OSError, AttributeError, RuntimeError):
            if CUDA:
                command = [*smi_command(*STATE), "-lms", "250"]
                self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.terminate()
            self.states = [smi_line(STATE, line) for line in self.process.communicate(timeout=10)[0].splitlines()]


def numa_nodes() -> dict[str, list[int]]:
    """Cores of every NUMA node."""
    found = {}
    for path in sorted(Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")):
        parts = [one.split("-") for one in path.read_text(encoding="ascii").strip().split(",") if one]
        found[path.parent.name] = [core for part in parts for core in range(int(part[0]), int(part[-1]) + 1)]
    return found


def numa_of_device() -> int:
    """The NUMA node beside the device, 0 where nobody says it."""
    said = str(smi("pci.bus_id").get("pci.bus_id")).lower()[4:]
    path = Path(f"/sys/bus/pci/devices/{said}/numa_node")
    return max(0, int(path.read_text(encoding="ascii"))) if said and path.exists() else 0


def outside() -> int | None:
    """Bytes of the device in use that the allocator does not hold: contexts, libraries, other programs."""
    if not CUDA:
        return None
    free, total = torch.cuda.mem_get_info()
    return int(total - free - torch.cuda.memory_reserved())


def machine() -> Entry:
    """Versions, device, processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    said = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda or torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if CUDA else None,
        "system": platform.platform(),
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "numa": {name: len(cores) for name, cores in numa_nodes().items()},
        "ranks": WORLD,
        "ranks_per_node": PER_NODE,
        "device": "cpu",
    }
    if not CUDA:
        return said
    about = torch.cuda.get_device_properties(DEVICE)
    free, total = torch.cuda.mem_get_info()
    said |= {
        "device": about.name,
        "capability": f"{about.major}.{about.minor}",
        "memory": total,
        "free": free,
        "compute_units": about.multi_processor_count,
        "l2": getattr(about, "L2_cache_size", None),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if dist.is_nccl_available() else None,
    }
    return said | smi(*LIMITS)


# ------------------------------------------------------------------ products


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


# ------------------------------------------------------------------ attention

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


# ------------------------------------------------------------------ passes over memory

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


# ------------------------------------------------------------------ host


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


# ------------------------------------------------------------------ collectives

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")


def collectives(_: Left) -> Iterator[Entry]:
    """Every collective over all ranks, over those of a node, and over one of each node; bytes as nccl-tests counts."""
    nodes = WORLD // PER_NODE
    parts = {"all": [list(range(WORLD))]}
    if 1 < PER_NODE < WORLD:
        parts["node"] = [[node * PER_NODE + one for one in range(PER_NODE)] for node in range(nodes)]
        parts["rail"] = [[node * PER_NODE + one for node in range(nodes)] for one in range(PER_NODE)]
    for tier, members in parts.items():
        groups = [dist.new_group(one) for one in members]
        mine = next(place for place, one in enumerate(members) if RANK in one)
        about = {"tier": tier, "ranks": len(members[0]), "nodes": 1 if tier == "node" else nodes}
        for size in (2**12, 2**16) if SMALL else (2**14, 2**17, 2**20, 2**23, 2**26, 2**28, 2**30):
            for name in COLLECTIVES:
                entry = {"what": name} | about | {"bytes": size}
                yield attempt(entry, partial(collective, name, size, groups[mine], members[mine]))


def collective(name: str, size: int, group: Any, ranks: list[int]) -> Entry:
    """One collective of one size: seconds of this rank, and of the slowest."""
    many, place = len(ranks), ranks.index(RANK)
    width = size // 2 // many * many
    whole, part, other = normal(width), normal(width // many), normal(width)
    behind, before = ranks[(place + 1) % many], ranks[(place - 1) % many]

    def ring() -> None:
        sent = [dist.P2POp(dist.isend, whole, behind, group), dist.P2POp(dist.irecv, other, before, group)]
        for work in dist.batch_isend_irecv(sent):
            work.wait()

    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": partial(dist.all_reduce, whole, group=group),
        "all_gather": partial(dist.all_gather_into_tensor, whole, part, group=group),
        "reduce_scatter": partial(dist.reduce_scatter_tensor, part, whole, group=group),
        "alltoall": partial(dist.all_to_all_single, other, whole, group=group),
        "broadcast": partial(dist.broadcast, whole, ranks[0], group=group),
        "sendrecv": ring,
    }
    call = calls[name]
    count, found = 3 if SMALL or size > 2**26 else 20, []
    for _ in range(3 if SMALL else 7):
        dist.barrier(group=group)
        wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        found.append((time.perf_counter() - start) / count)
    slowest = torch.tensor([statistics.median(found[1:])], device=DEVICE, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
    return spread(found[1:]) | {"slowest": float(slowest)}


# ------------------------------------------------------------------ the whole

SECTIONS: dict[str, tuple[Callable[[Left], Iterator[Entry]], float]] = {
    "allocator": (allocator, 3),
    "host": (host, 20),
    "matrix": (matrix, 45),
    "attention": (attention, 35),
    "memory": (memory, 30),
    "grouped": (grouped, 8),
    "optimizer": (optimizer, 8),
    "copies": (copies, 6),
}
"""What is measured on one device, in this order, and seconds after which a section begins nothing more."""


def run_section(name: str, section: Callable[[Left], Iterator[Entry]], allowed: float) -> Entry:
    """All entries of a section, and the state of the device before and after."""
    start, entries, found = time.perf_counter(), list[Entry](), Entry()
    torch.manual_seed(0)
    before = smi(*STATE)
    try:
        for entry in section(lambda: allowed - (time.perf_counter() - start)):
            entries.append(entry)
            if RANK == 0 and sys.stderr.isatty():
                sys.stderr.write(f"\r{name}: {len(entries)} measured ")
    except Exception as error:  # noqa: BLE001 - the other sections still tell something
        found = {"error": f"{type(error).__name__}: {error}"[:300]}
        say(f"{name}: {found['error']}")
    wall = round(time.perf_counter() - start, 2)
    say(f"{name}: {len(entries)} measured in {wall:.1f} s")
    return (
        {"seconds": wall, "before": before, "after": smi(*STATE), "outside": outside()} | found | {"entries": entries}
    )


def started(path: Path, about: Entry) -> Entry:
    """The document of an earlier run on this machine, or a new one."""
    if not path.exists():
        return {"schema": SCHEMA, "date": time.strftime("%Y-%m-%d"), "small": SMALL, "machine": about, "sections": {}}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        before = found["machine"] if found["schema"] == SCHEMA else {}
    except (ValueError, KeyError, TypeError):
        before = {}
    other = [name for name in ("torch", "device", "cpu") if before.get(name) != about[name]]
    if other:
        what = f"another {other[0]}" if before else "something else"
        raise SystemExit(f"{path}: is there already, of {what}; give another -o")
    return dict(found)


def text_of(document: Entry) -> str:
    """The document with a line for every entry."""
    sections = []
    for name, section in document["sections"].items():
        lines = ",\n".join("  " + json.dumps(entry) for entry in section["entries"])
        head = json.dumps({key: value for key, value in section.items() if key != "entries"})
        sections.append(f'{json.dumps(name)}: {head[:-1]}, "entries": [\n{lines}]}}')
    head = json.dumps({key: value for key, value in document.items() if key != "sections"})
    return f'{head[:-1]},\n"sections": {{\n' + ",\n".join(sections) + "\n}}\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("probe.json"))
    parser.add_argument("--only", default="", help="some of " + ", ".join(SECTIONS) + ", separated by commas")
    options = parser.parse_args()
    wanted = [one for one in options.only.split(",") if one] or [*SECTIONS, f"collectives-{WORLD}"]
    if unknown := [one for one in wanted if one not in SECTIONS and not one.startswith("collectives")]:
        parser.error(f"--only: no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    if CUDA:
        torch.cuda.set_device(DEVICE)
    else:
        torch.set_num_threads(1)
    if WORLD > 1:
        dist.init_process_group("nccl" if CUDA else "gloo")
    about = machine()
    document = started(options.output, about) if RANK == 0 else {"sections": {}}
    say(f"{about['device']}, torch {about['torch']}, {WORLD} ranks; under 3 minutes")
    for name in wanted:
        shared = name.startswith("collectives")
        skip = [name in document["sections"] or (shared and WORLD == 1)]
        if WORLD > 1:
            dist.broadcast_object_list(skip)  # the others wait here while the first measures alone
        if skip[0] or (RANK and not shared):
            continue
        section, allowed = (collectives, math.inf) if shared else SECTIONS[name]
        document["sections"][name] = run_section(name, section, allowed)
        if RANK == 0:
            part = options.output.with_name(options.output.name + ".part")
            part.write_text(text_of(document), encoding="utf-8")
            part.replace(options.output)
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
