"""One layer on one rank: its seconds, the bytes that its parts keep, its adapters' parameters.

In: strategies and a scenario. Out: seconds of forward and backward passes, bytes, per strategy. Imports:
layout and below.
"""
