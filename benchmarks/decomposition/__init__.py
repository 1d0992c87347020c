"""How well and how fast a plan divides a repository: `python -m benchmarks.decomposition`."""
