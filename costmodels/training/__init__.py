"""The whole run: days, energy, money, failures, goodput, moving to another plan.

In: seconds of an iteration. Out: days, joules, dollars. Imports: step and below.
"""
