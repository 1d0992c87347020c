"""The cells of a report, packed for a browser: each text once, compressed, within a byte limit."""

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from abreast.jobs.matrix.report.wording import plain
from abreast.jobs.matrix.rows import Row

FIELDS: Final = (
    "cell",
    "lane",
    "model",
    "strategy",
    "input",
    "repeat",
    "state",
    "control",
    "error_type",
    "scores",
    "score_errors",
    "input_tokens",
    "output_tokens",
    "usd",
    "estimated",
    "service_s",
    "queue_s",
    "hold_s",
    "backoff_s",
    "wall_s",
    "attempts",
    "in_flight",
)
_SAMPLE: Final = 1_000  # texts, and characters of each, by which the compression is estimated
# Characters to which texts are shortened; the first length that fits is used.
_LENGTHS: Final = (100_000, 30_000, 10_000, 5_000, 2_500, 1_200, 600, 300, 150, 60, 0)


@dataclass(slots=True)
class Texts:
    """Texts by number, each kept once, cut to `longest` characters; `cut` counts the shortened."""

    longest: int
    kept: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    cut: int = 0

    def number(self, text: str | None) -> int | None:
        """The number of a text; None for None."""
        if text is None:
            return None
        if text not in self.numbers:
            self.numbers[text] = len(self.kept)
            self.kept.append(self._short(text))
        return self.numbers[text]

    def _short(self, text: str) -> str:
        if len(text) <= self.longest:
            return text
        self.cut += 1
        return f"{text[: self.longest]}… [{len(text) - self.longest:,} more characters]"


@dataclass(frozen=True, slots=True)
class Packed:
    """The cells as base64 of gzipped JSON; `cut` texts were shortened to `longest` characters."""

    data: str
    cut: int
    longest: int


def packed(rows: Sequence[Row], most: int) -> Packed:
    """Pack all cells within `most` bytes; texts are shortened to one length until they fit."""
    whole = Texts(_LENGTHS[0])
    for row in rows:
        _cell(row, whole)
    lengths = [len(text) for text in whole.kept]
    density = _density(whole.kept)
    for longest in _LENGTHS[:-1]:
        # Packing 100 MB takes a minute, so a length that will not fit by the estimate is skipped.
        if density * sum(min(length, longest) for length in lengths) <= most:
            found = _packed(rows, longest)
            if len(found.data) <= most:
                return found
    return _packed(rows, _LENGTHS[-1])


def script_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """JSON that is safe anywhere in a page: it ends no script, opens no comment, breaks no line."""
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str
    )
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def compressed(text: str) -> str:
    """Base64 of the gzipped text: the same bytes for the same text."""
    # A reply may hold half of a surrogate pair, which UTF-8 can't encode.
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode(
        "ascii"
    )


def _density(texts: Sequence[str]) -> float:
    """Packed bytes per character, by a sample."""
    sample = "\n".join(text[:_SAMPLE] for text in texts[:: len(texts) // _SAMPLE + 1])
    return len(compressed(sample)) / len(sample) if len(sample) > _SAMPLE else 0.0


def _packed(rows: Sequence[Row], longest: int) -> Packed:
    texts = Texts(longest)
    data = compressed(
        script_json(
            {"fields": FIELDS, "texts": texts.kept, "cells": [_cell(row, texts) for row in rows]}
        )
    )
    return Packed(data, texts.cut, longest)


def _cell(row: Row, texts: Texts) -> list[Any]:
    facts = [_rounded(getattr(row, name)) for name in FIELDS]
    steps = [
        [
            step.name,
            texts.number(step.prompt),
            texts.number(step.output),
            step.input_tokens,
            step.output_tokens,
            step.usd,
            _rounded(step.service_s),
        ]
        for step in row.steps
    ]
    value = None if row.value is None or row.value == row.output else plain(row.value)
    truth = None if row.truth is None else plain(row.truth)
    return [
        *facts,
        [texts.number(text) for text in (row.prompt, row.output, value, truth, row.error)],
        steps,
    ]


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    """Round to six digits, which are enough to show and need half the bytes.

    nan and infinity become None.
    """
    if isinstance(value, float):
        return round(value, 6) if value - value == 0 else None
    return (
        {name: _rounded(inner) for name, inner in value.items()}
        if isinstance(value, dict)
        else value
    )
