"""The target's source: candidates put in its place, and checked before they run."""
