"""Limiters against a server with exact limits, in virtual time: what they reach of what could be reached."""
