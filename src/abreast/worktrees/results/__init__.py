"""What work has made of worktrees: kept until it is applied, also if the driver is killed."""
