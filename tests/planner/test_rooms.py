"""Which package may import which, and where the heavy libraries are allowed."""

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = {"hardware": 0, "costmodels": 1, "planner": 2}
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
ALLOWED = {
    "ortools": {"planner/stages/solver.py", "planner/sparse/solver.py", "planner/allocation/solver.py"},
    "click": {"planner/cli"},
    "rich": {"planner/cli", "planner/render/terminal"},
    "scipy": {"planner/runs", "costmodels/training/goodput.py"},
    "fastapi": {"planner/service/app.py"},
    "starlette": {"planner/service/app.py"},
    "uvicorn": {"planner/cli/serve.py", "planner/service/connections.py"},
    "h11": {"planner/service/connections.py"},  # uvicorn has it with it
    "yaml": {"planner", "costmodels/model/huggingface"},
    "tree_sitter": {"planner/jobs/shell/parsing.py"},
    "tree_sitter_bash": {"planner/jobs/shell/parsing.py"},
    "ray": {"planner/studies/ray_engine.py"},
    "torch": {"planner/runs/probe/measure"},  # runs in a process of its own
    "pyarrow": {"planner/studies/table.py"},
}
"""Library to the files and folders (or beginnings of names) that may import it."""
PLAIN = {"numpy", "pydantic", *FLOORS, *sys.stdlib_module_names}


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def imports(path, *, at_run_time=True):
    """Top-level packages that a module imports; what only type checkers see can be left out."""
    found = set()
    for node in walk(tree_of(path), at_run_time=at_run_time):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module.partition(".")[0])
    return found


def walk(node, *, at_run_time):
    yield node
    for child in ast.iter_child_nodes(node):
        if at_run_time and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if not isinstance(child, ast.expr):
            yield from walk(child, at_run_time=at_run_time)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def test_packages_only_look_down():
    for path in MODULES:
        mine = FLOORS[path.relative_to(ROOT).parts[0]]
        above = {name for name, floor in FLOORS.items() if floor > mine}
        assert not imports(path, at_run_time=False) & above, name_of(path)


def test_heavy_libraries_stay_where_they_are_needed():
    for path in MODULES:
        for library in imports(path) - PLAIN:
            homes = ALLOWED.get(library, ())
            assert any(name_of(path).startswith(home) for home in homes), f"{name_of(path)} imports {library}"


def test_the_search_imports_its_solver_only_when_it_solves():
    tree = ast.parse((ROOT / "planner/stages/solver.py").read_text())
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert not any("ortools" in ast.dump(node) for node in top)


def test_an_import_upwards_would_be_found(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text("def f():\n    from planner.search.best_first import search\n    return search\n")
    assert imports(path) == {"planner"}
