"""Sparse models on parameter servers: work per example, capacities.

In: a sparse model and node kinds. Out: node-seconds per example. Imports: primitives and below.
"""
