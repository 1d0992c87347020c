"""Coding agents as models: how each is started, what its output means, what a run of one gives."""
