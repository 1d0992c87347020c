"""The jobs: plain async functions over a run. No job imports another."""
