"""Bytes on a device: states, activations, peaks over time, what the allocator holds.

In: strategies and a scenario. Out: bytes per stage. Imports: step and below.
"""
