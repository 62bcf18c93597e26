"""Put fresh figures into the generated parts of the documents.

    python scripts/refresh_readme.py            # rewrite README.md, docs, CHANGELOG.md and the picture
    python scripts/refresh_readme.py --check    # exit 1 where they differ from fresh figures

A part stands between ``<!-- name -->`` and ``<!-- /name -->``. Every one comes from a real run of the program
or from a file of the repository. A check forgives the time that a proof took and differences in the last digit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from origins_table import origins_table
from predicted_plot import drawn

from planner.runs.files import read_runs
from planner.runs.judge import shipped
from planner.trust.table import Run, measured

ROOT = Path(__file__).resolve().parents[1]
QUESTION = ("--model", "175b", "--gpus", "12288")
WIDTH = 80
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")
_WALL_TIME = re.compile(r"proved in [\d.]+ \w+")


@cache
def unfitted() -> Mapping[str, str]:
    """Groups that the calibration of times leaves out, in part or wholly, and why."""
    runs = (run for path in shipped() for run in read_runs(path) if run.not_fitted)
    partly = {run.group: f"fitted to in part: {run.not_fitted}" for run in runs}
    whole = tomllib.loads((ROOT / "planner" / "trust" / "not_fitted.toml").read_text(encoding="utf-8"))
    return partly | {name: f"not fitted to: {why}" for name, why in whole.items()}


def printed(*arguments: str) -> str:
    """What ``plan`` writes on stdout, on a screen of ``WIDTH`` columns without colours."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("PLAN_")}
    command = [sys.executable, "-m", "planner", *arguments]
    surroundings = known | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    ).stdout


def fenced(text: str, language: str) -> str:
    """The text as a code block."""
    return f"```{language}\n{text.rstrip()}\n```"


def screen() -> str:
    """The screen of the first example."""
    return fenced(f"$ plan {' '.join(QUESTION)}\n\n{printed(*QUESTION)}", "text")


def sparse() -> str:
    """The screen of a model on parameter servers."""
    command = ("sparse", "--model", "examples/ads-10tb.toml", "--cluster", "hierps", "--max-cost", "150 $/h")
    shown = re.sub(r"(search: proved) in [\d.]+ m?s$", r"\1", printed(*command), flags=re.MULTILINE)
    return fenced(f"$ plan {shlex.join(command)}\n\n{shown.strip()}", "text")


LARGE: Final = (
    ("GPT-3 175B", "12,288 H100", ("-m", "175b", "-g", "12288")),
    ("Llama 3.1 405B", "16,384 H100", ("-m", "llama3.1-405b", "-g", "16384")),
    ("DeepSeek-V3", "2,048 H800", ("-m", "deepseek-v3", "-g", "2048", "-c", "dgx-h800", "--global-batch", "15360")),
    ("Qwen3-235B-A22B", "16,384 H100", ("-m", "qwen3-235b-a22b", "-g", "16384", "--global-batch", "16384")),
    ("Kimi-K2", "16,384 H100", ("-m", "kimi-k2", "-g", "16384", "--global-batch", "16384")),
    ("Llama 2 70B", "64 A100 + 64 H100", ("-m", "llama2-70b", "-g", "128", "-c", "a100-h100-mixed", "--pp", "8")),
)
"""Questions whose effort is shown: model, machines, options."""


def effort() -> str:
    """What it takes to answer some large questions, in counts that no load of the machine changes."""
    lines = [
        "| model | machines | strategies | priced | layers split by the solver | proved |",
        "|---|---|--:|--:|--:|---|",
    ]
    for model, machines, asked in LARGE:
        answer = json.loads(printed(*asked, "--no-reasons", "--format", "json"))
        proof, proved = answer["proof"], "yes" if answer["status"] == "optimal" else "no"
        counts = f"{proof['candidates']:,} | {proof['priced']:,} | {proof['solves']:,}"
        lines.append(f"| {model} | {machines} | {counts} | {proved} |")
    return "\n".join(lines)


def example(name: str) -> Callable[[], str]:
    """A file of the examples, shown whole."""
    return lambda: fenced((ROOT / "examples" / name).read_text(encoding="utf-8"), "toml")


@cache
def validated() -> dict[str, Any]:
    """The report on the shipped runs."""
    report: dict[str, Any] = json.loads(printed("validate", "--format", "json"))
    return report


def accuracy() -> str:
    """Errors by kind of run, in sample and unseen, what intervals hold, memory, and whether runs fit."""
    lines = [
        "| time, by kind of run | publishers | runs | in sample | unseen | inside the 90 % interval | half width |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for kind, one in validated()["unseen"].items():
        errors = f"{one['in_sample']:.1%} | {one['unseen']:.1%}"
        lines.append(
            f"| {kind} | {one['publishers']} | {one['n']:,} | {errors} | {one['inside']:.0%} | {one['width']:.0%} |"
        )
    memory = validated()["unseen_memory"]["all"]
    errors = f"median error {memory['unseen']:.1%} unseen, {memory['in_sample']:.1%} in sample"
    held = f"- Memory: {errors}, mean over {memory['publishers']} publishers, {memory['n']:,} runs."
    told = [
        f"- Fits {asked}, of {one['runs']:,} runs unseen: {one['right']:.1%} right, {one['caught']:.0%} of "
        f"{one['failed']} failures caught; of those said to fit {one['ran']:.1%} ran."
        for asked, one in validated()["unseen_fits"].items()
    ]
    return "\n".join([*lines, "", held, *told])


def sources() -> str:
    """Every source group: times, and memory."""
    return "\n".join([*times_table(), "", *memory_table()])


def times_table() -> list[str]:
    """One row a source: all its runs in sample, those of the table of errors with its publisher left out."""
    by_group: dict[str, list[Run]] = {}
    for run in measured().runs:
        by_group.setdefault(run.group, []).append(run)
    lines = [
        "<details>",
        "<summary>Iteration time by source</summary>",
        "",
        "| source | runs | bias | median | p90 | median, unseen | in interval, unseen |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, errors in validated()["groups"].items():
        mark = f" ({unfitted()[name]})" if name in unfitted() else ""
        runs = by_group[name]
        unseen = f"{median(abs(math.expm1(-run.miss)) for run in runs):.1%} | {mean(run.inside for run in runs):.0%}"
        lines.append(f"| {name}{mark} | {int(errors['n']):,} | {_errors(errors)} | {unseen} |")
    return [*lines, "", "</details>"]


def memory_table() -> list[str]:
    """One row a source."""
    groups = validated()["memory_groups"].items()
    return [
        "<details>",
        "<summary>Memory by source</summary>",
        "",
        "| source | runs | bias | median | p90 |",
        "|---|--:|--:|--:|--:|",
        *(f"| {name} | {int(errors['n']):,} | {_errors(errors)} |" for name, errors in groups),
        "",
        "</details>",
    ]


def unpriced() -> str:
    """How many measured figures could not be priced, and why."""
    rows = validated()["rows"]
    reasons = Counter(row["reason"] for row in rows if row.get("reason"))
    told = "".join(f"\n- {count:,}: {reason}" for reason, count in reasons.most_common(6))
    return f"Of {len(rows):,} measured figures {sum(reasons.values()):,} are not priced, most because:\n{told}"


@cache
def ranked() -> Mapping[str, Any]:
    """The report on the choice among measured strategies."""
    found: Mapping[str, Any] = json.loads(printed("validate", "--ranking", "--format", "json"))
    return found


def effects() -> str:
    """What single options change, as measured and as predicted."""
    lines = [
        "| one option changed | sources | pairs | measured | predicted | error | direction right |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in ranked()["effects"].items():
        change = f"{one['measured']:+.1%} | {one['predicted']:+.1%}"
        error = f"{one['error']:+.1%} &plusmn; {one.get('deviation', math.nan):.1%}"
        lines.append(f"| {name} | {one['publishers']} | {one['pairs']:,} | {change} | {error} | {one['right']:.0%} |")
    return "\n".join(lines)


def ranking() -> str:
    """How well the model chooses among the strategies of measured sweeps."""
    names = ("sweeps over", "sources", "sweeps", "mean regret", "floor", "rank correlation", "ceiling", "within noise")
    lines = [f"| {' | '.join(names)} |", f"|---|{'--:|' * (len(names) - 1)}"]
    for over, key in (("strategy and batch", "summary"), ("strategy alone", "summary_same_batch")):
        one = ranked()[key]
        regret = f"{one['mean_regret']:.1%} | {one['regret_floor']:.1%}"
        figures = f"{regret} | {one['rank_correlation']:.2f} | {one['ceiling']:.2f} | {one['near']:.0%}"
        lines.append(f"| {over} | {one['sources']} | {one['sweeps']} | {figures} |")
    return "\n".join(lines)


def _errors(errors: Mapping[str, float]) -> str:
    return f"{errors['bias']:+.1%} | {errors['median_abs_error']:.1%} | {errors['p90_abs_error']:.1%}"


def predictions() -> str:
    """The summary for the changelog."""
    one, memory = validated()["unseen"]["all"], validated()["unseen_memory"]["all"]
    errors = f"{one['unseen']:.1%} with a run's publisher left out, {one['in_sample']:.1%} in sample"
    size = f"{memory['unseen']:.1%} likewise, {memory['in_sample']:.1%} in sample; {memory['publishers']} publishers"
    return (
        f"- iteration time: median error {errors}; mean over {one['publishers']} publishers.\n"
        f"- memory: median error {size}."
    )


def catalogue() -> str:
    """How much the catalogue holds."""
    from planner.render.catalogue import KINDS

    counts = {kind: len(json.loads(printed("list", kind, "--format", "json"))) for kind in KINDS}
    return f"The catalogue holds {', '.join(f'{n} {kind}' for kind, n in counts.items())}; `plan list` shows them."


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "screen": screen,
        "accuracy": accuracy,
        "catalogue": catalogue,
    },
    "docs/accuracy.md": {"ranking": ranking, "effects": effects, "unpriced": unpriced},
    "docs/accuracy-by-source.md": {"sources": sources, "origins": lambda: origins_table(printed)},
    "docs/machines.md": {"my-model": example("my-model.toml"), "my-cluster": example("my-cluster.toml")},
    "docs/asking.md": {"effort": effort},
    "docs/sparse.md": {"sparse": sparse},
    "docs/studies.md": {"sweep": example("sweep.toml")},
    "CHANGELOG.md": {"predictions": predictions},
}


PICTURE = ROOT / "docs" / "images" / "predicted-measured.svg"


def part(text: str, name: str) -> str:
    """What stands between the marks of a part.

    Raises:
        ValueError: the marks are missing.
    """
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    if found is None:
        raise ValueError(f"there is no part {name!r}")
    return found[1]


def replaced(text: str, name: str, fresh: str) -> str:
    """The text with a part in its fresh form."""
    start = f"<!-- {name} -->\n"
    return text.replace(f"{start}{part(text, name)}<!-- /{name} -->", f"{start}{fresh.rstrip()}\n<!-- /{name} -->")


def differences(old: str, fresh: str) -> Iterator[str]:
    """Lines that differ by more than a last digit or the time of a proof."""
    before, after = (_WALL_TIME.sub("proved in", text).strip().splitlines() for text in (old, fresh))
    if len(before) != len(after):
        yield f"{len(before)} lines, {len(after)} are due"
        return
    for was, due in zip(before, after, strict=True):
        if not alike(was, due):
            yield f"{was!r}, due {due!r}"


def alike(was: str, due: str) -> bool:
    """The same words, bars aside, with numbers that differ by no more than a last digit."""
    words = [" ".join(_NUMBER.sub("0", line).replace("#", " ").split()) for line in (was, due)]
    numbers = [[float(n.replace(",", "")) for n in _NUMBER.findall(line)] for line in (was, due)]
    return words[0] == words[1] and all(
        abs(a - b) <= max(0.1001, 0.005 * abs(b)) for a, b in zip(*numbers, strict=True)
    )


def main() -> None:
    """Rewrite the documents, or say what is stale."""
    parser = argparse.ArgumentParser(description="Fresh figures for the documents.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where figures are stale")
    checking = parser.parse_args().check
    stale = []
    for document, parts in PARTS.items():
        path = ROOT / document
        text = path.read_text(encoding="utf-8")
        for name, make in parts.items():
            fresh = make()
            stale += [f"{document}, {name}: {line}" for line in differences(part(text, name), fresh)]
            text = replaced(text, name, fresh)
        if not checking:
            path.write_text(text, encoding="utf-8")
    if not checking:
        PICTURE.write_text(drawn(), encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != drawn():
        stale.append(f"{PICTURE.name}: is not what planner/trust/measured.csv says")
    if checking and stale:
        sys.exit("\n".join([*stale[:20], f"{len(stale)} stale; run python scripts/refresh_readme.py"]))


if __name__ == "__main__":
    main()
