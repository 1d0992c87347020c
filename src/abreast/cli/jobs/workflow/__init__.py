"""Drives workflows."""
