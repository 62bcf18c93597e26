"""Hugging Face Accelerate: its YAML, written."""
