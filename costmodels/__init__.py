"""What a given strategy costs: seconds per term, bytes per stage, days and money per training run.

In: strategies as columns and a `Scenario` (model, node group, stack, batch). Out: arrays over strategies. It neither
chooses nor prints. Imports: hardware.

Keys in brackets are spelled out in REFERENCES.md.
"""
