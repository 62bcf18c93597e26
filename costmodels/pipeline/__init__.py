"""What a pipeline adds: orders of passes, bubbles, activations in flight, limits of schedules.

In: strategies and seconds of passes. Out: seconds of the bubble and counts in flight. Imports: stack,
strategy, names.
"""
