"""One small program per contender, each measured in a fresh process."""
