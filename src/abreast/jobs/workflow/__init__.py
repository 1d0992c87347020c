"""The workflow job: runs the steps of a YAML file, side by side where they allow it."""
