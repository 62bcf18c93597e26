"""ROLL: configurations of pipelines whose actor trains on Megatron-Core or FSDP, as questions."""
