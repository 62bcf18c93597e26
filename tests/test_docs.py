"""Names, keys and links of the documents are those of the code."""

import ast
import inspect
import re
import textwrap
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name

import pytest

from costmodels.iteration import Breakdown
from costmodels.memory.footprint import Footprint
from costmodels.model.model import Model
from costmodels.stack.stack import GROUPS, Stack
from costmodels.strategy import AXES
from hardware.links import Link, Tier
from hardware.records import Accelerator, Cluster, NodeGroup
from planner.answer.plan import Plan
from planner.request.fields import FIELDS
from planner.request.request import PlanRequest
from planner.version import VERSION
from tests.each import each

ROOT = Path(__file__).resolve().parents[1]
RECORDS_OF_DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
DOCUMENTS = ("README", "NOMENCLATURE", "REFERENCES", "CHANGELOG", "CONTRIBUTING")
DECISIONS = tuple(f"docs/decisions/{path.stem}" for path in RECORDS_OF_DECISIONS)
GUIDES = tuple(f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md")))
PAGES = (*DOCUMENTS, *GUIDES, "docs/decisions/README", *DECISIONS)
TEXTS = {name: (ROOT / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
RECORDS = (Stack, *GROUPS.values(), Model, Link, Tier, Accelerator, NodeGroup, Cluster, PlanRequest, Plan)
PLAIN = {"name", "title", "family", "source", "sources", "vendor", "year", "link", "accelerator", "schema_"}
"""Fields whose names say all."""
ROOMS = ("hardware", "costmodels", "planner")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
KEY = re.compile(r"\[([A-Z][A-Za-z]+\d\d|NCCL-tuning|aiconfigurator|simumax|Galvatron|Liger|CP-SAT)\](?!\()")


def defined_keys():
    return set(re.findall(r"^- \[([^\]]+)\] ", TEXTS["REFERENCES"], re.MULTILINE))


def homes():
    """Every heading of the nomenclature that names a class, with the names in the first column of its table."""
    for section in TEXTS["NOMENCLATURE"].split("\n## ")[1:]:
        if named := re.search(r": `([A-Z]\w+)`", section.splitlines()[0]):
            columns = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
            yield class_named(named[1]), [name for column in columns for name in re.findall(r"\w+", column)]


def class_named(name):
    """The class of that name, wherever in the rooms it lives."""
    for path in SOURCES:
        if re.search(rf"^class {name}\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            return resolve_name(f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}:{name}")
    raise AssertionError(name)


def described(kind):
    """Fields of a record with a docstring below them, or a description, in it or in what it inherits from."""
    found = {name for name, field in kind.model_fields.items() if field.description}
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in ROOMS:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
            found |= {a.target.id for a, b in pairwise(body) if isinstance(a, ast.AnnAssign) and is_text(b)}
    return found


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def attributes(kind):
    return {*getattr(kind, "__dataclass_fields__", {}), *getattr(kind, "model_fields", {}), *vars(kind)}


@each("name", [*AXES, *(f.name for kind in (Breakdown, Footprint) for f in fields(kind))])
def test_axes_and_terms_are_in_the_nomenclature(name):
    assert f"| `{name}` |" in TEXTS["NOMENCLATURE"]


def test_every_name_of_the_nomenclature_exists_in_the_code():
    tables = list(homes())
    assert len(tables) >= 4
    for kind, names in tables:
        assert names
        assert set(names) <= attributes(kind), (kind, set(names) - attributes(kind))


@each("kind", RECORDS)
def test_every_field_that_a_file_or_a_request_can_set_is_described(kind):
    said = {name for names in re.findall(r"`([\w.]+)`", TEXTS["NOMENCLATURE"]) for name in names.split(".")}
    in_the_table = {name for name, field in FIELDS.items() if field.help} if kind is PlanRequest else set()
    assert set(kind.model_fields) - PLAIN - described(kind) - in_the_table <= said


def test_every_key_that_code_cites_is_a_reference():
    known = defined_keys()
    for path in SOURCES:
        assert set(KEY.findall(path.read_text(encoding="utf-8"))) <= known, path


@each("name", PAGES)
def test_every_key_that_a_document_cites_is_a_reference(name):
    assert set(KEY.findall(TEXTS[name])) <= defined_keys()


def test_every_reference_is_cited():
    words = (ROOT / "scripts").rglob("*.py")  # what measured runs say is read there
    files = [*SOURCES, *words, *(path for room in ROOMS for path in (ROOT / room).rglob("*.toml"))]
    texts = [*(path.read_text(encoding="utf-8") for path in files), *(TEXTS[n] for n in PAGES if n != "REFERENCES")]
    bracketed = " ".join(part for text in texts for part in re.findall(r"\[([^\[\]]+)\]", text))
    assert [key for key in sorted(defined_keys()) if not re.search(rf"\b{re.escape(key)}\b", bracketed)] == []


@each("name", PAGES)
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


@each("name", ["docs/architecture", "CONTRIBUTING", *DECISIONS])
def test_every_path_in_code_type_exists(name):
    for path in re.findall(r"`((?:hardware|costmodels|planner|scripts)/[\w./-]+)`", TEXTS[name]):
        assert (ROOT / path).exists() or "NAME" in path, path


def test_decisions_have_numbers_of_their_own_and_all_are_in_the_index():
    numbers = [int(path.stem[:3]) for path in RECORDS_OF_DECISIONS]
    assert len(numbers) > 30
    assert len(set(numbers)) == len(numbers)
    titles = [TEXTS[name].splitlines()[0].removeprefix("# ") for name in DECISIONS]
    due = [f"- [{title}]({path.name})" for title, path in zip(titles, RECORDS_OF_DECISIONS, strict=True)]
    assert re.findall(r"^- \[\d.*", TEXTS["docs/decisions/README"], re.MULTILINE) == due


@each("name", DECISIONS)
def test_a_decision_says_what_why_and_what_it_costs_on_one_page(name):
    headings_ = re.findall(r"^#+ (.+)$", TEXTS[name], re.MULTILINE)
    assert headings_[0].startswith(name.split("/")[-1][:3])
    assert headings_[1:] == ["What", "Why", "What it costs"]
    assert len(TEXTS[name].encode()) < 3000


@pytest.mark.parametrize(
    ("name", "most"),
    [("README", 12_000), ("docs/architecture", 12_000), ("NOMENCLATURE", 12_000), ("CONTRIBUTING", 8_000)],
)
def test_a_page_that_newcomers_read_stays_short(name, most):
    assert len(TEXTS[name].encode()) <= most


def test_the_changelog_knows_this_version():
    assert re.search(rf"^## {re.escape(VERSION)}\b", TEXTS["CHANGELOG"], re.MULTILINE)
    assert "### Predictions" in TEXTS["CHANGELOG"]


def test_pages_count_the_public_files_that_are_listed():
    listed = (ROOT / "docs" / "tried-files.tsv").read_text(encoding="utf-8").splitlines()[1:]
    page = (ROOT / "docs" / "tried-files.md").read_text(encoding="utf-8")
    counts = [int(count.replace(",", "")) for count in re.findall(r"^\| [a-z -]+ \| ([\d,]+) \|", page, re.MULTILINE)]
    assert sum(counts) == len(listed)
    repositories = {line.partition("\t")[0] for line in listed}
    assert f"lists {len(listed):,} public files of {len(repositories)} repositories" in page
    assert f"lists {len(listed):,}\n" in TEXTS["README"]
    assert f"[{len(listed):,} public files]" in (ROOT / "docs" / "my-script.md").read_text(encoding="utf-8")


def test_the_licence_is_the_one_that_the_package_states():
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "aiconfigurator" in (ROOT / "NOTICE").read_text()
