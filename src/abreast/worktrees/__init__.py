"""Copies of a project's working tree, and a sandbox that runs untrusted commands in them."""
