"""What happens once an iteration: gradients, sharded parameters, the optimizer, offloading.

In: strategies and a scenario. Out: seconds, and what of them is hidden. Imports: layer and below.
"""
