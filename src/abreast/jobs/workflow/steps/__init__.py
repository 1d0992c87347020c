"""The steps of a workflow, run."""
