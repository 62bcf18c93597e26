"""FlagScale: YAML over Megatron-Core."""
