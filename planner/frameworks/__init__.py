"""What every framework refuses to start, as rules of kind ``framework``: a file a framework, all of them in ``table``.

Each rule names the place that enforces it. `plan --for NAME` adds a framework's rules to the search, and the export of
any plan is refused by the first that it breaks.
"""
