"""NeMo: YAML of Megatron GPT training (NeMo 1), and recipes of NeMo 2 and Megatron-Bridge."""
