"""Snapshots of values, and their comparison between processes."""
