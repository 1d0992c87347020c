"""Candidates: versions of a function, checked side by side for behaviour, timed one at a time."""
