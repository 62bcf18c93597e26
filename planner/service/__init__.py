"""``plan serve``: the questions of the command line over HTTP, answered in confined processes.

In: HTTP bodies. Out: the documents of the commands. Imports: render and below; fastapi, starlette, uvicorn.
"""
