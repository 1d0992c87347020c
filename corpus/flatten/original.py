"""Nested dicts as one, with dotted keys; empty ones are left out."""

def flatten(tree: dict, above: str = "") -> dict:
    """Nested dicts as one, with dotted keys; empty ones are left out."""
    flat = {}
    for key in tree:
        if isinstance(tree[key], dict):
            flat = {**flat, **flatten(tree[key], above + key + ".")}
        else:
            flat = {**flat, above + key: tree[key]}
    return flat
