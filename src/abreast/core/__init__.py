"""The pure part: items, outcomes, the window and the halting rules.

Standard library only, no I/O.
"""
