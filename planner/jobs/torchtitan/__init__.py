"""torchtitan: its configuration, read and written."""
