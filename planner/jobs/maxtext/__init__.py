"""MaxText: its configuration, read and written."""
