"""nanotron: its YAML, written."""
