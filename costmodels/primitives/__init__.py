"""Seconds of one operation: a matrix product, a stream of bytes, a collective.

In: named quantities (bytes, seconds, FLOP), scalars or arrays alike. Out: seconds. One equation a function, each with
its source. Imports: names, arrays, hardware.
"""
