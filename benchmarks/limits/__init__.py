"""Limiters against a server with exact limits, in virtual time.

What they reach of what could be reached.
"""
