"""Reads items from a pipe or a file: one per line, as text or JSON, never all at once."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from abreast.cli.errors import UsageError, one_line, os_error_text

MAX_LINE_BYTES: Final = 16 << 20
"""The longest line that is accepted."""
_READ_BYTES: Final = 1 << 16
STDIN: Final = "the input"


class InputLines:
    """The items of one input, in order.

    A line that is not an item raises `UsageError` with its number when it is reached.

    The input is read by file descriptor: a thread that waits in `sys.stdin` would hold its lock at
    exit.
    """

    def __init__(
        self,
        source: str | None,
        *,
        json_items: bool,
        null: bool,
        check: Callable[[object, int], None],
    ) -> None:
        """Read the file `source`, or stdin if it is None.

        `check` raises a ValueError for an item that lacks what the job needs.
        """
        self._source = source
        self._name = source or STDIN
        self._json = json_items
        self._terminator = b"\0" if null else b"\n"
        self._check = check

    def __iter__(self) -> Iterator[object]:
        opened = 0 if self._source is None else open_input(self._source)
        try:
            yield from self._items(opened)
        finally:
            if self._source is not None:
                os.close(opened)

    def _items(self, opened: int) -> Iterator[object]:
        index = 0
        for number, raw in enumerate(self._raw_lines(opened), start=1):
            if not raw.strip(b"\r") or (self._json and not raw.strip()):
                continue
            try:
                item = self._item(raw)
                self._check(item, index)
            except ValueError as error:
                raise UsageError(f"{self._name}, line {number}: {one_line(str(error))}") from None
            yield item
            index += 1

    def _item(self, raw: bytes) -> object:
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            byte = f"0x{raw[error.start]:02x} at byte {error.start + 1}"
            raise ValueError(
                f"it is not UTF-8 ({byte}); convert the input, with iconv for example"
            ) from None
        if not self._json:
            return text
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"it is not JSON ({error.msg} at column {error.colno}); "
                "leave out --jsonl for plain lines"
            ) from None
        except RecursionError:
            raise ValueError("its JSON is nested too deeply") from None

    def _raw_lines(self, opened: int) -> Iterator[bytes]:
        rest = bytearray()
        number = 1
        while piece := self._read(opened):
            first, *others = piece.split(self._terminator)
            rest += first
            for other in others:
                yield bytes(rest)
                number += 1
                rest = bytearray(other)
            if len(rest) > MAX_LINE_BYTES:
                raise UsageError(
                    f"{self._name}, line {number}: it is longer than {MAX_LINE_BYTES >> 20} MiB, "
                    "the most an item may have"
                )
        if rest:
            yield bytes(rest)

    def _read(self, opened: int) -> bytes:
        try:
            return os.read(opened, _READ_BYTES)
        except OSError as error:
            raise UsageError(f"{self._name} can't be read: {os_error_text(error)}") from None


def open_input(path: str) -> int:
    """Open an input file; a FIFO waits for its writer.

    Raises `UsageError` if the file can't be read.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = os_error_text(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"--input: {one_line(path)} can't be read: {why}") from None
    if stat.S_ISDIR(os.fstat(opened).st_mode):
        os.close(opened)
        raise UsageError(f"--input: {path} is a directory; name a file with one item per line")
    return opened


def check_input(path: str) -> None:
    """Raise `UsageError` if the input can't be read.

    A FIFO is not opened here: opening it would wait for its writer.
    """
    try:
        if stat.S_ISFIFO(Path(path).stat().st_mode):
            return
    except (OSError, ValueError):
        pass
    os.close(open_input(path))


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
