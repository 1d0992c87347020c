"""The web page: runs, their lanes and their items, as a fold of the journal.

Live over server-sent events.
"""
