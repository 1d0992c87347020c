"""The plan job: its options, driver, apply and undo."""
