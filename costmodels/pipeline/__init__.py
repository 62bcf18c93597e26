"""What a pipeline adds: orders of passes, bubbles, activations in flight, limits of schedules.

In: strategies and seconds of passes. Out: shares and seconds of the bubble, counts in flight. Imports:
stack and below.
"""
