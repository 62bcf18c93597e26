"""Questions made of several plans: sizes, replanning, comparison, what-if, robustness.

In: requests or answers. Out: a document of each kind. Imports: studies, runs, api and below.
"""
