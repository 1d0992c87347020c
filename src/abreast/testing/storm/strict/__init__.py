"""Strict profiles: what this year's providers refuse, and the replies that they send."""
