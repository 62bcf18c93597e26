import json
import re

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.render import catalogue as view
from tests.each import each


def run(*args):
    return CliRunner().invoke(main, list(args))


@each("kind", view.KINDS)
def test_every_kind_is_listed_whole(kind):
    done = run("list", kind, "--format", "json")
    assert done.exit_code == 0, done.stderr
    entries = json.loads(done.stdout)
    assert [entry["name"] for entry in entries] == list(view.KINDS[kind].names())
    assert all(value for entry in entries for name, value in entry.items() if name in {"name", "title", "sentence"})


def test_lists_hold_numbers_as_numbers_and_quantities_with_their_unit():
    def listed(kind, name):
        return next(
            entry for entry in json.loads(run("list", kind, "--format", "json").stdout) if entry["name"] == name
        )

    assert [listed("models", "gpt3-175b")[field] for field in ("num_layers", "seq_length")] == [96, 2048]
    assert listed("clusters", "a100-h100-mixed")["gpus_per_node"] == 8
    assert listed("clusters", "a100-h100-mixed")["accelerator"] == ["a100-sxm-80gb", "h100-sxm"]
    device = listed("accelerators", "h100-sxm")
    assert (device["year"], device["memory_bandwidth"]) == (2022, "3.35 TB/s")
    servers = listed("servers", "heterps"), listed("servers", "fleet-cpu")
    assert [one["nodes"] for one in servers] == [[100, 16], 100]
    assert servers[1]["accelerator"] is None
    shown = json.loads(run("show", "gpt3-175b", "--format", "json").stdout)["figures"]
    assert next(one["value"] for one in shown if one["field"] == "num_layers") == 96


@pytest.mark.parametrize("kind", view.KINDS)
def test_the_table_names_every_entry(kind):
    shown = run("list", kind.removesuffix("s"), "-v").stdout
    first_words = {line.split()[0] for line in shown.splitlines() if line.strip()}
    assert set(view.KINDS[kind].names()) <= first_words


@pytest.mark.parametrize("kind", view.KINDS)
def test_a_list_takes_a_screen_and_counts_what_it_leaves_to_v(kind):
    shown = run("list", kind).stdout
    assert len(shown.splitlines()) <= 60
    assert "-v" in shown or all(name in shown for name in view.KINDS[kind].names())


def test_a_word_lists_the_entries_that_say_it():
    names = {entry["name"] for entry in json.loads(run("list", "clusters", "h100", "--format", "json").stdout)}
    assert {"dgx-h100", "aws-p5", "a100-h100-mixed"} <= names
    assert "dgx-a100-80gb" not in names
    assert all(name in run("list", "clusters", "h100").stdout for name in names)
    assert run("list", "clusters", "dgx-h10").stderr == ""
    assert "did you mean dgx-h100" in run("list", "clusters", "dgxh100x").stderr


@pytest.mark.parametrize("name", ["b200", "gb200", "persia", "a100-h100-mixed"])
def test_a_long_entry_takes_a_screen_and_counts_the_rest(name):
    short, whole = run("show", name).stdout, run("show", name, "-v").stdout
    assert len(short.splitlines()) <= 60 < len(whole.splitlines())
    assert re.search(r"Not shown: \d+ figures of \S+; -v shows all", short)


@pytest.mark.parametrize("kind", view.KINDS)
def test_every_entry_of_every_kind_can_be_shown(kind):
    for name in view.KINDS[kind].names():
        assert view.find(name, (kind,)) == (view.KINDS[kind], name)
        assert view.figures(view.KINDS[kind], name)


def test_every_figure_of_an_accelerator_has_its_source():
    facts = {fact.field: fact for fact in view.figures(*view.find("h100-sxm"))}
    assert facts["memory_bandwidth"].value == "3.35 TB/s"
    assert facts["memory_bandwidth"].source.startswith("GitHub stas00/ml-engineering")
    assert facts["peak.bf16"].source == facts["memory_bandwidth"].source
    assert "aiconfigurator" in facts["kernels.gemm.bf16.efficiency"].source
    assert not any(field.startswith("sources") or field.endswith(".source") for field in facts)
    unsourced = {field for field, fact in facts.items() if not fact.source}
    assert unsourced <= {"vendor", "year", "architecture", "like"}


def test_show_finds_the_kind_by_itself():
    for name, kind, full in (
        ("175b", "models", "gpt3-175b"),
        ("DGX-H100", "clusters", "dgx-h100"),
        ("nemo", "stacks", "nemo"),
        ("torchtitan", "stacks", "torchtitan"),
        ("heads", "rules", "heads"),
        ("1f1b", "schedules", "1f1b"),
    ):
        done = run("show", name, "--format", "json")
        assert done.exit_code == 0, done.stderr
        document = json.loads(done.stdout)
        assert (document["kind"], document["name"]) == (kind, full)


def test_a_model_is_shown_by_its_name_on_a_hub():
    assert run("show", "Qwen/Qwen3-8B").stdout == run("show", "qwen3-8b").stdout
    assert "qwen3-8b" in run("show", "Qwen/Qwen3-8B-AWQ").stderr


def test_a_file_is_no_entry():
    assert run("show", "my-cluster.toml").stderr.startswith("plan: 'my-cluster.toml' is a file: ")


def test_an_ambiguous_name_is_settled_by_its_kind():
    assert "`plan show dgx-h100 --kind clusters`" in run("show", "h100").stderr
    document = json.loads(run("show", "h100", "--kind", "cluster", "--format", "json").stdout)
    assert document["name"] == "dgx-h100"


def test_shown_lines_fit_the_screen():
    done = CliRunner().invoke(main, ["show", "h100-sxm"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "NVIDIA H100 SXM5 80 GB" in done.stdout


@each("document", ["request", "plan", "size", "what-if", "robust", "why-not", "comparison"])
def test_schemas_are_json_schemas(document):
    described = json.loads(run("schema", document).stdout)
    assert described["type"] == "object"
    assert described["$schema"].startswith("https://json-schema.org/")
    known = {
        "request": "gpus",
        "size": "answer",
        "what-if": "levers",
        "robust": "radius",
        "why-not": "verdict",
        "comparison": "steps",
    }
    assert known.get(document, "strategy") in described["properties"]


def test_a_list_goes_to_a_file(tmp_path):
    target = tmp_path / "models.json"
    assert run("list", "models", "--format", "json", "-o", str(target)).stdout == ""
    assert any(entry["name"] == "gpt3-175b" for entry in json.loads(target.read_text()))


def test_the_schema_of_a_request_takes_the_tables_that_requests_take():
    fields = json.loads(run("schema", "request").stdout)["properties"]
    for name in ("model", "cluster", "stack"):
        forms = fields[name]["anyOf"]
        assert {form.get("type") for form in forms} >= {"string", "object"}
        assert any("$ref" in form for form in forms)
    share, nothing = fields["memory_margin"]["anyOf"]
    assert [form["type"] for form in (*share["anyOf"], nothing)] == ["number", "string", "null"]


def listed(kind, columns):
    return CliRunner().invoke(main, ["list", kind, "-v"], env={"COLUMNS": str(columns)}).stdout


@pytest.mark.parametrize("kind", ["models", "clusters", "accelerators", "servers", "stacks", "exporters"])
def test_words_of_a_list_break_at_hyphens_only_on_eighty_columns(kind):
    wide, narrow = (set(re.split(r"[\s-]+", listed(kind, columns))) for columns in (400, 80))
    assert narrow == wide


def test_a_list_without_room_has_a_line_for_every_field():
    said = listed("models", 40).splitlines()
    assert said[said.index("megascale-175b") + 1 :][:2] == ["  title: MegaScale 175B", "  num layers: 96"]


def test_the_switches_of_a_stack_fit_on_a_screen_and_v_shows_all_of_each():
    shown, whole = (
        CliRunner().invoke(main, ["show", "megatron-core", *more], env={"COLUMNS": "80"}).stdout.splitlines()
        for more in ((), ("-v",))
    )
    switches = [line.split()[0] for line in shown if line.startswith("  ") and "@" not in line]
    assert len(switches) == len(set(switches)) > 30
    assert len(shown) < 60 < len(whole)
    assert not any("Transformers" in line for line in shown)
    assert any("Transformers" in line for line in whole)


def test_large_counts_are_said_in_letters_and_bytes_with_their_unit():
    model = run("show", "llama3-8b").stdout.split("\n")
    assert [" ".join(line.split()) for line in model if "tokens " in line or "published_parameters" in line] == [
        "tokens 15 T",
        "published_parameters 8.03 B (8,030,261,248)",
    ]
    switches = {line.split()[0]: line.split()[1:3] for line in run("show", "deepspeed").stdout.splitlines() if line}
    assert switches["reduce_bucket_size"] == ["1", "GB"]
    assert "e+" not in run("show", "megatron-core").stdout
