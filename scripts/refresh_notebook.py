"""Run the notebook of the examples and write what it shows into it: ``python scripts/refresh_notebook.py``.

Cells run one after the other in one process, in the folder of the notebook, as Jupyter would run them: what is printed,
and the value of the last line, with its card or picture. No notebook's software is needed, so the tests run it too.
"""

import ast
import json
import os
import sys
from base64 import b64encode
from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
NOTEBOOK: Final = ROOT / "examples" / "first-plan.ipynb"
DRAWS: Final = ".plot("
"""What a cell says that needs matplotlib."""
DOTS: Final = 60


def executed(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The notebook with fresh outputs; a cell that draws keeps its own where nothing can draw."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    with chdir(folder):
        for cell in document["cells"]:
            if cell["cell_type"] != "code":
                cells.append(cell)
                continue
            number += 1
            source = "".join(cell["source"])
            draws = DRAWS in source and not find_spec("matplotlib")
            outputs = cell["outputs"] if draws else _outputs(source, names, number)
            cells.append({**cell, "execution_count": number, "outputs": outputs})
    return {**document, "cells": cells}


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last line where that is an expression."""
    tree, printed = ast.parse(source), StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102 - the repository's own text
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None  # noqa: S307
    text = printed.getvalue()
    stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
    result = {"data": _shown(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
    return [*([stream] if text else []), *([result] if value is not None else [])]


def _shown(value: Any) -> dict[str, Any]:
    """A value as a notebook keeps it: its card, its picture, its text."""
    if hasattr(value, "savefig"):
        picture = BytesIO()
        value.savefig(picture, format="png", dpi=DOTS)
        return {"image/png": b64encode(picture.getvalue()).decode() + "\n", "text/plain": ["<Figure>"]}
    card = {"text/html": value._repr_html_().splitlines(keepends=True)} if hasattr(value, "_repr_html_") else {}
    return card | {"text/plain": repr(value).splitlines(keepends=True)}


def text_of(document: Mapping[str, Any]) -> str:
    """The file of a notebook."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    NOTEBOOK.write_text(text_of(executed(json.loads(NOTEBOOK.read_text()), NOTEBOOK.parent)))
    sys.stdout.write(f"{NOTEBOOK.relative_to(ROOT)}: {NOTEBOOK.stat().st_size / 1000:.0f} kB\n")
