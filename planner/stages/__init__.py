"""Layers and recomputed layers of every stage: tables, bounds, CP-SAT, dynamic programming.

In: one strategy's seconds and bytes per layer. Out: an `Assignment` that is proved best. Imports: request and
below, costmodels; ortools.
"""
