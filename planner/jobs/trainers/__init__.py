"""Trainers that are built on Transformers': a table of words each, what no table says of it, and the recipes of all."""
