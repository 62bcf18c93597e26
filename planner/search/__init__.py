"""The best strategy with a certificate: best-first by optimistic bounds, objectives, ties.

In: a space and an objective. Out: an `Outcome`: the best, whether it is proved, and the pool of runners-up; or
one given strategy under its best split (``given``). Imports: space, stages and below.
"""
