"""A program that measures the machine it runs on, with PyTorch alone, and the reading of what it wrote.

In: a machine with PyTorch (``measure``), or the file that it wrote there (``records``). Out: measured kernels, passes,
copies and collectives. ``measure`` imports nothing of this project, so that the file can be copied to where GPUs are.
"""
