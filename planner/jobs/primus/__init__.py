"""AMD Primus: YAML over Megatron-Core."""
