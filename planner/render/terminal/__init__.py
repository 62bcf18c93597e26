"""Screens of the terminal, a file a document."""
