"""The planner for schedulers that are not Python: HTTP in front, processes behind."""
