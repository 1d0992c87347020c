"""Scores of cells, and the statistics over them."""
