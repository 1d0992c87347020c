"""Reads inputs from files: JSON lines, JSON, CSV, TSV and Parquet give rows, any other file one."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from abreast.jobs.matrix.design.plain_rows import plain_row
from abreast.system.installation import install_hint

_JSON_LINES: Final = (".jsonl", ".ndjson")
_TABLES: Final = {".csv": ",", ".tsv": "\t"}


def files_of(directory: Path, pattern: str) -> list[Path]:
    """The files that a path or a pattern stands for, sorted; of a directory those in it.

    A directory's hidden files are left out.
    """
    named = directory / pattern
    found = [named] if named.exists() else _matches(directory, pattern)
    return [file for path in sorted(found) for file in _files_in(path)]


def _matches(directory: Path, pattern: str) -> Iterable[Path]:
    path = Path(pattern)
    return (
        Path(path.anchor).glob(str(path.relative_to(path.anchor)))
        if path.is_absolute()
        else (directory.glob(pattern))
    )


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    return [one for one in sorted(path.iterdir()) if one.is_file() and one.name[0] != "."]


def inputs_of_file(path: Path, name: str = "") -> Iterator[tuple[str, Any] | str]:
    """Name and value of each input in a file, or a message that says what is wrong with one.

    `name` is what messages call the file.
    """
    name, suffix = name or path.name, path.suffix.lower()
    try:
        if suffix == ".parquet":
            yield from _parquet(path)
            return
        text = path.read_text("utf-8")
    except OSError as error:
        yield f"{name} can't be read: {(error.strerror or str(error)).lower()}"
        return
    except UnicodeDecodeError:
        yield f"{name} is not UTF-8; convert it"
        return
    if suffix in _JSON_LINES:
        yield from _json_lines(path, text)
    elif suffix == ".json":
        yield from _json(path, text)
    elif suffix in _TABLES:
        yield from _table(path, text.removeprefix("\ufeff"), _TABLES[suffix])
    else:
        yield path.stem, {"text": text}


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, Any] | str]:
    for number, entry in enumerate(text.splitlines(), 1):
        if not entry.strip():
            continue
        try:
            yield f"{path.stem}-{number:04}", json.loads(entry)
        except (ValueError, RecursionError) as error:
            yield f"{path.name}:{number} is no JSON: {error}"


def _json(path: Path, text: str) -> Iterator[tuple[str, Any] | str]:
    """The elements of a list, or one mapping."""
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        yield f"{path.name}{line} is no JSON: {error}"
        return
    if isinstance(found, list):
        yield from ((f"{path.stem}-{number:04}", one) for number, one in enumerate(found, 1))
    elif isinstance(found, dict):
        yield path.stem, found
    else:
        yield f"{path.name} must hold a list of inputs, or one mapping"


def _parquet(path: Path) -> Iterator[tuple[str, Any] | str]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        yield (
            f"{path.name}: Parquet needs pyarrow, which is not installed: {install_hint('parquet')}"
        )
        return
    try:
        rows = parquet.read_table(path).to_pylist()
    except ValueError as error:  # pyarrow's own errors are ValueErrors
        yield f"{path.name} is no Parquet file: {error}"
        return
    for number, row in enumerate(rows, 1):
        try:
            yield f"{path.stem}-{number:04}", plain_row(row)
        except ValueError as error:
            yield f"{path.name}: row {number}: {error}"


def _table(path: Path, text: str, delimiter: str) -> Iterator[tuple[str, Any] | str]:
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
