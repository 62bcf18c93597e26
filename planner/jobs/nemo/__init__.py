"""NeMo: YAML of Megatron GPT training (NeMo 1), recipes of NeMo 2 and Megatron-Bridge, and what their runs print."""
