"""DeepSpeed: its JSON, read and written."""
