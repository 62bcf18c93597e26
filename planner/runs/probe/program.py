"""The program that measures as one file, which needs nothing but PyTorch: for machines that this project is not on."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from planner.runs.probe import measure

MODULES: Final = ("timing", "machine", "products", "attention", "passes", "host", "collectives", "__main__")
"""Those of ``measure``, each behind those that it imports; the last one's docstring is the program's."""


def program() -> str:
    """The text of the program: what all modules import, and then their own lines one behind the other."""
    folder = Path(measure.__path__[0])
    texts = [(folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES]
    imported: dict[str, set[str]] = {}
    bodies = []
    for text in texts:
        top = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in top:
            source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if not source.startswith(measure.__name__):
                imported.setdefault(source, set()).update(map(ast.unparse, node.names))
        bodies.append("\n".join(text.splitlines()[max(node.end_lineno or 0 for node in top) :]).strip("\n"))
    head = f'"""{ast.get_docstring(ast.parse(texts[-1]), clean=False)}"""\n\nfrom __future__ import annotations\n'
    imported.pop("__future__")
    plain = [f"import {name}" for name in sorted(imported.pop("", ()))]
    named = [f"from {source} import {', '.join(sorted(names))}" for source, names in sorted(imported.items())]
    return "\n\n\n".join(["\n".join([head, *plain, *named]), *bodies]) + "\n"
