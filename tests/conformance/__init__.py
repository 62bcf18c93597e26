"""Exported plans read by the real parsers and validators; each file runs in the environment that `noxfile.py` gives it.

Nothing here is skipped: where a framework is missing, its file fails to import.
"""
