"""Scores and what statistics say of them."""
