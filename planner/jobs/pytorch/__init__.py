"""Plain PyTorch: device mesh, FSDP2 and pipelining, written."""
