"""What is answered: the records of a plan, how they are built, and read back from a file.

In: a priced strategy. Out: a `Plan` (``plan/1``). Imports: request and below, costmodels.
"""
