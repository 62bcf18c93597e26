"""The notebook of the examples runs, and shows what it would show today: `python scripts/refresh_notebook.py`."""

import json

import pytest
from refresh_notebook import NOTEBOOK, executed, text_of


@pytest.fixture(scope="module")
def kept():
    return json.loads(NOTEBOOK.read_text())


def code(document):
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def said(cell):
    """What a cell shows, as text and as cards; frames and pictures in HTML are their libraries'."""
    shown = [output.get("data", output) for output in cell["outputs"]]
    card = "".join("".join(one.get("text/html", "")) for one in shown)
    return [one.get("text/plain", one.get("text")) for one in shown], card if "meshwright-card" in card else ""


def test_every_cell_shows_what_it_would_show_today(kept, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    fresh = executed(kept, NOTEBOOK.parent)
    for before, now in zip(code(kept), code(fresh), strict=True):
        assert said(now) == said(before), "".join(now["source"])
        assert now["execution_count"] == before["execution_count"]


def test_every_cell_shows_something(kept):
    assert all(cell["outputs"] for cell in code(kept))
    assert sum(bool(said(cell)[1]) for cell in code(kept)) >= 4
    assert any("image/png" in output.get("data", {}) for cell in code(kept) for output in cell["outputs"])


def test_the_file_is_small_and_as_its_script_writes_it(kept):
    assert NOTEBOOK.stat().st_size < 100_000
    assert NOTEBOOK.read_text() == text_of(kept)


def test_an_error_in_a_cell_is_not_swallowed(kept, tmp_path):
    broken = {**kept, "cells": [{"cell_type": "code", "source": ["1 / 0"], "outputs": [], "metadata": {}}]}
    with pytest.raises(ZeroDivisionError):
        executed(broken, tmp_path)
