"""Seconds of one layer on one rank: dense, attention, experts, recomputation, launches, loss.

In: strategies and a scenario. Out: seconds of forward and backward passes, per strategy. Imports: layout and below.
"""
