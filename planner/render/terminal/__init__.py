"""Screens of the terminal, a file a document.

In: an answer's record and the width of the screen. Out: what rich prints. Imports: as render; rich.
"""
