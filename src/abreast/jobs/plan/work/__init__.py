"""The subplans, carried out in worktrees and merged."""
