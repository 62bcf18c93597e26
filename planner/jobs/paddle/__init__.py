"""PaddleFormers: its training arguments, written."""
