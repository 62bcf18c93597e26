"""The lattice of strategies that pins and rules leave, on one node group or several.

In: a scenario and pins. Out: strategies as columns, a mask of those allowed, and what was left out. Imports: answer
and below, costmodels.
"""
