"""From a job's file or flags to its exit code."""
