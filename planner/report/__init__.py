"""A plan as people and programs read it: no arithmetic beyond formatting, every number is a field."""
