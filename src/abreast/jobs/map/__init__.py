"""Map: the view of a plain map, a job of items without further structure."""
