"""Predicted against measured runs."""
