"""Reading and checking a workflow file."""
