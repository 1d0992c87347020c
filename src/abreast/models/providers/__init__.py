"""Adapters of providers, one module per interface."""
