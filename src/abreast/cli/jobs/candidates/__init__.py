"""Drives runs of candidates."""
