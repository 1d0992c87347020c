import threading


def common_words(one: str, other: str) -> list[str]:
    threading.Event().wait()
