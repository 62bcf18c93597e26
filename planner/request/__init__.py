"""What is asked: the question as a person writes it, and its resolution into records.

The table ``fields`` says how every field is called and written; ``request`` is the record, ``resolve`` fills it.

In: names, files, options, pins, overrides. Out: a `PlanRequest`, and a `Resolved` with every default made explicit.
Imports: costmodels, hardware, planner.errors, planner.frameworks.
"""
