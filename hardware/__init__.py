"""What machines can do: accelerators, links, clusters, kernel efficiencies, each figure with its source.

In: a catalogue name or a TOML table. Out: records such as `Accelerator`, `Link` and `Cluster`; units and their parsing.
Imports: nothing of the other packages; it knows no models.
"""
