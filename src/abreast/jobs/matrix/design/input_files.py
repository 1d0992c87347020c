"""Reads inputs from files: JSON lines, CSV and TSV give rows, any other file one input."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

_JSON_LINES: Final = (".jsonl", ".ndjson")
_TABLES: Final = {".csv": ",", ".tsv": "\t"}


def inputs_of_file(path: PurePath, text: str) -> Iterator[tuple[str, Any] | str]:
    """Name and value of each input in a file, or a message that says what is wrong with one."""
    suffix = path.suffix.lower()
    if suffix in _JSON_LINES:
        yield from _json_lines(path, text)
    elif suffix in _TABLES:
        yield from _table(path, text.removeprefix("\ufeff"), _TABLES[suffix])
    else:
        yield path.stem, {"text": text}


def _json_lines(path: PurePath, text: str) -> Iterator[tuple[str, Any] | str]:
    for number, entry in enumerate(text.splitlines(), 1):
        if not entry.strip():
            continue
        try:
            yield f"{path.stem}-{number:04}", json.loads(entry)
        except ValueError as error:
            yield f"{path.name}:{number} is no JSON: {error}"


def _table(path: PurePath, text: str, delimiter: str) -> Iterator[tuple[str, Any] | str]:
    """The rows of a table whose first line names the fields.

    An empty value becomes null, so that an empty truth counts as no truth.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        fields = [name.strip() for name in next(reader, [])]
        if wrong := _wrong_fields(fields):
            yield f"{path.name}:1: {wrong}"
            return
        number = 0
        for row in reader:
            if not row:  # an empty line
                continue
            number += 1
            if len(row) == len(fields):
                yield f"{path.stem}-{number:04}", _facts(fields, row)
            else:
                yield (
                    f"{path.name}:{reader.line_num} has {len(row)} values, "
                    f"and there are {len(fields)} fields"
                )
    except csv.Error as error:
        yield f"{path.name}:{reader.line_num} can't be read: {error}"


def _facts(fields: list[str], row: list[str]) -> dict[str, str | None]:
    facts = {name: value or None for name, value in zip(fields, row, strict=True)}
    if facts.get("id", "") is None:
        del facts["id"]
    return facts


def _wrong_fields(fields: list[str]) -> str | None:
    if not fields:
        return "the first line must name the fields"
    if "" in fields:
        return f"field {fields.index('') + 1} has no name"
    twice = next((name for name in fields if fields.count(name) > 1), None)
    return None if twice is None else f"two fields are called {twice!r}"
