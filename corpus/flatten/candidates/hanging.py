import threading


def flatten(tree: dict, above: str = "") -> dict:
    threading.Event().wait()
