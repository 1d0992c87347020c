"""Review of a plan's results: diffs, conflicts and how they are resolved, and branches."""
