"""The work of subplans in worktrees, and the checks of the merged result."""
