"""Files of jobs: what other programs' files ask, and the files that start a plan.

A folder a framework (``options`` the table of its options, ``read`` and ``write``, which go through it), ``launchers``
for schedulers and clouds, a row a target in ``registry``. In: a launch script or configuration; out: a `PlanRequest`.
In: a `Plan`; out: files. What cannot be expressed is refused, never approximated: readers raise `BadRequest` for values
that are wrong, contradict each other or have no price, writers `Inexpressible`. Imports: api and below.
"""
