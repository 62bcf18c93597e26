"""What machines can do: accelerators, links, clusters, kernel efficiencies, each figure with its source."""
