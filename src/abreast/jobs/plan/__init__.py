"""The plan job: divides a repository into subplans, scores the division, and merges results."""
