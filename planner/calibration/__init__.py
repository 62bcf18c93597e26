"""A person's own evidence becomes a cluster and a stack: fitted constants, errors before and after, honest gaps."""
