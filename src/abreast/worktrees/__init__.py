"""Copies of a project's working tree, to try things in, and a way to run there what nobody trusts."""
