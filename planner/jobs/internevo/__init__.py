"""InternEvo: configurations that are Python files of tables."""
