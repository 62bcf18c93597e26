"""LLaMA-Factory: its recipes and command lines."""
