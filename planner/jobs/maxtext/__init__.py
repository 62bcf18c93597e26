"""MaxText: its configuration, written."""
