"""Which strategies cannot run anywhere: named rules as data, and their conditions.

In: strategies and a scenario. Out: a mask per rule, and the sentence that says why. Imports: costmodels.
"""
