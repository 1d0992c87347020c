"""Workflows: steps of a YAML file, run side by side."""
