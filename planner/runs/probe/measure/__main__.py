"""Measure the machine that this runs on; needs nothing but PyTorch.

    python measure.py -o probe.json                          one device
    torchrun --nproc-per-node 8 measure.py -o probe.json     and the links between devices

Writes the file after every section and skips sections that it holds already, so that it may be stopped and started.
Times are in seconds: the median of repeated blocks of calls behind a warm-up, with the 10th and 90th percentile.
Device times are of calls that a graph replays, where that works, so that they hold no time of the host.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from planner.runs.probe.measure.attention import attention
from planner.runs.probe.measure.collectives import collectives
from planner.runs.probe.measure.host import allocator, copies, host
from planner.runs.probe.measure.machine import STATE, machine, outside, smi
from planner.runs.probe.measure.passes import memory, optimizer
from planner.runs.probe.measure.products import grouped, matrix
from planner.runs.probe.measure.timing import CUDA, DEVICE, RANK, SCHEMA, SMALL, WORLD, Entry, Left, say

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
