"""The words of measured runs, turned into fields."""
