"""A plan as the files that start it: one pure function a target, all of them in ``planner.export.targets``.

A target is a framework or a launcher at a stated version. What it cannot express is refused, never approximated.
"""
