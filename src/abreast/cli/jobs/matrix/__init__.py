"""The matrix job: its driver, dry run, report and export of a study."""
