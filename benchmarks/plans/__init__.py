"""Benchmarks of plans for asv (`make bench-asv`).

How long subplans take side by side, and how long a division takes.

asv keeps what it measures and draws it over commits. The targets are held by `python -m
benchmarks.plans`, which prints the same and fails where one is missed; `make bench-regression`
compares with an earlier commit.
"""
