"""The embedded model, which runs inside this process."""
