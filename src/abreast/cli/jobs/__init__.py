"""Drivers of jobs: each runs a job from its file or flags to the exit code."""
