"""Why this plan: why not another one, what would help, the nearest that works, warnings.

In: a search's outcome. Out: sentences and records of the answer. Imports: search and below.
"""
