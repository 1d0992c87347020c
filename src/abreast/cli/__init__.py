"""The command line: one file per command, each a thin door to the library.

Nothing else imports click or rich.
"""
