"""`abreast export`: writes the results of a run as JSON lines, CSV or Parquet, or its page."""

import csv
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, os_error_text, tell
from abreast.cli.jobs.map.recorded import each_result, row_of_recorded
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.outcome_text import Row, json_line
from abreast.system.file_names import file_name
from abreast.system.installation import install_hint

Write: TypeAlias = Callable[[BinaryIO, Iterator[Row]], int]

_COLUMNS: Final = (
    "run",
    "path",
    "map",
    "key",
    "index",
    "state",
    "value",
    "exit_code",
    "stdout",
    "stderr",
    "error_type",
    "error",
    "lane",
    "attempts",
    "seconds",
    "queued",
    "waited",
    "backoff",
    "requests",
    "input_tokens",
    "output_tokens",
    "usd",
)
_INTEGER_COLUMNS: Final = (
    "index",
    "exit_code",
    "attempts",
    "requests",
    "input_tokens",
    "output_tokens",
)
_FLOAT_COLUMNS: Final = ("seconds", "queued", "waited", "backoff", "usd")
_ROWS_PER_BATCH: Final = 1000
PAGE: Final = "html"
"""The format of the run's page; the others contain its results."""


@click.command("export")
@options.run
@click.option(
    "--format",
    "form",
    metavar="NAME",
    help="jsonl, csv, parquet or html (its page).  [as FILE ends, or jsonl]",
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Write to this file, which appears when it is complete.  [stdout]",
)
@click.option(
    "--html",
    "as_page",
    is_flag=True,
    help="Write the page of the run, as one file that needs no network.",
)
@options.quiet
@options.common
def command(
    *,
    run: str,
    form: str | None,
    output: str | None,
    as_page: bool,
    quiet: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Write the results of RUN, in item order, as JSON lines, CSV or Parquet.

    With --html, write its page, as `abreast ui` shows it. What was cancelled, or ran past the item
    at which a map stopped, is no result and is left out.
    """
    chosen = _format_of(form, output, as_page=as_page, as_json=as_json)
    if chosen == PAGE:
        return _write_page(StoreChoice(Config.load(), store), run, output, quiet=quiet)
    if chosen == "parquet":
        pyarrow_modules()
        if output is None and sys.stdout.isatty():
            raise UsageError("Parquet is not for reading on a terminal; name a file with -o FILE")
    with StoreChoice(Config.load(), store).existing(reads=True) as opened:
        row = find_run(opened, run)
        with target(output) as file:
            results = each_result(opened, row.id)
            count = _WRITERS[chosen](
                file, ({"run": row.id, **row_of_recorded(each)} for each in results)
            )
    if output is not None and not quiet:
        tell(f"{count} results of {row.id} are in {output}")
    return 0


def _format_of(form: str | None, output: str | None, *, as_page: bool, as_json: bool) -> str:
    """The format: by option, else by the suffix of the file, else JSON lines."""
    if as_page:
        if form not in (None, PAGE):
            raise UsageError("--html and --format exclude each other; leave one of them out")
        return PAGE
    if form is not None:
        if form not in _FORMATS:
            raise UsageError(
                f"--format: there is no format {form!r}; there are {', '.join(_FORMATS)}"
            )
        return form
    return "jsonl" if as_json else _format_by_suffix(output)


def _write_page(choice: StoreChoice, run: str, output: str | None, *, quiet: bool) -> int:
    """Write the run's page: its lanes, items and texts, in a file that needs no server."""
    from abreast.cli.commands.ui import prompt_of, secrets_here
    from abreast.web.export import html

    with choice.existing(reads=True) as opened:
        row = find_run(opened, run)
        name = output or f"{file_name(row.id)}.html"
        with target(None if name == "-" else name) as file:
            file.write(
                html(opened, row.id, prompt_of, secrets_here(os.environ)).encode("utf-8", "replace")
            )
    if name != "-" and not quiet:
        tell(f"the page of {row.id} is in {name}")
    return 0


def _format_by_suffix(output: str | None) -> str:
    """The format that a file's suffix names.

    A file without a suffix, such as a device, gets JSON lines.
    """
    ending = Path(output).suffix.removeprefix(".").lower() if output else ""
    if not ending:
        return "jsonl"
    if ending not in _FORMATS:
        raise UsageError(
            f"--output: {output} names no format that there is: {', '.join(_FORMATS)}; "
            "let the file end so, or choose one with --format NAME"
        )
    return ending


@contextmanager
def target(output: str | None) -> Iterator[BinaryIO]:
    """Open stdout, or a temporary file that replaces `output` when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = Path(f"{output}.{os.getpid()}.part")
    try:
        if Path(output).is_dir():
            raise IsADirectoryError(None, "it is a directory")
        with part.open("xb") as file:
            yield file
        part.replace(output)
    except OSError as error:
        raise UsageError(
            f"--output: {output} can't be written: {os_error_text(error)}", 1
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _write_jsonl(file: BinaryIO, rows: Iterator[Row]) -> int:
    return sum(1 for row in rows if file.write(f"{json_line(row)}\n".encode()))


def _write_csv(file: BinaryIO, rows: Iterator[Row]) -> int:
    text = io.TextIOWrapper(file, "utf-8", errors="replace", newline="", write_through=True)
    try:
        writer = csv.DictWriter(
            text, _COLUMNS, restval="", extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        return sum(1 for row in rows if writer.writerow(_flat(row)))
    finally:
        text.detach()


def _write_parquet(file: BinaryIO, rows: Iterator[Row]) -> int:
    pa, parquet = pyarrow_modules()
    kinds = {
        **dict.fromkeys(_INTEGER_COLUMNS, pa.int64()),
        **dict.fromkeys(_FLOAT_COLUMNS, pa.float64()),
    }
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in _COLUMNS])
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        while page := [_flat(row) for row in islice(rows, _ROWS_PER_BATCH)]:
            writer.write_table(pa.Table.from_pylist(page, schema))
            count += len(page)
    return count


def _flat(row: Row) -> Row:
    """The row on one level: the error in two columns, and a value that isn't text as JSON."""
    error = row.get("error") or {}
    flat = {**row, "error_type": error.get("type"), "error": error.get("message")}
    if not isinstance(flat.get("value", ""), str):
        flat["value"] = json_line(flat["value"])
    return flat


def pyarrow_modules() -> tuple[Any, Any]:
    """The packages `pyarrow` and `pyarrow.parquet`; raises `UsageError` without them."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(
            f"Parquet needs pyarrow, which is not installed: {install_hint('parquet')}"
        ) from None


_WRITERS: Final[dict[str, Write]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
}
_FORMATS: Final = (*_WRITERS, PAGE)
