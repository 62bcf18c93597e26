"""What each training framework can start: facts and rules, a file a framework.

In: strategies and a scenario. Out: rules of kind ``framework``. `plan --for NAME` adds a framework's rules to the
search; the export of a plan is refused by the first rule that it breaks. Imports: rules and below, costmodels.
"""
