"""The jobs: plain async functions over a run. None of them knows another."""
