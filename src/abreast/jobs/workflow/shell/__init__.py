"""Where values stand in shell scripts, so that they are data and never code."""
