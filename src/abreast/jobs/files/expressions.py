"""Texts with `{{ }}` in them: parsed once when a file is loaded, evaluated when a step runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from abreast.jobs.files.fuel import (
    MAX_BLOCKS,
    MAX_TEXT_LENGTH,
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
    """A `{{ }}` in a text: its offsets, braces included, and the text between them."""

    start: int
    end: int
    inner: str


def find_blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a text.

    `}}` in quotes closes none, and a `{{` with no `}}` after it is plain text.
    """
    end = count = 0
    while (start := text.find("{{", end)) >= 0:
        if text.find("}}", start + 2) < 0:
            return
        count += 1
        if count > MAX_BLOCKS:
            raise ExpressionInvalid(f"a text holds more than {MAX_BLOCKS} blocks", start)
        end = _block_end(text, start)
        inner = text[start + 2 : end - 2]
        if inner[:1] == "-" and inner[1:2].isspace():
            raise ExpressionInvalid("'{{-' is not known here: write '{{'", start)
        if inner[-1:] == "-":
            raise ExpressionInvalid("'-}}' is not known here: write '}}'", end - 3)
        yield Block(start, end, inner)


def _block_end(text: str, start: int) -> int:
    """Return the end of the block that begins at `start`; braces of mappings in it are counted."""
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
    """A text with blocks: `value` fills them in; a lone block keeps the type of its value."""

    text: str
    parts: tuple[str | Expression, ...] = field(repr=False)
    plain: bool
    """Whether there is no block in it."""
    lone: bool
    """Whether it is one block and nothing else, apart from white space."""
    names: frozenset[tuple[str, ...]]
    """The paths it reads, as far as they are written out: `("steps", "plan", "output", "text")`."""

    def value(self, names: Mapping[str, Value]) -> Value:
        """Return its value with these names; ExpressionFailed says why there is none."""
        scope = NameScope(names, Fuel())
        if self.lone:
            return next(part for part in self.parts if isinstance(part, Expression)).term.value(
                scope
            )
        if self.plain:
            return self.text
        texts: list[str] = []
        left = MAX_TEXT_LENGTH
        for part in self.parts:
            texts.append(part if isinstance(part, str) else evaluate(part, scope))
            left -= len(texts[-1])
            if left < 0:
                raise ExpressionFailed(f"the text is longer than {MAX_TEXT_LENGTH} characters")
        return "".join(texts)

    def beginning(
        self,
        names: Mapping[str, Value],
        is_constant: Callable[[tuple[str, ...]], bool] = lambda _path: False,
    ) -> str:
        """Return its text up to the first block that reads something else than constant paths."""
        scope, text = NameScope(names, Fuel()), ""
        for part in self.parts:
            if isinstance(part, Expression):
                if not all(map(is_constant, part.paths())):
                    break
                text += evaluate(part, scope)
            elif not self.lone:  # the value of a lone block has no white space around it
                text += part
        return text

    def truth(self, names: Mapping[str, Value]) -> bool:
        """Return whether it holds; the texts `true` and `false`, stripped, count as booleans."""
        value = self.value(names)
        word = value.strip().lower() if isinstance(value, str) else ""
        return word == "true" if word in {"true", "false"} else bool(value)


def evaluate(part: Expression, scope: NameScope) -> str:
    """Return the text of a block's value inside a text."""
    return text_of(part.term.value(scope), scope.fuel)


def parse(text: str) -> ExpressionText:
    """Parse a text, with or without blocks.

    ExpressionInvalid says which block can't be parsed, and where.
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
    """Parse a condition: one block, `true` or `false`.

    Any other text would always hold, and is refused.
    """
    condition = parse(text)
    stripped = text.strip()
    if condition.lone or not text or stripped.lower() in {"true", "false"}:
        return condition
    if condition.plain and "{{" not in text:
        hint = f"write '{{{{ {stripped} }}}}'" if stripped else "it is only white space"
        raise ExpressionInvalid(
            f"a condition without {{{{ }}}} is a text and always holds: {hint:.80}"
        )
    raise ExpressionInvalid(
        "a condition must be one block: what is around it makes a text of it, which always holds"
    )
