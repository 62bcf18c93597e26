"""The same over HTTP: raw bytes handed to confined processes.

In: HTTP bodies. Out: the documents of the commands. Imports: render and below; fastapi.
"""
