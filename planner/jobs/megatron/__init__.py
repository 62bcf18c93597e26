"""Megatron-LM and Megatron-Bridge: options, read from a launch script, written for a plan."""
