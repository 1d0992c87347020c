"""Texts with `{{ }}` in them: parsed once when a workflow is loaded, evaluated wherever a step needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from abreast.jobs.files.fuel import (
    LARGEST_TEXT,
    MOST_BLOCKS,
    ExpressionFailed,
    ExpressionInvalid,
    Fuel,
    Value,
    text_of,
)
from abreast.jobs.files.grammar import Expression, parse_expression
from abreast.jobs.files.terms import NameScope

__all__ = [
    "Block",
    "ExpressionFailed",
    "ExpressionInvalid",
    "ExpressionText",
    "evaluate",
    "find_blocks",
    "parse",
    "parse_condition",
]


@dataclass(frozen=True, slots=True)
class Block:
    """Where a `{{ }}` stands in a text, braces included, and what is between them."""

    start: int
    end: int
    inner: str


def find_blocks(text: str) -> Iterator[Block]:
    """The blocks of a text; `}}` in quotes closes none, and a `{{` with no `}}` after it is plain text."""
    end = count = 0
    while (start := text.find("{{", end)) >= 0:
        if text.find("}}", start + 2) < 0:
            return
        count += 1
        if count > MOST_BLOCKS:
            raise ExpressionInvalid(f"a text holds more than {MOST_BLOCKS} blocks", start)
        end = _closing(text, start)
        inner = text[start + 2 : end - 2]
        if inner[:1] == "-" and inner[1:2].isspace():
            raise ExpressionInvalid("'{{-' is not known here: write '{{'", start)
        if inner[-1:] == "-":
            raise ExpressionInvalid("'-}}' is not known here: write '}}'", end - 3)
        yield Block(start, end, inner)


def _closing(text: str, start: int) -> int:
    """Where the block that begins here ends; braces of a mapping within it are counted."""
    quote, depth = "", 0
    for place in range(start + 2, len(text)):
        letter = text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "{":
            depth += 1
        elif letter == "}" and depth:
            depth -= 1
        elif text.startswith("}}", place):
            return place + 2
    raise ExpressionInvalid(
        "a quote is not closed in this block" if quote else "this block is not closed", start
    )


@dataclass(frozen=True, slots=True)
class ExpressionText:
    """A text with blocks: `value` puts in what they are; a lone block keeps its type."""

    text: str
    parts: tuple[str | Expression, ...] = field(repr=False)
    plain: bool
    """Whether there is no block in it."""
    lone: bool
    """Whether it is one block and nothing else, apart from white space."""
    names: frozenset[tuple[str, ...]]
    """The paths it reads, as far as they are written out: `("steps", "plan", "output", "text")`."""

    def value(self, names: Mapping[str, Value]) -> Value:
        """What it is with these names; ExpressionFailed says why it is nothing."""
        frame = NameScope(names, Fuel())
        if self.lone:
            return next(part for part in self.parts if isinstance(part, Expression)).term.value(
                frame
            )
        if self.plain:
            return self.text
        made: list[str] = []
        left = LARGEST_TEXT
        for part in self.parts:
            made.append(part if isinstance(part, str) else evaluate(part, frame))
            left -= len(made[-1])
            if left < 0:
                raise ExpressionFailed(f"the text is longer than {LARGEST_TEXT} characters")
        return "".join(made)

    def truth(self, names: Mapping[str, Value]) -> bool:
        """Whether it holds; the texts `true` and `false` are what they say, whatever white space is around."""
        found = self.value(names)
        said = found.strip().lower() if isinstance(found, str) else ""
        return said == "true" if said in {"true", "false"} else bool(found)


def evaluate(part: Expression, frame: NameScope) -> str:
    """What a block comes to within a text."""
    return text_of(part.term.value(frame), frame.fuel)


def parse(text: str) -> ExpressionText:
    """A text, with or without blocks.

    ExpressionInvalid says which block can't be read, and where.
    """
    parts: list[str | Expression] = []
    end = 0
    for block in find_blocks(text):
        parts += [text[end : block.start], parse_expression(block.inner, block.start + 2)]
        end = block.end
    parts.append(text[end:])
    blocks = [part for part in parts if isinstance(part, Expression)]
    around = "".join(part for part in parts if isinstance(part, str))
    return ExpressionText(
        text,
        tuple(part for part in parts if part != ""),
        plain=not blocks,
        lone=len(blocks) == 1 and not around.strip(),
        names=frozenset(path for block in blocks for path in block.paths()),
    )


def parse_condition(text: str) -> ExpressionText:
    """A text that holds or not: one block, `true` or `false`.

    Anything else would always hold, and is refused.
    """
    template = parse(text)
    said = text.strip()
    if template.lone or not text or said.lower() in {"true", "false"}:
        return template
    if template.plain and "{{" not in text:
        hint = f"write '{{{{ {said} }}}}'" if said else "it is only white space"
        raise ExpressionInvalid(
            f"a condition without {{{{ }}}} is a text and always holds: {hint:.80}"
        )
    raise ExpressionInvalid(
        "a condition must be one block: what is around it makes a text of it, which always holds"
    )
