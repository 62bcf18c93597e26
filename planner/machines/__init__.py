"""A cluster's file out of what a machine says of itself, for ``plan init``.

In: outputs of nvidia-smi, lscpu, ibstat, Slurm and Kubernetes as files, and answers. Out: a cluster file in TOML, each
figure with its source, what was assumed and what to measure. ``findings`` is what a file tells, each program has a
module that reads it, ``readers`` tells them apart by content, ``describe`` joins them, ``document`` writes.
Imports: hardware, errors.
"""
