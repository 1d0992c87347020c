"""Timing: measures how fast a candidate is compared with the original."""
