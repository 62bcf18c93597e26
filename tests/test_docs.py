"""Names, keys and links of the documents are those of the code."""

import re
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name

import pytest

from costmodels.iteration import Breakdown
from costmodels.memory.footprint import Footprint
from costmodels.model.model import Model
from costmodels.stack.overlap import Overlap
from costmodels.stack.stack import Stack
from costmodels.strategy import AXES
from hardware.links import Link, Tier
from hardware.records import Accelerator, Cluster, NodeGroup
from planner.answer.plan import Plan
from planner.request.request import PlanRequest
from planner.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README", "DESIGN", "NOMENCLATURE", "REFERENCES", "CHANGELOG", "CONTRIBUTING")
PAGES = (*DOCUMENTS, *(f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))))
TEXTS = {name: (ROOT / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
RECORDS = (Stack, Overlap, Model, Link, Tier, Accelerator, NodeGroup, Cluster, PlanRequest, Plan)
PLAIN = {"name", "title", "family", "source", "sources", "vendor", "year", "link", "accelerator", "schema_"}
"""Fields whose names say all."""
ROOMS = ("hardware", "costmodels", "planner")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
KEY = re.compile(r"\[([A-Z][A-Za-z]+\d\d|NCCL-tuning|aiconfigurator|simumax|Galvatron|Liger|CP-SAT)\](?!\()")


def defined_keys():
    return set(re.findall(r"^\[([A-Za-z0-9-]+)\] [A-Z]", TEXTS["REFERENCES"], re.MULTILINE))


def homes():
    """Every heading of the nomenclature that names classes, with the first column of its table."""
    for section in TEXTS["NOMENCLATURE"].split("\n## ")[1:]:
        heading = section.splitlines()[0]
        classes = re.findall(r"`((?:hardware|costmodels|planner)[\w.]+)`", section.split("\n|")[0] + heading)
        tables = re.split(r"\n\n(?=[A-Z])", section)
        for table in tables:
            named = re.findall(r"`((?:hardware|costmodels|planner)\.[\w.]+)`", table) or classes
            names = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
            if names:
                yield [resolve_name(name) for name in named], names


def attributes(kind):
    return {*getattr(kind, "__dataclass_fields__", {}), *getattr(kind, "model_fields", {}), *vars(kind)}


@pytest.mark.parametrize("name", [*AXES, *(f.name for kind in (Breakdown, Footprint) for f in fields(kind))])
def test_axes_and_terms_are_in_the_nomenclature(name):
    assert f"| `{name}` |" in TEXTS["NOMENCLATURE"]


def test_every_name_of_the_nomenclature_exists_in_the_code():
    tables = list(homes())
    assert len(tables) >= 8
    for kinds, names in tables:
        known = set().union(*map(attributes, kinds))
        assert set(names) <= known, (kinds, set(names) - known)


@pytest.mark.parametrize("kind", RECORDS)
def test_every_field_that_a_file_or_a_request_can_set_is_in_the_nomenclature(kind):
    said = {name for names in re.findall(r"`([\w.]+)`", TEXTS["NOMENCLATURE"]) for name in names.split(".")}
    assert set(kind.model_fields) - PLAIN <= said


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_key_that_code_cites_is_a_reference(path):
    assert set(KEY.findall(path.read_text(encoding="utf-8"))) <= defined_keys()


@pytest.mark.parametrize("name", PAGES)
def test_every_key_that_a_document_cites_is_a_reference(name):
    assert set(KEY.findall(TEXTS[name])) <= defined_keys()


@pytest.mark.parametrize("key", sorted(defined_keys()))
def test_every_reference_is_cited(key):
    files = [*SOURCES, *(path for room in ROOMS for path in (ROOT / room).rglob("*.toml"))]
    texts = [*(path.read_text(encoding="utf-8") for path in files), *(TEXTS[n] for n in DOCUMENTS if n != "REFERENCES")]
    assert any(re.search(rf"\[{re.escape(key)}\b|\b{re.escape(key)}\]", text) for text in texts)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_and_a_heading_of_it(name):
    here = ROOT / f"{name}.md"
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[name]):
        if target.startswith("http"):
            continue
        file, _, heading = target.partition("#")
        page = (here.parent / file).resolve() if file else here
        assert page.exists(), target
        assert not heading or heading in headings(page), target


def headings(page):
    """The anchors of a page: its headings in lower case, joined by dashes."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", ["DESIGN", "CONTRIBUTING"])
def test_every_path_in_code_type_exists(name):
    for path in re.findall(r"`((?:hardware|costmodels|planner|scripts)/[\w./-]+)`", TEXTS[name]):
        assert (ROOT / path).exists() or "NAME" in path, path


def test_the_modules_and_functions_that_the_design_names_exist():
    named = re.findall(r"`((?:costmodels|planner|hardware)(?:\.[a-z_]+)+)`", TEXTS["DESIGN"])
    assert len(named) > 5
    for name in named:
        assert resolve_name(name)


def test_decisions_are_numbered_without_gaps():
    numbers = [int(n) for n in re.findall(r"^## (\d+)\. ", TEXTS["DESIGN"], re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "## What is weaker than wished" in TEXTS["DESIGN"]


def test_the_changelog_knows_this_version():
    assert re.search(rf"^## {re.escape(VERSION)}\b", TEXTS["CHANGELOG"], re.MULTILINE)
    assert "### Predictions" in TEXTS["CHANGELOG"]


def test_the_licence_is_the_one_that_the_package_states():
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "aiconfigurator" in (ROOT / "NOTICE").read_text()
