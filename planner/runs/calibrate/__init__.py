"""A person's own evidence: measured runs, GEMM tables, NCCL logs turned into a profile.

In: files of evidence. Out: a profile, and what it could and could not tell. Imports: runs and below.
"""
