"""The same over HTTP: raw bytes handed to confined processes.

In: HTTP bodies. Out: the documents of the commands. Imports: planner.api and below; fastapi.
"""
