"""The embedded model, run inside this process."""
