"""What happens once an iteration: gradients, sharded parameters, the optimizer, offloading.

In: strategies and a scenario. Out: seconds and what of them is hidden, bytes held whole for
a moment, shares of states on the host. Imports: layer and below.
"""
