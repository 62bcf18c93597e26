"""How far a prediction can be trusted: intervals from measured runs, similar runs, published runs.

In: a scenario, a strategy and its seconds. Out: an interval with its coverage, and what is outside of what was
measured. Imports: answer and below, costmodels.
"""
