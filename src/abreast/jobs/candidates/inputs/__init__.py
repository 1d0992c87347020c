"""Generated inputs: changed from recorded ones, or made from type hints."""
