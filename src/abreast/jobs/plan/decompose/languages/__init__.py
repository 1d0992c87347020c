"""Reads the imports of one language each, from syntax; no code is run."""
