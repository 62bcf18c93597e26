"""Figures of answers by both libraries."""

import pytest

from planner import PlanRequest, compare, plan, predict


@pytest.fixture(scope="module")
def answers():
    asked = PlanRequest(model="llama3-8b", gpus=8, reasons=False)
    best = plan(asked)
    return {"plan": best, "comparison": compare(predict(asked.model_copy(update={"pins": {"tp": 8}})), best)}


@pytest.mark.parametrize("kind", ["plan", "comparison"])
def test_matplotlib_draws_and_saves(answers, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    figure = answers[kind].plot()
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_is_left_open_nowhere(answers, monkeypatch):
    """Else a notebook shows it twice, and a loop keeps them all."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot as plt

    answers["plan"].plot(library="matplotlib")
    assert plt.get_fignums() == []


def test_plotly_has_a_bar_a_series(answers):
    assert len(answers["comparison"].plot(library="plotly").data) == 2
    parts = [bar.name for bar in answers["plan"].plot(library="plotly").data]
    assert parts[0] == "seconds"
    assert "weights" in parts


@pytest.mark.parametrize("library", ["matplotlib", "plotly"])
def test_names_are_no_formulas(library, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    model = {
        "name": "<b>$\\frac{x$",
        "seq_length": 1024,
        "num_layers": 12,
        "hidden_size": 768,
        "num_heads": 12,
        "vocab_size": 50257,
    }
    answer = plan(PlanRequest(model=model, gpus=8, reasons=False))
    figure = answer.plot(library=library)
    if library == "matplotlib":
        figure.canvas.draw()
    else:
        assert "<b>" not in figure.layout.title.text
