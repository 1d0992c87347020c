"""Formats outcomes: as text, as the command wrote it, or as one JSON object per item."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from abreast.cli.errors import one_line
from abreast.cli.terminal.printer import STDERR, STDOUT, Piece
from abreast.cli.terminal.visible import visible_json
from abreast.core.errors import RecordedError, command_output, type_name
from abreast.core.outcome import NO_USAGE, Cancelled, Done, Failed, Outcome
from abreast.store.codec import codec
from abreast.store.codec.json_text import json_writer

Row: TypeAlias = dict[str, Any]

_JSON: Final = json_writer()
_STREAMS: Final = ("stdout", "stderr")
_OWN_ERRORS: Final = (
    "abreast.cli.jobs.map.command.",
    "abreast.executors.commands.",
    "abreast.core.errors.",
    "abreast.agents.process.",
)


def json_line(row: Mapping[str, Any]) -> str:
    """One line of JSON without control characters.

    Half a surrogate pair, which can't be encoded, becomes a question mark. Infinity and NaN, which
    JSON lacks, become the texts `inf`, `-inf` and `nan`, as in an export.
    """
    try:
        text = _JSON(row)
    except ValueError:
        text = _JSON(plain(row))
    return visible_json(text.encode("utf-8", "replace").decode())


def pieces_as_text(outcome: Outcome[Any], *, quiet: bool) -> list[Piece]:
    """An item's output, or its function's value, and a line about its failure."""
    if isinstance(outcome, Done):
        value = outcome.value
        if is_command(value):
            return _stream_pieces(value)
        if is_agent(value):
            return [(STDOUT, _value_line(value["text"].rstrip()))]
        return [] if value is None else [(STDOUT, _value_line(value))]
    pieces: list[Piece] = []
    if isinstance(outcome, Failed):
        pieces += _stream_pieces(command_output(outcome.error))
    if not quiet:
        pieces.append(
            (
                STDERR,
                f"abreast: item {one_line(outcome.key)} {outcome_sentence(outcome)}\n".encode(
                    "utf-8", "replace"
                ),
            )
        )
    return [piece for piece in pieces if piece[1]]


def pieces_as_json(outcome: Outcome[Any], *, run_id: str) -> list[Piece]:
    """The outcome as one JSON object on a line."""
    return [(STDOUT, f"{json_line({'run': run_id, **row_of(outcome)})}\n".encode())]


def outcome_sentence(outcome: Outcome[Any]) -> str:
    """The state of an outcome, with the reason of a failure, in words."""
    if isinstance(outcome, Failed):
        return f"failed: {one_line(error_sentence(outcome.error))}"
    return (
        f"was cancelled: {one_line(outcome.reason)}"
        if isinstance(outcome, Cancelled)
        else "is done"
    )


def row_of(outcome: Outcome[Any]) -> Row:
    """An outcome as JSON values; a command's output is at the top level.

    Output that is not UTF-8 is there in base64 too.
    """
    row: Row = {"key": outcome.key, "index": outcome.index, "state": outcome.state}
    if isinstance(outcome, Done):
        row |= (
            command_row(outcome.value)
            if is_command(outcome.value)
            else {"value": plain(outcome.value)}
        )
    elif isinstance(outcome, Failed):
        row |= command_row(command_output(outcome.error))
        row["error"] = error_row(outcome.error)
    else:
        row["reason"] = outcome.reason
    timing, used = outcome.timing, outcome.usage
    row |= {"attempts": len(timing.service), "seconds": round(sum(timing.service), 6)}
    return row if used is NO_USAGE else row | asdict(used)


def error_row(error: BaseException) -> Row:
    """A failure as JSON values; for a model's call with HTTP status and raw response."""
    kind, message = _type_and_message(error)
    details = getattr(error, "details", None)
    kept = details if isinstance(details, dict) else {}
    return {"type": kind, "message": message} | {
        name: kept[name] for name in ("status", "raw") if kept.get(name)
    }


def is_command(value: object) -> bool:
    """Whether the value is the result of a command: its exit code and its output."""
    return (
        isinstance(value, dict) and "exit_code" in value and "stdout" in value and "stderr" in value
    )


def is_agent(value: object) -> bool:
    """Whether the value is what an agent said and did."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("text"), str)
        and isinstance(value.get("agent"), dict)
    )


def error_sentence(error: BaseException) -> str:
    """A failure in one sentence: the type and the message; abreast's own errors without type."""
    kind, message = _type_and_message(error)
    return (
        message
        if message and kind.startswith(_OWN_ERRORS)
        else f"{kind}: {message}"
        if message
        else kind
    )


def plain(value: object) -> object:
    """A value as JSON values, as an export of the store shows it."""
    return value if codec.is_scalar(value) else codec.decode_plain(codec.encode(value, "a value"))


def _type_and_message(error: BaseException) -> tuple[str, str]:
    if isinstance(error, RecordedError):
        return error.kind, error.message
    return type_name(type(error)), str(error)


def _stream_pieces(result: Mapping[str, Any]) -> list[Piece]:
    if not result.get("stdout") and not result.get("stderr"):
        return []
    return [
        (where, data)
        for where, name in ((STDOUT, "stdout"), (STDERR, "stderr"))
        if (data := _bytes(result.get(name)))
    ]


def _bytes(output: object) -> bytes:
    return (
        output if isinstance(output, bytes) else output.encode() if isinstance(output, str) else b""
    )


def command_row(result: Mapping[str, Any]) -> Row:
    """A command's result as JSON values; output that is not UTF-8 is there in base64 too."""
    row: Row = dict(result)
    for name in _STREAMS:
        output = row.get(name)
        if isinstance(output, dict):  # the store exports bytes like this
            output = base64.b64decode(output.get("base64", ""))
        if isinstance(output, bytes):
            row[name] = output.decode("utf-8", "replace")
            row[f"{name}_base64"] = base64.b64encode(output).decode("ascii")
    return row


def _value_line(value: object) -> bytes:
    text = value if isinstance(value, str) else visible_json(_JSON(plain(value)))
    return f"{text}\n".encode("utf-8", "replace")


Render: TypeAlias = Callable[[Outcome[Any]], list[Piece]]
