"""Every plain run draws the same examples; `--examples 10` draws ten times as many, others at each run."""

import gc

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

SHARE = 0.2
"""Of the examples that a property asks for, what a plain run draws."""


LONGEST = (
    "test_calibration", "test_readme", "test_answers", "test_what_if", "test_search", "test_mixed_plans",
    "test_embedding", "test_counted_work", "test_budget", "test_service", "test_cli_streams", "test_same_prices",
    "test_allocation", "test_explain", "test_screens", "test_sparse_cli", "test_replan", "test_sweep_run",
    "test_examples", "test_origins",
)  # fmt: skip
"""Files that take longest and so come first: those after them are short enough to end together on all processes."""

gc.disable()  # until all is collected, of which nothing is garbage


def pytest_addoption(parser):
    parser.addoption("--examples", type=int, default=1, metavar="N", help="N times as many examples of every property")


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    times = config.getoption("--examples")
    deep = {
        "derandomize": False,
        "database": None,
        "deadline": None,
        "phases": [Phase.generate],  # a failure is shown as it was found: shrinking one takes minutes
    }
    drawn = {getattr(item.obj, "__func__", item.obj) for item in items if is_hypothesis_test(item.obj)}
    for function in drawn:  # one for all parameters of a test
        usual = getattr(function, "_hypothesis_internal_use_settings", settings.default)
        count = max(round(SHARE * times * usual.max_examples), 1)
        function._hypothesis_internal_use_settings = settings(
            usual, max_examples=count, **(deep if times > 1 else {"derandomize": True})
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """What was imported and collected stays to the end: looking for garbage need not walk it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file is tested by one process, so that what its tests share is made once: services, answers with reasons."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # which would take files of few tests last, and those are the longest
    return LoadFileScheduling(config, log) if config.getoption("dist") == "load" else None
