"""nanotron: its YAML, read and written."""
