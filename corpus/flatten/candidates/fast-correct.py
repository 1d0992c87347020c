def flatten(tree: dict, above: str = "") -> dict:
    flat = {}

    def walk(part, prefix):
        for key, value in part.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    walk(tree, above)
    return flat
