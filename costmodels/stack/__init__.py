"""The software that trains: kernels, overlap, precision recipes, optimizers, adapters.

In: a catalogue name or a TOML table. Out: a `Stack` of plain figures and switches. Imports: hardware,
costmodels.names.
"""
