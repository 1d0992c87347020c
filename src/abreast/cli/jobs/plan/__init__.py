"""Drives plans."""
