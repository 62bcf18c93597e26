"""The examples in the docstrings of costmodels say what the functions return."""

import doctest
import importlib
import pkgutil

import pytest

import costmodels
from tests.each import each

MODULES = sorted(module.name for module in pkgutil.walk_packages(costmodels.__path__, "costmodels."))
PRIMITIVES = [name for name in MODULES if name.startswith("costmodels.primitives.")]


def examples(name):
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name), name)
    return [test for test in found if test.examples]


@each("name", MODULES)
def test_every_example_returns_what_it_says(name):
    runner = doctest.DocTestRunner(verbose=False)
    for test in examples(name):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


FORMULAS = ("kernels", "sizes", "overlap", "host")


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_has_its_equation_its_source_and_an_example(name):
    module = importlib.import_module(f"costmodels.primitives.{name}")
    public = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
    assert public
    for formula in public:
        assert all(part in formula.__doc__ for part in ("Args:", "Returns:", "Source:", "\n        ", ">>>")), formula
