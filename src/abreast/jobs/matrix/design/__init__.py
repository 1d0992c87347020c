"""A study's file, its inputs and the cells that they make."""
