"""A person's own evidence turned into a profile: runs, answers of ``plan probe``, timed products, nccl-tests.

In: files of evidence. Out: a profile, and what it could and could not tell. Imports: runs and below.
"""
