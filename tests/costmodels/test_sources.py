"""Every formula and every stack says where it comes from, and every key that is cited is spelled out."""

import ast
import re
from pathlib import Path

import costmodels
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.stack.stack import stack, stack_names
from hardware import files
from tests.each import each

HOME = Path(costmodels.__file__).parent
MODULES = sorted(HOME.rglob("*.py"))
REFERENCES = (HOME.parent / "REFERENCES.md").read_text()
CITED = re.compile(r"\[([A-Z][A-Za-z]+\d\d|[A-Za-z]+(?:-[A-Za-z]+)?)\](?!\w|\()")
FORMULAS = (
    *("kernels", "collectives", "layer/attention", "blocks", "traffic", "iteration", "schedules"),
    *("activations", "states", "rows", "flops"),
)


def docstrings(path):
    kinds = (ast.Module, ast.FunctionDef, ast.ClassDef)
    return [
        text
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]


def keys(text):
    return {key for key in CITED.findall(text) if key[0].isupper() or key in {"aiconfigurator", "simumax"}}


@each("path", MODULES)
def test_every_cited_key_is_spelled_out(path):
    spelled = path.read_text()
    known = files.read(HOME.parent / "hardware" / "catalogue" / "sources.toml")
    for key in keys("\n".join(docstrings(path))):
        plain = key.lower().replace("-", "_")
        listed = plain in known or f"- [{key}] " in REFERENCES
        assert listed or re.search(rf"\[{key}\]:? +[A-Z]", spelled), f"[{key}] is nowhere spelled out"


@each("name", FORMULAS)
def test_a_module_of_formulas_cites_publications(name):
    text = "\n".join(docstrings(next(HOME.glob(f"**/{name}.py"))))
    assert keys(text) or re.search(r"arXiv|et al\.", text) or "linear in" in text or "pipeline" in text


def test_every_schedule_and_every_stack_has_a_source():
    assert all(schedule.source for schedule in SCHEDULES.values())
    assert all(stack(name).source for name in stack_names())


@each("path", MODULES)
def test_every_public_function_is_documented(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.name}: {node.name}"
