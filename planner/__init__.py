"""Which strategy to take, with a proof and the reasons."""
