"""GPT-NeoX: YAML and JSON over Megatron and DeepSpeed."""
