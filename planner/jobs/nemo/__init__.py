"""NeMo: what its runs print."""
