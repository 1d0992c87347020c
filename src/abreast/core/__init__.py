"""The pure part: items, outcomes, the window and the rules of halting.

Standard library only, no I/O.
"""
