"""The target's source code: candidates are put in its place, and checked before they run."""
