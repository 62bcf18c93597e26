"""Measured runs: read, predicted, judged; what constants and intervals are learnt from.

In: files of runs. Out: errors by run and by source, fitted constants, tables of measured runs. Imports: api and
below; scipy.
"""
