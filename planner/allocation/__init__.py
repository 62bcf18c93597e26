"""Which job of a queue gets how many devices of which node group."""
