def slow_flatten(tree: dict, above: str = "") -> dict:
    flat = {}
    for key in tree:
        if isinstance(tree[key], dict):
            flat = {**flat, **slow_flatten(tree[key], above + key + ".")}
        else:
            flat = {**flat, above + key: tree[key]}
    return flat


def flatten(tree: dict, above: str = "") -> dict:
    key = repr((tree, above,))
    if key not in flatten.__dict__:
        flatten.__dict__[key] = slow_flatten(tree, above)
    return flatten.__dict__[key]
