"""What the target does in the tests, traced and judged."""
