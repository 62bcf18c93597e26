"""verl: reinforcement learning on Megatron-Core, by overrides of its configuration."""
