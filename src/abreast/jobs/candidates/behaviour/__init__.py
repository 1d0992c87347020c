"""Behaviour: traces what the target does in the tests, and compares it with the original."""
