"""Hugging Face Accelerate: its YAML, read and written."""
