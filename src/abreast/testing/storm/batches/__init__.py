"""Batches of a storm: requests that are answered together, later, for half the price."""
