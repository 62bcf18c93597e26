"""``plan init`` writes a cluster file that every command takes, and says where each figure is from."""

import itertools
import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from hardware.catalogue import cluster
from planner.cli import init, main
from tests.planner.machines import samples

FILES = {
    "smi.txt": samples.SMI,
    "topo.txt": samples.TOPOLOGY,
    "cpu.txt": samples.PROCESSORS,
    "ib.txt": samples.PORTS,
    "sinfo.txt": samples.SINFO,
    "nodes.txt": samples.SCONTROL,
    "nodes.json": samples.kubernetes(),
}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return lambda *words, **more: CliRunner().invoke(main, list(words), **more)


def written(plan, *words, code=0):
    done = plan("init", *words, "-o", "mine.toml", "--force")
    assert done.exit_code == code, done.output
    return cluster("./mine.toml") if code == 0 else done.stderr


def test_one_node_described_by_its_own_programs(plan):
    machines = written(plan, "smi.txt", "cpu.txt", "ib.txt", "--nodes", "16")
    (group,) = machines.groups
    assert (group.accelerator.name, group.gpus_per_node, group.nodes) == ("h100-sxm", 2, 16)
    assert group.accelerator.power_limit == 500.0
    assert group.host_link == 64e9
    assert group.host_bandwidth == 614.4e9
    assert group.tiers[-1].link.bandwidth == 200e9 / 8  # one port of 400 Gb/s for two devices


@pytest.mark.parametrize(("cards", "gigabytes"), [(1, 6.25), (4, 25.0), (8, 50.0), (10, 50.0), (16, 100.0)])
def test_ports_beyond_one_a_gpu_are_storage_s(plan, tmp_path, cards, gigabytes):
    card = samples.PORTS.split("CA 'mlx5_1'")[0]
    (tmp_path / "ports.txt").write_text("".join(card.replace("mlx5_0", f"mlx5_{n}") for n in range(cards)))
    (group,) = written(plan, "ports.txt", "--accelerator", "h100", "--gpus-per-node", "8").groups
    assert group.tiers[-1].link.bandwidth == pytest.approx(gigabytes * 1e9)
    assert ("2 more left out" in " ".join(Path("mine.toml").read_text().split())) == (cards == 10)


def test_the_order_of_the_files_says_nothing(plan):
    found = {
        written(plan, *order).model_dump_json()
        for order in itertools.permutations(["smi.txt", "cpu.txt", "ib.txt", "topo.txt"])
    }
    assert len(found) == 1


@pytest.mark.parametrize("names", [("sinfo.txt",), ("sinfo.txt", "smi.txt"), ("nodes.txt", "ib.txt"), ("nodes.json",)])
def test_what_is_written_is_planned_on(plan, names):
    machines = written(plan, *names)
    gpus = str(sum(group.gpus_per_node for group in machines.groups) if len(machines.groups) > 1 else 8)
    done = plan("--model", "llama3-8b", "--cluster", "mine.toml", "--gpus", gpus, "--no-reasons", "--format", "json")
    assert done.exit_code == 0, done.output


def test_kinds_of_nodes_become_groups_and_a_node_s_own_words_count_more(plan):
    machines = written(plan, "sinfo.txt", "smi.txt")
    first, second = machines.groups
    assert (first.accelerator.name, first.nodes, first.accelerator.power_limit) == ("h100-sxm", 10, 500.0)
    assert (second.accelerator.name, second.nodes, second.accelerator.power_limit) == ("a100-pcie-80gb", 6, None)


def test_of_several_kinds_one_is_taken(plan):
    (group,) = written(plan, "sinfo.txt", "--accelerator", "h100").groups
    assert (group.accelerator.name, group.nodes) == ("h100-sxm", 10)
    assert "name one of these" in written(plan, "sinfo.txt", "--accelerator", "b200", code=2)


def test_a_kind_that_is_not_known_is_left_out_and_said(plan, tmp_path):
    (tmp_path / "odd.txt").write_text(samples.SINFO + "new gpu:gpu9000:4 3 2 x[1-3]\n")
    done = plan("init", "odd.txt", "-o", "-")
    assert done.exit_code == 0
    assert "left out: 3 nodes with gpu9000" in " ".join(done.stderr.split())
    assert "left out: 3 nodes with gpu9000" in " ".join(done.stdout.replace("#", " ").split())


def test_an_accelerator_that_is_not_known_gives_the_nearest(plan, tmp_path):
    (tmp_path / "odd.txt").write_text(samples.LISTED.replace("A100-SXM4-40GB", "H100 SXM9"))
    said = written(plan, "odd.txt", code=2)
    assert "nvidia-smi -L" in said
    assert "h100-sxm" in said
    assert "--accelerator says which" in said
    assert written(plan, "odd.txt", "--accelerator", "h100-sxm").groups[0].gpus_per_node == 2


def test_every_figure_has_its_source_above_it(plan):
    written(plan, "smi.txt", "cpu.txt", "ib.txt", "--nodes", "4", "--price", "2")
    lines = Path("mine.toml").read_text().splitlines()
    fields = [n for n, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    bare = [lines[n] for n in fields if not lines[n - 1].startswith("#")]
    assert bare == ['name = "mine"', 'like = "ib-ndr400"']
    assert "# - what the GPUs really reach: plan probe -o probe.json" in "\n".join(lines)


def test_what_nobody_said_is_named_as_assumed(plan):
    machines = written(plan, "--accelerator", "NVIDIA A100-SXM4-80GB")
    assert machines.groups[0].gpus_per_node == 8
    text = Path("mine.toml").read_text()
    assert "# assumed: as most nodes with it" in text
    assert "# assumed: the catalogue's for a100-sxm-80gb" in text
    assert "# assumed: as the catalogue's dgx-a100-80gb; --network says otherwise" in text
    assert "# nodes = 16" in text


def test_a_short_name_says_what_else_it_may_be(plan):
    done = plan("init", "nodes.txt", "-o", "-")
    assert '"a100" may be a100-pcie-40gb or' in done.stderr


def test_a_cloud_s_machine_has_its_cloud_s_network(plan):
    (group,) = written(plan, "nodes.json").groups
    assert group.tiers[-1].link.bandwidth == 50e9
    assert "p5.48xlarge, the" in Path("mine.toml").read_text()


def test_without_nvlink_the_links_inside_are_pcie(plan):
    (group,) = written(plan, "smi.txt", "topo.txt", "--nodes", "1").groups
    assert group.tiers[0].link.bandwidth == 64e9


def test_a_node_alone_needs_no_network(plan):
    (group,) = written(plan, "--accelerator", "l40s", "--gpus-per-node", "4", "--nodes", "1").groups
    assert len(group.tiers) == 1


def test_files_that_differ_are_said(plan, tmp_path):
    (tmp_path / "one.txt").write_text("PARTITION GRES NODES NODELIST\na gpu:h100:8 2 n[1-2]\n")
    assert "says 2 GPUs in a node; 8 is taken" in plan("init", "one.txt", "smi.txt", "-o", "-").stderr


def test_who_names_an_unknown_cluster_hears_of_it(plan):
    done = plan("--model", "llama3-8b", "--gpus", "8", "--cluster", "our-machines")
    assert done.exit_code == 2
    assert "`plan init` writes a file of your own" in done.stderr


def test_nothing_is_written_over_without_force(plan, tmp_path):
    (tmp_path / "my-cluster.toml").write_text("kept")
    done = plan("init", "--accelerator", "h100")
    assert done.exit_code == 2
    assert "--force" in done.stderr
    assert (tmp_path / "my-cluster.toml").read_text() == "kept"
    assert plan("init", "--accelerator", "h100", "--force").exit_code == 0


def test_without_a_terminal_nothing_is_asked(plan):
    done = plan("init", input="h100\n8\n2\n400 Gb/s\n2\n")
    assert done.exit_code == 2
    assert "give --accelerator" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--accelerator", "h100", "--nodes", "few"), "--nodes: expected a whole number such as 8, got 'few'"),
        (("--accelerator", "h100", "--network", "400"), "--network: expected a bandwidth"),
        (("--accelerator", "h100", "--price", "cheap"), "--price: expected a price"),
        (("--accelerator", "gpu9000"), "--accelerator: unknown accelerator 'gpu9000'"),
        (("--accelerator", "h100", "-o", "mine.txt"), "a cluster file ends in .toml"),
        (("missing.txt",), "missing.txt: no such file"),
    ],
)
def test_what_is_wrong_is_one_line(plan, words, said):
    done = plan("init", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


ANSWERS = {"Accelerator": "h100", "GPUs in": "", "Nodes": "2", "Network": "200 Gb/s", "Rent": "2.5"}


@pytest.fixture
def terminal(monkeypatch):
    """A person at a terminal: what is asked, and the answers."""
    asked = []

    def answer(text, _suggested):
        asked.append(text)
        return next(said for begin, said in ANSWERS.items() if text.startswith(begin))

    monkeypatch.setattr(init, "at_terminal", lambda: True)
    monkeypatch.setattr(init, "_asked", answer)
    return asked


def test_five_questions_make_a_cluster(plan, terminal):
    (group,) = written(plan).groups
    assert len(terminal) == 5
    assert (group.accelerator.name, group.gpus_per_node, group.nodes) == ("h100-sxm", 8, 2)
    assert group.tiers[-1].link.bandwidth == 25e9
    assert tomllib.loads(Path("mine.toml").read_text())["price"] == "2.5 $/h"


def test_only_what_files_leave_open_is_asked(plan, terminal):
    written(plan, "smi.txt", "ib.txt", "--nodes", "4")
    assert [text[:4] for text in terminal] == ["Rent"]


def test_a_wrong_answer_is_asked_again(plan, monkeypatch):
    said = iter(["gpu9000", "h100", "", "two", "2", "", ""])
    monkeypatch.setattr(init, "at_terminal", lambda: True)
    monkeypatch.setattr(init, "_asked", lambda _text, _suggested: next(said))
    assert written(plan).groups[0].nodes == 2


def test_no_questions_asks_none(plan, terminal):
    written(plan, "--accelerator", "h100", "--no-questions")
    assert terminal == []


def test_kinds_of_nodes_that_nobody_counts_are_one_each(plan, tmp_path):
    (tmp_path / "h100.txt").write_text("GPU 0: NVIDIA H100 80GB HBM3 (UUID: a)\n")
    (tmp_path / "a100.txt").write_text("GPU 0: NVIDIA A100-SXM4-80GB (UUID: b)\n")
    machines = written(plan, "h100.txt", "a100.txt")
    assert [group.nodes for group in machines.groups] == [1, 1]
    done = plan("-m", "gpt3-125m", "-c", "./mine.toml", "-g", "2", "--no-reasons")
    assert done.exit_code == 0, done.stderr


def test_nodes_without_bf16_among_others_are_planned_on_in_fp16_and_that_is_said(plan, tmp_path):
    (tmp_path / "v100.txt").write_text("GPU 0: Tesla V100-SXM2-32GB (UUID: a)\n")
    (tmp_path / "a100.txt").write_text("GPU 0: NVIDIA A100-SXM4-80GB (UUID: b)\n")
    machines = written(plan, "v100.txt", "a100.txt")
    assert len(machines.groups) == 2
    assert "[[between]]" in (tmp_path / "mine.toml").read_text()
    ask = ("-m", "gpt3-125m", "-c", "./mine.toml", "-g", "2", "--no-reasons")
    shown = " ".join(plan(*ask).stdout.split())
    assert "precision fp16 (v100-sxm2-32gb has no bf16)" in shown
    assert "--fp16" in plan(*ask, "--format", "args").stdout
    assert json.loads(plan(*ask, "--format", "json").stdout)["request"]["precision"] == "fp16"
    assert "does not compute in bf16" in plan(*ask, "--precision", "bf16").stderr


def test_a_scheduler_and_a_driver_that_name_other_devices_are_said(plan, tmp_path):
    (tmp_path / "a100.txt").write_text("GPU 0: NVIDIA A100-SXM4-80GB (UUID: b)\n")
    (tmp_path / "slurm.txt").write_text("GRES NODES NODELIST\ngpu:h100:8 2 n[1-2]\n")
    done = plan("init", "a100.txt", "slurm.txt", "-o", "mine.toml")
    assert "GRES says h100; NVIDIA A100-SXM4-80GB is taken" in done.stderr


@pytest.mark.parametrize("name", ["\x1b[2J", 'EPYC"\\', "\x00", "\x85"])
def test_names_that_are_no_text_harm_no_file(plan, tmp_path, name):
    (tmp_path / "cpu.txt").write_text(f"Socket(s): 2\nModel name: AMD {name}\n")
    assert written(plan, "smi.txt", "cpu.txt", "--nodes", "2").groups
