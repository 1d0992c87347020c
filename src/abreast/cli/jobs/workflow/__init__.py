"""The workflow job: its driver, checks, dry run and printed result."""
