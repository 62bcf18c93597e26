"""Which job of a queue gets how many devices of which node group.

In: a queue and a cluster. Out: an `Allocation`, proved best. Imports: api and below; ortools.
"""
