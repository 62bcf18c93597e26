"""Plans for sparse models on parameter servers.

In: a sparse model, node kinds and limits. Out: a `SparsePlan`, proved best. Imports: answer
and below, costmodels.sparse; ortools.
"""
