"""The software that trains: switches, releases, costs by group, precision recipes, optimizers, adapters.

In: a catalogue name, with a release or not, or a TOML table. Out: a `Stack` of plain figures and switches. Imports:
hardware, costmodels.names.
"""
