"""Drives studies."""
