"""OpenRLHF: command lines of its trainers on DeepSpeed, as questions."""
