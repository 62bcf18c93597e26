"""Pick the published training runs that people compare with out of the shipped measurements.

    python scripts/refresh_landmarks.py            # rewrite planner/trust/published.csv
    python scripts/refresh_landmarks.py --check    # exit 1 where it differs from the measurements

One run stands for every source, model, accelerator and number of GPUs: the one of the most
model FLOP/s per GPU, among 16-bit runs where there are any. Releases of one source count as one source.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hardware.catalogue import accelerator
from planner.answer.build import mfu_of
from planner.runs.case import Case, case_of
from planner.runs.files import read_runs
from planner.runs.judge import shipped
from planner.runs.schema import Run
from planner.trust.published import Landmark

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "planner" / "trust" / "published.csv"
_RELEASE = re.compile(r"-(v?\d+\.[\d.]+|20\d\d(\.\d+)?|early20\d\d)$")
_SOURCE = re.compile(r"(?:\([^)]*\)|[^,;+(])+")
_DETAIL = re.compile(r" ([^( ]+/|result sheet|results repo|docs |with the job|recipe|README).*")
"""Where the name of a source ends and its page, table or file begins."""
ELSEWHERE: tuple[tuple[str, str, float, int, str, str], ...] = (
    ("BigScience BLOOM, 2022", "BLOOM-176B", 176.2, 384, "a100-sxm-80gb", "about 150 TFLOP/s per GPU"),
    ("Yuan 1.0, 2021", "Yuan 1.0", 245.7, 2128, "a100-sxm-40gb", "44.8 % of peak, recomputation counted"),
)
"""Runs that the shipped measurements do not hold."""


def landmarks() -> list[Landmark]:
    """The chosen runs, by size, accelerator, GPUs and source."""
    chosen = dict[tuple[str, str, str, int], tuple[tuple[bool, float], Run, Case]]()
    runs = (run for path in shipped() for run in read_runs(path) if run.request)
    for run in (run for run in runs if run.source.printed and run.source.billions):
        found = case_of(run)
        where = (_RELEASE.sub("", run.group), run.source.model.lower(), found.scenario.group.accelerator.name)
        key, merit = (*where, found.scenario.gpus), (found.scenario.precision in {"bf16", "fp16"}, speed(run, found))
        if key not in chosen or merit > chosen[key][0]:
            chosen[key] = merit, run, found
    return sorted([*(landmark(run, found) for _, run, found in chosen.values()), *elsewhere()], key=_order)


def _order(run: Landmark) -> tuple[float, str, int, str, str]:
    return run.billions, run.accelerator, run.gpus, run.source, run.model


def speed(run: Run, found: Case) -> float:
    """Model FLOP/s per GPU; 0.0 where no time is known."""
    seconds = run.measured.iteration_seconds
    return mfu_of(found.scenario, seconds) * found.scenario.peak_rate if seconds else 0.0


def landmark(run: Run, found: Case) -> Landmark:
    """One measured run, as the table has it."""
    scenario, told = found.scenario, run.source
    device, said = scenario.group.accelerator.name, "request.precision" not in run.assumed
    return Landmark(
        source=source(told.title),
        model=told.model,
        billions=told.billions or 0.0,
        gpus=scenario.gpus,
        accelerator=device,
        family=family(device),
        precision=scenario.precision.partition("-")[0] if said else "",
        result=told.printed,
    )


def elsewhere() -> Iterator[Landmark]:
    """The runs that only papers tell of."""
    for said, name, billions, gpus, device, text in ELSEWHERE:
        yield Landmark(said, name, billions, gpus, device, family(device), "", text)


def source(title: str) -> str:
    """Who published it, without the page, table or file inside."""
    found = _SOURCE.match(title)
    return _DETAIL.sub("", found.group() if found else title).strip()


@cache
def family(device: str) -> str:
    """Vendor and architecture of an accelerator of the catalogue."""
    found = accelerator(device)
    return f"{found.vendor} {found.architecture}"


def table() -> str:
    """The file as it should be."""
    text = io.StringIO()
    writer = csv.DictWriter(text, Landmark._fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(run._asdict() | {"billions": f"{run.billions:g}"} for run in landmarks())
    return text.getvalue()


def main() -> int:
    """Rewrite the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where the table is stale")
    fresh = table()
    if not parser.parse_args().check:
        TABLE.write_text(fresh, encoding="utf-8")
    elif not TABLE.exists() or TABLE.read_text(encoding="utf-8") != fresh:
        sys.stderr.write(f"{TABLE.relative_to(ROOT)} is stale: run scripts/refresh_landmarks.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
