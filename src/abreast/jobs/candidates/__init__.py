"""Candidates: versions of a function, checked side by side for behaviour, measured alone, trusted in nothing."""
