"""Adapters: one module per provider's interface."""
