"""A second opinion on a plan: its schedule played event by event, its sums checked without the solver.

In: one strategy with its price. Out: a `Verdict`. Imports: costmodels.
"""
