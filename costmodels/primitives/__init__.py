"""Formulas of named quantities: a matrix product, a stream of bytes, a collective, sizes, groups of ranks.

In: named quantities (bytes, seconds, FLOP), scalars or arrays alike. Out: seconds, bytes, FLOP, shares. One equation a
function, each with its source. Imports: names, arrays, hardware.
"""
