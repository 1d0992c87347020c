"""Broken input of every kind, made by changing a corpus at random."""
