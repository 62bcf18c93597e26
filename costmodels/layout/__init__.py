"""Where one strategy puts one model: ranks on links, layers on stages, chunks, parameters per rank.

In: strategies and a scenario. Out: arrays over strategies. No seconds and no memory limits here. Imports:
scenario, pipeline and below.
"""
