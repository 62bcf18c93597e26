"""What runs print, read: steps and their times, memory, starts, and the configuration that a program dumps.

In: lines of a log, and tables of how a framework writes them. Out: a measured time with its spread, memory and its
kind, and what else a reader should know. Imports: answer and below. A framework's own tables are in ``log.py`` of its
folder.
"""
