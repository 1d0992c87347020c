"""Changes texts, JSON documents and bytes a little, at random."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

TOKENS: Final = (
    *("", "null", "~", "-1", "0", "1e999", "nan", "true", "[]", "{}", "[[", "}}", "{{", "{{ x"),
    *("'", '"', "\\", "\x00", "\x1b[2J", "\ud800", "é", "\U0001d54f", "\u202e"),
    *("../../x", "/dev/null", "&a", "*a", "!!python/object:os.system", "!!binary x", "<<: *a"),
    *("---", "...", "%", "|", ">", "9" * 400, "a" * 5000, "1_000", "0x1F", "2026-13-45"),
    *("{{ 1 / 0 }}", "{{ steps.x.y.z }}"),
)
_MOST_DEPTH: Final = 1500  # beyond what Python's JSON reader takes
_BYTES: Final = (
    *(b"", b"\x00", b"\r\n", b"\r\n\r\n", b"\n", b"\xff\xfe", b"\xed\xa0\x80", b" ", b":", b";"),
    *(b"0\r\n\r\n", b"-1", b"99999999999999999999", b"chunked", b"Content-Length: 5\r\n", b"%00"),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"%2e%2e%2f", b"\x80" * 9),
    *(b"A" * 9000, b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"HTTP/1.1 200 OK\r\n"),
)


def change(text: str, draw: Random) -> str:
    """The text with one to four random changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        text = draw.choice(_CHANGES)(text, draw)
    return text


def change_bytes(data: bytes, draw: Random) -> bytes:
    """The bytes with one to three random changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at, kind = draw.randint(0, len(data)), draw.randrange(5)
        if kind == 0:
            data = data[:at] + draw.choice(_BYTES) + data[at:]
        elif kind == 1:
            data = data[:at] + data[at + draw.randint(1, 40) :]
        elif kind == 2:
            data = data[:at] + draw.randbytes(draw.randint(1, 6)) + data[at + 1 :]
        elif kind == 3:
            data = data[:at]
        else:
            lines = data.split(b"\r\n")
            lines.insert(draw.randint(0, len(lines)), draw.choice(lines))
            data = b"\r\n".join(lines)
    return data


def change_document(document: Any, draw: Random) -> Any:  # noqa: ANN401 - JSON
    """A copy of a JSON document with one to three values changed, removed or doubled."""
    copied = json.loads(json.dumps(document))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        copied = _change_value(copied, draw)
    return copied


def _change_value(document: Any, draw: Random) -> Any:  # noqa: ANN401 - JSON
    places: list[tuple[Any, Any]] = []
    waiting = [document] if isinstance(document, dict | list) else []
    while waiting:
        inside = waiting.pop()
        keys = inside.keys() if isinstance(inside, dict) else range(len(inside))
        places += [(inside, key) for key in keys]
        waiting += [inside[key] for key in keys if isinstance(inside[key], dict | list)]
    if not places or draw.random() < 0.02:
        return hostile_value(draw)
    inside, key = draw.choice(places)
    kind = draw.randrange(6)
    if kind == 0:
        del inside[key]
    elif kind == 1 and isinstance(inside, list):
        inside.insert(key, inside[key])
    elif kind == 2:
        inside[key] = [inside[key]]
    elif kind == 3 and isinstance(inside[key], str):
        inside[key] = change(inside[key], draw)
    else:
        inside[key] = hostile_value(draw)
    return document


def hostile_value(draw: Random) -> Any:  # noqa: ANN401 - JSON
    """A JSON value that no reader counts on."""
    values: Sequence[Any] = (
        *(None, True, False, 0, -1, 1.5, 10**30, float("nan"), float("inf"), "", " ", "\ud800"),
        *([], {}, [None], [[]], {"": None}, {"type": "text"}, [{"type": 3}], "x" * 5000),
        *(["text"], {"text": ["a"]}, draw.choice(TOKENS), draw.getrandbits(70)),
    )
    value = draw.choice(values)
    if draw.random() < 0.03:
        for _ in range(draw.randint(100, 900)):
            value = [value] if draw.random() < 0.5 else {"a": value}
    return value


def write_json(document: Any, draw: Random) -> str:  # noqa: ANN401 - JSON
    """The document as text, sometimes changed there, or deeper than can be read."""
    if draw.random() < 0.01:
        return "[" * draw.randint(_MOST_DEPTH, 100 * _MOST_DEPTH)
    try:
        text = json.dumps(document, ensure_ascii=draw.random() < 0.5)
    except RecursionError:  # it was made deeper again and again
        return "[" * draw.randint(_MOST_DEPTH, 100 * _MOST_DEPTH)
    return change(text, draw) if draw.random() < 0.2 else text


def _insert(text: str, draw: Random) -> str:
    at = draw.randint(0, len(text))
    return f"{text[:at]}{draw.choice(TOKENS)}{text[at:]}"


def _delete(text: str, draw: Random) -> str:
    at = draw.randint(0, len(text))
    return text[:at] + text[at + draw.randint(1, 30) :]


def _replace_word(text: str, draw: Random) -> str:
    words = text.split(" ")
    words[draw.randrange(len(words))] = draw.choice(TOKENS)
    return " ".join(words)


def _move_line(text: str, draw: Random) -> str:
    lines = text.split("\n")
    line = lines[draw.randrange(len(lines))]
    lines.insert(draw.randint(0, len(lines)), draw.choice(["", "  ", "- "]) + line)
    return "\n".join(lines)


def _replace_value(text: str, draw: Random) -> str:
    lines = text.split("\n")
    at = draw.randrange(len(lines))
    for sign in (": ", " = "):
        name, mark, _ = lines[at].partition(sign)
        if mark:
            lines[at] = f"{name}{sign}{draw.choice(TOKENS)}"
            break
    return "\n".join(lines)


_CHANGES: Final[Sequence[Callable[[str, Random], str]]] = (
    _insert,
    _delete,
    _replace_word,
    _move_line,
    _replace_value,
    _replace_value,
)
