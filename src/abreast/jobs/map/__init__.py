"""The plain map."""
