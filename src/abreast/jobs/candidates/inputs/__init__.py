"""Generated inputs: mutated from recorded ones, or made from type hints."""
