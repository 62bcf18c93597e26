"""Files that start a framework's command on machines: shell, torchrun, Slurm, Kubernetes, clouds.

In: a job and the framework's command. Out: files. Imports: the other modules of jobs.
"""
