"""Worktrees for the items of any job, and agents that work in them."""
