"""How fast a candidate is, beside the original."""
