"""A machine from what ``plan probe`` measured: constants come back, what is missing is said, runs are priced better."""

import ast
import json
import re
import sys
import tomllib
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from click.testing import CliRunner

from costmodels.primitives.kernels import attention_seconds, matmul_seconds
from hardware.catalogue import accelerator, cluster
from hardware.errors import BadFile
from planner.cli import main
from planner.errors import BadRequest
from planner.runs.calibrate.calibrate import calibrate
from planner.runs.calibrate.links import transfer_seconds
from planner.runs.calibrate.records import Log
from planner.runs.probe import measure
from planner.runs.probe.program import MODULES, program
from planner.runs.probe.records import SECTIONS

EXAMPLE = Path(__file__).parents[3] / "examples" / "probe" / "h100.json"
H100 = accelerator("h100-sxm")
PEAK, BANDWIDTH, UNITS = H100.peak_rate("bf16"), H100.memory_bandwidth, float(H100.compute_units)


def written(folder, entries, **changes):
    document = {
        "schema": "probe/1",
        "small": False,
        "machine": {"device": "NVIDIA H100 80GB HBM3", "memory": 85e9},
        "sections": {"all": {"entries": entries}},
    } | changes
    path = folder / "probe.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def after(answer):
    return {one.name.removeprefix("cluster.accelerator."): one.after for one in answer.constants}


def test_products_come_back_as_they_were_made(tmp_path):
    true = H100.kernels.gemm["bf16"].model_copy(
        update={"efficiency": 0.6, "k_half": 300.0, "memory_efficiency": 0.9, "overhead": 5e-6, "sustained": 1.0}
    )
    sides = (64, 256, 1024, 4096, 16384)
    entries = [
        {"what": "product", "dtype": "bf16", "layout": "forward", "m": m, "n": n, "k": k}
        | {"seconds": float(matmul_seconds(m=m, n=n, k=k, fit=true, peak=PEAK, bandwidth=BANDWIDTH))}
        for m in sides
        for n in sides
        for k in sides
    ]
    found = after(calibrate(written(tmp_path, entries)))
    for name in ("efficiency", "k_half", "memory_efficiency", "overhead"):
        assert found[f"kernels.gemm.bf16.{name}"] == pytest.approx(getattr(true, name), rel=0.03), name
    assert (found["kernels.gemm.bf16.sustained"], found["training_rate"]) == (1.0, 1.0)  # they were timed hot


@pytest.mark.parametrize(("backend", "kernel"), [("flash", "flash-2"), ("cudnn", "cudnn-9.18")])
def test_attention_comes_back_as_it_was_made(tmp_path, backend, kernel):
    true = H100.kernels.attention[kernel].model_copy(
        update={"efficiency": 0.5, "sequence_half": 900.0, "narrow": 0.7, "backward_efficiency_ratio": 0.7}
    )

    def entry(s, d):
        flops, rows = 2.0 * 32 * s * s * d, 32.0 * s
        about = {"flops": flops, "span": s, "rows": rows, "fit": true, "units": UNITS}
        about["peak"] = PEAK * (true.narrow if d == 64 else 1.0)
        forward, backward = float(attention_seconds(**about)), float(attention_seconds(**about, backward=True))
        shape = {"what": "attention", "backend": backend, "batch": 1, "heads": 32, "kv_heads": 32, "s": s, "d": d}
        return shape | {"forward": {"seconds": forward}, "both": {"seconds": forward + backward}}

    entries = [entry(s, d) for s in (1024, 2048, 4096, 8192, 32768) for d in (64, 128)]
    found = after(calibrate(written(tmp_path, entries)))
    for name in ("efficiency", "sequence_half", "narrow", "backward_efficiency_ratio"):
        assert found[f"kernels.attention.{kernel}.{name}"] == pytest.approx(getattr(true, name), rel=0.03), name


def test_collectives_come_back_as_they_were_made(tmp_path):
    group = cluster("dgx-h100").with_gpus(16).groups[0]
    slower = [
        tier.model_copy(update={"link": tier.link.model_copy(update={"efficiency": 0.7 * tier.link.efficiency})})
        for tier in group.tiers
    ]
    sizes = [2.0**power for power in range(14, 31, 2)]
    entries = []
    for tier, ranks, nodes in (("all", 16, 2), ("node", 8, 1)):
        for what in ("all_reduce", "all_gather", "alltoall", "sendrecv"):
            log = Log("", 1, what, "", nodes, ranks // nodes, ())
            seconds = transfer_seconds(log, np.array(sizes), slower, group)
            about = {"what": what, "tier": tier, "ranks": ranks, "nodes": nodes}
            entries += [about | {"bytes": b, "slowest": s} for b, s in zip(sizes, seconds.tolist(), strict=True)]
    entries.append({"what": "broadcast", "tier": "all", "ranks": 16, "nodes": 2, "bytes": 4096, "slowest": 1.0})
    answer = calibrate(written(tmp_path, entries))
    found = {one.name: one for one in answer.constants if one.name.endswith(".efficiency")}
    for tier in group.tiers[:2]:
        one = found[f"cluster.{tier.name}.efficiency"]
        assert one.after == pytest.approx(0.7 * tier.link.efficiency, rel=0.05), tier.name


def test_an_unknown_accelerator_borrows_from_the_cluster_that_is_named_and_says_so(tmp_path):
    path = written(tmp_path, [], machine={"device": "NVIDIA Z900", "memory": 99e9})
    with pytest.raises(BadRequest, match="no cluster is known with 'NVIDIA Z900'"):
        calibrate(path)
    answer = calibrate(path, cluster="dgx-h100")
    assert any("NVIDIA Z900 is not in the catalogue" in note for note in answer.notes)
    assert after(answer)["usable_memory"] == 99e9


@pytest.mark.parametrize(
    ("device", "named", "cluster"),
    [
        ("NVIDIA H100 80GB HBM3", None, "dgx-h100"),
        ("NVIDIA H100 PCIe", None, "h100-pcie-8x"),
        ("AMD Instinct MI250X/MI250", None, "mi250x-frontier"),
        ("Tesla V100-SXM3-32GB", None, "v100-dgx2"),
        ("NVIDIA H100", "h100-96gb-hbm2e", "h100-96gb-hbm2e"),  # a driver need not say the memory
    ],
)
def test_a_device_in_its_drivers_words_finds_its_machines(tmp_path, device, named, cluster):
    path = written(tmp_path, [], machine={"device": device, "memory": 85e9})
    assert calibrate(path, cluster=named).cluster == f"{cluster}-calibrated"


def test_what_a_probe_lacks_stays_and_is_said(tmp_path):
    answer = calibrate(written(tmp_path, []))
    assert [one.name for one in answer.constants] == ["cluster.accelerator.usable_memory"]
    said = " ".join(answer.notes)
    for missing in (
        "no products",
        "no attention of flash",
        "no attention of cudnn",
        "memory_bound.fused",
        "no launches",
    ):
        assert missing in said


def test_the_example_fits_and_reads_back_with_a_source_for_every_figure(tmp_path):
    answer = calibrate(EXAMPLE)
    assert all("h100.json" in one.source for one in answer.constants)
    for part in answer.errors:
        assert part.median_after < min(0.05, part.median_before), part.what
    profile = tmp_path / "h100.toml"
    profile.write_text(answer.profile, encoding="utf-8")
    read = tomllib.loads(answer.profile)
    assert read["cluster"]["name"] == "dgx-h100-calibrated"
    priced = CliRunner().invoke(
        main, ["predict", "--model", "llama3-8b", "--gpus", "8", "--tp", "8", "--profile", str(profile), "-q"]
    )
    assert priced.exit_code == 0, priced.stderr


def test_runs_on_the_machine_are_priced_better_by_its_probe(tmp_path):
    profile = tmp_path / "h100.toml"
    profile.write_text(calibrate(EXAMPLE).profile, encoding="utf-8")
    lines = (EXAMPLE.parent / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    other = ("autocast", "compile", "math", "hf", "moe")
    runs = tmp_path / "runs.jsonl"
    runs.write_text("\n".join(line for line in lines if not any(word in json.loads(line)["id"] for word in other)))

    def misses(*options):
        done = CliRunner().invoke(main, ["validate", str(runs), "--format", "json", *options])
        rows = json.loads(done.stdout)["rows"]
        return [[abs(row["error"]) for row in rows if row["metric"] == what] for what in ("iteration_time", "memory")]

    (before, _), (after, memory) = misses(), misses("--profile", str(profile))
    assert len(before) == len(after) == 30
    assert median(after) < 0.8 * median(before)
    assert median(after) < 0.04
    assert max(before) > 0.5  # of a step that waits for a slow host
    assert max(after) < 0.11  # which the probe knows of
    assert median(memory) < 0.005


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"small": True}, "without a GPU"),
        ({"sections": 3}, "not a complete answer of plan probe"),
        ({"machine": {"device": "NVIDIA A100-SXM4-80GB"}}, "measured on NVIDIA A100-SXM4-80GB"),
    ],
)
def test_a_file_that_tells_nothing_is_refused_in_one_line(tmp_path, changes, message):
    with pytest.raises(BadFile, match=message) as refused:
        calibrate(written(tmp_path, [], **changes), cluster="dgx-h100")
    assert "\n" not in str(refused.value)


def test_sections_are_those_of_the_program():
    table = re.search(r"^SECTIONS\b.*?^}", program(), re.DOTALL | re.MULTILINE)[0]
    assert tuple(re.findall(r'^    "(\w+)"', table, re.MULTILINE)) == SECTIONS
    refused = CliRunner().invoke(main, ["probe", "--only", "matrx"])
    assert (refused.exit_code, refused.stderr) == (
        2,
        "plan: --only matrx: there is no such section; did you mean matrix?\n",
    )


def test_the_command_prints_the_program_and_says_what_it_needs(tmp_path):
    printed = CliRunner().invoke(main, ["probe", "--print"])
    assert (printed.exit_code, printed.stdout) == (0, program())
    refused = CliRunner().invoke(main, ["probe", "-o", str(tmp_path / "no" / "probe.json")])
    assert refused.exit_code == 2
    assert "folder" in refused.stderr


def test_the_program_that_is_printed_is_all_that_measures_and_needs_only_pytorch():
    printed = ast.parse(program())
    defined = {node.name for node in printed.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    folder = Path(measure.__path__[0])
    assert {path.stem for path in folder.glob("*.py")} == {*MODULES, "__init__"}
    for name in MODULES:
        own = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8")).body
        assert {node.name for node in own if isinstance(node, ast.FunctionDef | ast.ClassDef)} <= defined
    imported = {node.module for node in ast.walk(printed) if isinstance(node, ast.ImportFrom)}
    imported |= {one.name for node in ast.walk(printed) if isinstance(node, ast.Import) for one in node.names}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "torch"}
