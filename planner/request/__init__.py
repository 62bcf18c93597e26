"""What is asked: the question as a person writes it, and its resolution into records.

The table ``fields`` says how every field is called and written; ``request`` is the record, ``resolve`` fills it;
``budget`` counts the effort that an answer may take.

In: names, files, options, pins, overrides. Out: a `PlanRequest`, and a `Resolved` with every default made explicit.
Imports: frameworks and below, costmodels.
"""
