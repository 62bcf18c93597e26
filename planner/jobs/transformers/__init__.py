"""Hugging Face's Trainer and what is built on it: what its runs print."""
