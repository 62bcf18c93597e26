"""A plan as people and programs read it. No arithmetic beyond formatting: every number is a field of the plan."""
