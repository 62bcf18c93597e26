"""Measured runs on disk: JSON lines, one run a line; plain or gzipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hardware.errors import BadFile
from planner.runs.files import STDIN, json_lines
from run_words import heard as re

Row = Mapping[str, Any]

_SECTIONS = ("cluster", "stack", "model", "strategy", "measured")


def read_rows(path: Path) -> Iterator[Row]:
    """The runs of one file, or of stdin where the path is "-".

    Raises:
        BadFile: missing, empty, not text, a line that is not JSON or has no section; the message names the line.
    """
    for number, document in json_lines(path):
        yield row_of(path, f"line {number}", document)


def row_of(path: Path, where: str, row: object) -> Row:
    """A parsed run, once it is seen to be one; of a section left out nothing is stated, and its file is its group.

    Raises:
        BadFile: it is no object, has no section or one that is none; the message begins with ``where`` it stands.
    """
    if not isinstance(row, dict):
        raise BadFile(path, f"{where}: expected an object, got {type(row).__name__}")
    said = {section: row[section] for section in _SECTIONS if row.get(section) is not None}
    for section, fields in said.items():
        if not isinstance(fields, dict):
            raise BadFile(path, f"{where}: section {section!r} is not an object")
    if not said:
        raise BadFile(path, f"{where}: no run, which has sections {', '.join(_SECTIONS)}")
    group = row.get("group") or ("stdin" if path == STDIN else Path(path).name)
    return row | {"group": group} | {section: said.get(section, {}) for section in _SECTIONS}


def measured_seconds(row: Row) -> float | None:
    """Seconds per iteration as measured, or out of a throughput; None where nothing of the kind is said."""
    return next((seconds for _, seconds in _times(row)), None)


def told_by(row: Row) -> str:
    """Which figure of a run gives its time; "" where none does."""
    return next((name for name, _ in _times(row)), "")


def _times(row: Row) -> Iterator[tuple[str, float]]:
    """Seconds per iteration by each figure that gives them, the first the one that counts."""
    said, plan = row["measured"], row["strategy"]
    if said.get("iteration_time_s"):
        yield "iteration_time_s", float(said["iteration_time_s"])
    batch, gpus, seq = plan.get("global_batch_size"), plan.get("gpus"), row["model"].get("seq_length")
    if not batch or not gpus:
        return
    amounts = {
        "tokens_per_s_per_gpu": (seq or 0) * batch / gpus,
        "tokens_per_s": (seq or 0) * batch,
        "samples_per_s": batch,
        "samples_per_s_per_gpu": batch / gpus,
    }
    yield from ((name, float(n) / float(said[name])) for name, n in amounts.items() if said.get(name) and n)


AGREEING = 1.1
"""Longest over shortest time by the figures of one run up to which they say the same."""


def contradicting(row: Row) -> tuple[str, ...]:
    """A note where two figures of a run tell two times."""
    first, *others = [*_times(row)] or [("", 1.0)]
    apart = [one for one in others if not 1.0 / AGREEING <= one[1] / first[1] <= AGREEING]
    if not apart:
        return ()
    return (f"{first[0]} counts, by which an iteration takes {first[1]:.4g} s; by {apart[0][0]} {apart[0][1]:.4g} s",)


CONVENTIONS: tuple[tuple[str, str], ...] = (
    (r"stated \"up to\"|unknown|whole application|framework counter", ""),
    (r"\b8 ?\*? ?nd?\b", "8N"),
    (r"\(6\*n\*tokens\)|\b6 ?\*? ?n ?\*? ?d?\b.*(without|no|not|excluding) attention", "6N"),
    (r"hardware|with-recompute|with recompute|profiler|\bhfu\b|\b96 ?\*? ?[bls]", "hardware"),
    (r"^(?!.*(causal or not|not halved)).*(causal|halved)", "model-causal"),
    (r"^(?!.*(attention|12|palm|megatron)).*\b6 ?\*? ?n( ?\*? ?(d|t|tokens))?\b", "6N"),
    (
        r"model|without recompute|full attention|megatron|palm|nanogpt|12 ?\*? ?l|6 ?\*? ?n( ?\*? ?d|\b.*attention)",
        "model",
    ),
    (r"\bmfu\b", "model"),
)
"""First match of a stated FLOP convention names a definition of ``model.flops``; none where it is not clear."""

_REPEATED = r"(?:(?:the|activation|selective|full|gradient|extra) )*(?:recomp\w*|checkpoint\w*|remat\w*)"
SPELLINGS: Final = (
    (r"(non|not|un)[-_ ]?causal( attention)?", "full attention"),
    (
        rf"\b(excl(\.|ud\w*)?|without|w/o|no|not (counting|including)|net of|minus|ignoring) {_REPEATED}",
        "without recompute",
    ),
    (rf"{_REPEATED}( flops?)? (is |are )?(excluded|not (counted|included)|ignored|omitted)", "without recompute"),
    (rf"\b(incl(\.|ud\w*)?|with|counts|counting|plus) {_REPEATED}", "with recompute"),
    (rf"{_REPEATED}( flops?)? (is |are )?(included|counted)|\b4 ?x (the )?forward\b", "with recompute"),
    (r"\battention (is |are )?(excluded|ignored|omitted|not (counted|included))", "without attention"),
    (
        r"\b(6|8) ?[*x\u00d7]? ?(p|params?|parameters|n_?act\w*|active param\w*)\b(?! ?[*x\u00d7]? ?(d|t|tokens)\b)",
        r"\1n",
    ),
    (
        r"\b(6|8) ?[*x\u00d7]? ?(pd|(p|params?|parameters|n_?act\w*|active param\w*) ?[*x\u00d7]? ?(d|t|tokens))\b",
        r"\1nd",
    ),
)
"""Other ways to put what ``CONVENTIONS`` reads."""


def convention(row: Row) -> str:
    """The FLOP definition of a row's TFLOP/s, MFU or HFU; "" where it is not clear. A plain MFU counts "model"."""
    measured = row["measured"]
    said = measured.get("flops_convention")
    if said is None and measured.get("hfu") and not (measured.get("mfu") or measured.get("tflops_per_gpu")):
        return "hardware"
    words = "model" if said is None else _plainly(str(said).lower())
    return next((name for pattern, name in CONVENTIONS if re.search(pattern, words)), "")


def _plainly(said: str) -> str:
    """The words on what is counted in those that ``CONVENTIONS`` knows."""
    for theirs, ours in SPELLINGS:
        said = re.sub(theirs, ours, said)
    return said


def efficiency_seconds(row: Row, flops: float, peak: float) -> float | None:
    """Seconds per iteration out of a utilisation or TFLOP/s, where neither time nor throughput is said.

    Args:
        row: the run.
        flops: FLOP of one iteration on all devices, by ``convention``.
        peak: FLOP/s of one device, where the row does not state its own ``mfu_peak_tflops``.
    """
    said, gpus = row["measured"], float(row["strategy"].get("gpus") or 0)
    if not gpus or not convention(row):
        return None
    rate = 1e12 * float(said.get("tflops_per_gpu") or 0)
    if not rate and (share := said.get("mfu") or said.get("hfu")):
        stated = said.get("mfu_peak_tflops")
        rate = float(share) * (1e12 * float(stated) if stated else peak)
    return flops / (gpus * rate) if rate else None
