"""Machines from what ``plan probe`` measured: products, attention, passes over memory, launches, collectives.

Every constant says how many measurements it rests on; what a probe does not tell stays as the catalogue has it, and
the notes say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median, stdev
from typing import Any, Final, get_args

import numpy as np

from costmodels.primitives.kernels import attention_seconds
from costmodels.stack.costs import HostCosts
from hardware.kernels import AttentionFit
from hardware.records import Accelerator, Cluster
from planner.runs.calibrate.document import Constant, Errors
from planner.runs.calibrate.identify import Fit, settle
from planner.runs.calibrate.products import fit_products
from planner.runs.calibrate.records import Log, Operation, Product, Transfer
from planner.runs.calibrate.summary import Part, Wording, errors, exponential, fitted, log_knob, plain, source
from planner.runs.least_squares import Floats
from planner.runs.probe.records import Probe

NOISE: Final = 0.05
"""Spread of a kernel's time around its formula."""
KERNELS: Final[Mapping[str, tuple[str, ...]]] = {"flash": ("flash-2",), "cudnn": ("cudnn-9.18", "cudnn")}
"""PyTorch's backends to the kernels that they are, the newest that the accelerator knows first."""
_SPREADS: Final[Mapping[str, tuple[float, float, float]]] = {
    "efficiency": (0.3, 0.01, 2.0),
    "sequence_half": (1.0, 1.0, 1e5),
    "narrow": (0.3, 0.1, 1.5),
    "backward_efficiency_ratio": (0.3, 0.1, 2.0),
}
_HINTS: Final = {
    "efficiency": "long sequences",
    "sequence_half": "sequences of several lengths",
    "narrow": "heads of 64 and 128",
    "backward_efficiency_ratio": "both passes",
}
NORMS: Final = ("rms_norm", "layer_norm")


@dataclass(slots=True)
class Probed:
    """A cluster with what was measured on one of its devices, and what is said of it."""

    cluster: Cluster
    constants: list[Constant] = field(default_factory=list)
    errors: list[Errors] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def device(self) -> Accelerator:
        """The accelerator as far as it has been measured."""
        return self.cluster.accelerator

    @property
    def part(self) -> Part:
        """What is said of it."""
        return Part(tuple(self.constants), tuple(self.errors), tuple(self.warnings), tuple(self.notes))

    def change(self, device: Accelerator) -> None:
        """Put another one in its place."""
        group = self.cluster.groups[0].model_copy(update={"accelerator": device})
        self.cluster = self.cluster.model_copy(update={"groups": (group,)})

    def add(self, part: Part) -> None:
        """Say what a fit says too."""
        self.constants += part.constants
        self.errors += part.errors
        self.warnings += part.warnings

    def state(self, path: str, before: float, after: float, said: str, error: float = 0.0) -> None:
        """A constant that is measured as it is, without a fit; ``error`` is its standard error."""
        name = f"cluster.{path}"
        self.constants.append(
            Constant(name=name, before=before, after=after, standard_error=error, narrowed=0.0, source=said)
        )


def fit_probe(probe: Probe, cluster: Cluster) -> tuple[Cluster, Part]:
    """The cluster with the accelerator, the host's launches and the host link that a probe measured.

    Raises:
        BadFile: its times are those of no such machine.
    """
    found = Probed(cluster)
    _memory_size(probe, found)
    _products(probe, found)
    for backend in KERNELS:
        _attention(probe, found, backend)
    _passes(probe, found)
    _host(probe, found)
    return found.cluster, found.part


def logs_of(probe: Probe) -> list[Log]:
    """Its collectives, as the tests of nccl-tests that they are; a broadcast has no constants of its own."""
    kept = [e for e in probe.entries if e["what"] in get_args(Operation) and e["ranks"] > 1]
    places = dict.fromkeys((e["what"], e["tier"], e["ranks"], e["nodes"]) for e in kept)
    return [
        Log(
            file=probe.file,
            line=1,
            operation=what,
            device=probe.device,
            nodes=nodes,
            ranks_per_node=ranks // nodes,
            transfers=tuple(
                Transfer(float(e["bytes"]), e["slowest"], 1) for e in kept if (e["what"], e["tier"]) == (what, tier)
            ),
        )
        for what, tier, ranks, nodes in places
    ]


def _memory_size(probe: Probe, found: Probed) -> None:
    size = float(probe.machine.get("memory") or 0.0)
    if size:
        found.state("accelerator.usable_memory", found.device.usable_memory, size, f"{probe.file}: what PyTorch sees")
        found.change(found.device.model_copy(update={"usable_memory": size}))


def _products(probe: Probe, found: Probed) -> None:
    """Products in every format that the accelerator multiplies; a probe heats it first, so that they are sustained."""
    kept = [e for e in probe.all("product") if e.get("scaling") != "row" and found.device.multiplies(e["dtype"])]
    if not kept:
        found.notes.append(f"{probe.file}: no products; those of the catalogue stay")
        return
    shapes = [Product(probe.file, 1, e["m"], e["n"], e["k"], e["dtype"], e["seconds"]) for e in kept]
    device, parts = fit_products(shapes, found.device)
    for part in parts:
        found.add(part)
    said = f"{probe.file}: products were timed on a device at its limit of power"
    table = dict(device.kernels.gemm)
    for dtype in {e["dtype"] for e in kept}:
        found.state(f"accelerator.kernels.gemm.{dtype}.sustained", table[dtype].sustained, 1.0, said)
        table[dtype] = table[dtype].model_copy(update={"sustained": 1.0})
    found.state("accelerator.training_rate", found.device.training_rate, 1.0, said)
    kernels = device.kernels.model_copy(update={"gemm": table})
    found.change(device.model_copy(update={"training_rate": 1.0, "kernels": kernels}))


def _attention(probe: Probe, found: Probed, backend: str) -> None:
    """One kernel's forward pass and both passes together."""
    known = found.device.kernels.attention
    name = next((one for one in KERNELS[backend] if one in known), None)
    kept = [e for e in probe.all("attention", backend=backend) if e["d"] in {64, 128} and e["kv_heads"] == e["heads"]]
    if name is None or not kept:
        found.notes.append(f"{probe.file}: no attention of {backend}; the catalogue's stays")
        return
    fit = _fit_attention(kept, found.device, known[name])
    said = source([probe.file], 2 * len(kept), f"passes of attention, PyTorch's {backend}", fit)
    words = Wording(f"cluster.accelerator.kernels.attention.{name}.", "these passes", _HINTS, exponential)
    found.add(Part(words.constants(fit, said), (errors(f"attention, {name}", fit),), words.warnings(fit)))
    unsaid = {"error_median": None, "error_p90": None, "source": said}
    changed = known[name].model_copy(update={**fitted(fit, exponential), **unsaid})
    kernels = found.device.kernels.model_copy(update={"attention": {**known, name: changed}})
    found.change(found.device.model_copy(update={"kernels": kernels}))


def _fit_attention(kept: list[Mapping[str, Any]], device: Accelerator, start: AttentionFit) -> Fit:
    b, h, s, d = (np.array([float(e[name]) for e in kept]) for name in ("batch", "heads", "s", "d"))
    flops, rows, peak = 2.0 * b * h * s * s * d, b * h * s, device.peak_rate("bf16")
    measured = np.log([e["forward"]["seconds"] for e in kept] + [e["both"]["seconds"] for e in kept])
    knobs = [log_knob(name, float(getattr(start, name)), limits) for name, limits in _SPREADS.items()]

    def residuals(values: Floats) -> Floats:
        tried = start.model_copy(update={k.field: math.exp(float(v)) for k, v in zip(knobs, values, strict=True)})
        wide = np.where(d < 128, peak * tried.narrow, peak)
        units = float(device.compute_units)
        forward, backward = (
            np.array(
                [
                    attention_seconds(flops=f, span=length, rows=r, fit=tried, peak=p, units=units, backward=back)
                    for f, length, r, p in zip(flops, s, rows, wide, strict=True)
                ]
            )
            for back in (False, True)
        )
        return np.asarray(np.log(np.concatenate([forward, forward + backward])) - measured)

    return settle(residuals, knobs, noise=NOISE)


def _passes(probe: Probe, found: Probed) -> None:
    """Shares of the nominal bandwidth: fused passes are compiled ones, backward passes of norms PyTorch's own."""
    bandwidth, fit = found.device.memory_bandwidth, found.device.kernels.memory_bound
    compiled = [e["forward"]["bytes_per_second"] for e in probe.all("pass", compiled=True) if "forward" in e]
    fused = compiled or [e["forward"]["bytes_per_second"] for e in probe.all("pass", name="gelu")]
    stock = [e["forward"]["bytes_per_second"] for name in NORMS for e in probe.all("pass", name=name, compiled=False)]
    back = [
        3 * 2 * e["rows"] * e["width"] / (e["both"]["seconds"] - e["forward"]["seconds"])
        for name in NORMS
        for e in probe.all("pass", name=name, compiled=False)
        if "both" in e
    ]
    update: dict[str, Any] = {}
    for name, rates in {"fused": fused, "stock": stock, "backward": back}.items():
        if not rates:
            found.notes.append(f"{probe.file}: no passes for memory_bound.{name}; the catalogue's stays")
            continue
        update[name] = plain(median(rates) / bandwidth)
        said = f"{probe.file}: median of {len(rates)} passes over {1e-12 * bandwidth:.3g} TB/s"
        found.state(
            f"accelerator.kernels.memory_bound.{name}",
            getattr(fit, name),
            update[name],
            said,
            _error(rates) / bandwidth,
        )
    if update:
        changed = fit.model_copy(update=update | {"source": f"{probe.file}: passes over memory"})
        kernels = found.device.kernels.model_copy(update={"memory_bound": changed})
        found.change(found.device.model_copy(update={"kernels": kernels}))


def _error(values: list[float]) -> float:
    """Standard error of their mean; half of the value where there is one alone."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else values[0] / 2.0


def _host(probe: Probe, found: Probed) -> None:
    """The host's time for a call, over that of the host that stacks are written for; and the link to it."""
    _launches(probe, found)
    _link(probe, found)


def _launches(probe: Probe, found: Probed) -> None:
    """What starting the kernels of a small layer takes, both passes, where the host is bound best."""
    bound = [e["layer"]["host"] for e in probe.all("launch")]
    counted = [e["kernels"] / e["layers"] for e in probe.all("kernels")]
    if not bound or not counted:
        found.notes.append(f"{probe.file}: no launches of a layer; the host stays as it was")
        return
    fastest = min(bound, key=lambda one: float(one["seconds"]))
    usual = counted[0] * float(HostCosts().launch_time)
    factor = plain(min(max(fastest["seconds"] / usual, 0.1), 10.0))
    times = f"{1e6 * fastest['seconds']:.0f} us to start the {counted[0]:.0f} kernels of a layer's passes"
    said = f"{probe.file}: {times}, {1e6 * usual:.0f} us assumed of stacks"
    found.state("accelerator.host", found.device.host, factor, said, (fastest["p90"] - fastest["p10"]) / usual / 2.56)
    found.change(found.device.model_copy(update={"host": factor}))


def _link(probe: Probe, found: Probed) -> None:
    """The bandwidth between host and device."""
    largest = max((e["bytes"] for e in probe.all("copy", pinned=True)), default=0)
    speeds = [e["bytes_per_second"] for e in probe.all("copy", pinned=True, bytes=largest)]
    group = found.cluster.groups[0]
    if speeds:
        said = f"{probe.file}: pinned copies of {largest} bytes, the slower way"
        found.state("node.host_link", group.host_link or 0.0, min(speeds), said)
        group = group.model_copy(update={"host_link": min(speeds)})
        found.cluster = found.cluster.model_copy(update={"groups": (group,)})
