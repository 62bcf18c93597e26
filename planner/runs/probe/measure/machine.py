"""The machine: versions, device, processor, and the state of the device while it works."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist

from planner.runs.probe.measure.timing import CUDA, DEVICE, PER_NODE, WORLD, Entry

STATE = ("clocks.sm", "power.draw", "temperature.gpu", "clocks_throttle_reasons.active")
LIMITS = (
    "driver_version",
    "power.limit",
    "clocks.max.sm",
    "clocks.max.mem",
    "pcie.link.gen.max",
    "pcie.link.width.max",
)


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
    """The device's NUMA node, 0 where it is not known."""
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
