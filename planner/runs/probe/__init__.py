"""A program that measures the machine it runs on, with PyTorch alone, and the reading of what it wrote.

In: a machine with PyTorch (``measure``), or the file that it wrote there (``records``). Out: measured kernels, passes,
copies and collectives. ``measure`` imports nothing else of this project, so that it can be printed as one file
(``program``) and copied to where GPUs are.
"""
