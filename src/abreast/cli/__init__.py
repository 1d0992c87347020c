"""The command line; no other package imports click or rich."""
