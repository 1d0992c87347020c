"""Parses expressions: splits them into tokens, lets Jinja parse those, and converts its tree.

Only some kinds of Jinja's nodes are allowed. Names, texts and numbers are passed to Jinja as `_0_`,
`_1_`, ..., so it sees only placeholders and operators: keys may have hyphens, a backslash in a text
is a backslash, and no number is too long for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from abreast.jobs.files.filters import FILTERS
from abreast.jobs.files.fuel import (
    MAX_EXPRESSION_LENGTH,
    MAX_TOKENS,
    MAX_TREE_DEPTH,
    ExpressionInvalid,
    Value,
)
from abreast.jobs.files.terms import (
    ARITHMETIC,
    ArithmeticTerm,
    BooleanTerm,
    ChoiceTerm,
    ComparisonTerm,
    FilterTerm,
    ItemTerm,
    ListTerm,
    Literal,
    MappingTerm,
    Not,
    Path,
    SignedTerm,
    Term,
)

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

# Each bracket costs Jinja's parser a dozen frames of Python's stack, of which there are a thousand.
_MAX_BRACKET_DEPTH: Final = 25
_MAX_NUMBER_LENGTH: Final = 100  # characters

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>'[^']*'|"[^"]*")
    | (?P<number>(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    | (?P<path>[^\W\d]\w*(?:-+\w+)*(?:\.\w+(?:-+\w+)*)*)
    | (?P<keys>(?:\.\w+(?:-+\w+)*)+)
    | (?P<sign>==|!=|<=|>=|//|\*\*|[<>+\-*/%|,:()\[\]{}~=])
    )""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "if", "else"})
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "none": None, "null": None}
_PLACEHOLDER: Final = re.compile(r"_(\d+)_")
_NOT_ALLOWED: Final = {
    "Call": "a call",
    "Test": "a test with 'is'",
    "Concat": "'~' (use + or write the blocks one after the other)",
    "Pow": "'**'",
    "Slice": "a slice",
    "Keyword": "an argument with a name",
}


@dataclass(frozen=True, slots=True)
class Expression:
    """The parsed text between `{{` and `}}`.

    `raw` if its last filter is `raw`: its text is code for the shell.
    """

    term: Term
    raw: bool = False

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield the paths it reads, as far as they are written out."""
        waiting: list[Term] = [self.term]
        while waiting:
            term = waiting.pop()
            if isinstance(term, Path):
                yield term.keys
            waiting += term.parts()


def parse_expression(text: str, at: int = 0, *, raw_allowed: bool = False) -> Expression:
    """Parse an expression; ExpressionInvalid if it can't be. `raw` is only for the shell."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise ExpressionInvalid(
            f"an expression is longer than {MAX_EXPRESSION_LENGTH} characters", at
        )
    words, operands = _tokenize(text, at)
    return _Converter(operands, text, at, raw_allowed=raw_allowed).parse(" ".join(words))


def _tokenize(text: str, at: int) -> tuple[list[str], list[Term]]:
    """Return the tokens for Jinja, and the terms that its placeholders stand for."""
    words: list[str] = []
    operands: list[Term] = []
    depth = place = 0
    end = len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise ExpressionInvalid(
                f"{text[start : start + 10].strip()!r} can't be part of an expression", at + start
            )
        word, place = found[found.lastgroup or 0], found.end()
        depth += (word in "([{") - (word in ")]}")
        if depth > _MAX_BRACKET_DEPTH or len(words) > MAX_TOKENS:
            raise ExpressionInvalid(
                "the expression is too large or its brackets are nested too deeply", at + place
            )
        if (
            found.lastgroup == "sign"
            or word in _KEYWORDS
            or (found.lastgroup == "path" and words[-1:] == ["|"])
        ):
            words.append(word)
        elif found.lastgroup == "keys":
            for key in word[1:].split("."):
                words += ["[", f"_{len(operands)}_", "]"]
                operands.append(Literal(key))
        else:
            words.append(f"_{len(operands)}_")
            operands.append(_operand(found.lastgroup or "", word, at + found.start()))
    if not words:
        raise ExpressionInvalid("there is nothing between {{ and }}", at)
    return words, operands


def _operand(kind: str, word: str, at: int) -> Term:
    if kind == "text":
        return Literal(word[1:-1])
    if kind == "path":
        return (
            Literal(_CONSTANTS[word.lower()])
            if word.lower() in _CONSTANTS
            else Path(tuple(word.split(".")))
        )
    if len(word) > _MAX_NUMBER_LENGTH:
        raise ExpressionInvalid("a number is too long", at)
    number: float = int(word) if word.replace("_", "").isdecimal() else float(word)
    if number == float("inf"):
        raise ExpressionInvalid(f"the number {word} is too large", at)
    return Literal(number)


@cache
def _environment() -> Environment:
    from jinja2 import Environment

    return Environment(autoescape=False)  # noqa: S701 - it only parses, and renders nothing


class _Converter:
    """Converts Jinja's tree into terms, and refuses nodes that are not allowed."""

    def __init__(self, operands: list[Term], text: str, at: int, *, raw_allowed: bool) -> None:
        self._operands = operands
        self._text = text
        self._at = at
        self._raw_allowed = raw_allowed
        term = self._term
        self._makers: dict[str, Callable[[Any, int], Term]] = {
            "Name": self._name,
            "Getitem": self._getitem,
            "List": lambda node, at: ListTerm(tuple(term(item, at) for item in node.items)),
            "Tuple": lambda node, at: ListTerm(tuple(term(item, at) for item in node.items)),
            "Dict": lambda node, at: MappingTerm(
                tuple((term(pair.key, at), term(pair.value, at)) for pair in node.items)
            ),
            "And": lambda node, at: BooleanTerm(term(node.left, at), term(node.right, at)),
            "Or": lambda node, at: BooleanTerm(
                term(node.left, at), term(node.right, at), either=True
            ),
            "Not": lambda node, at: Not(term(node.node, at)),
            "CondExpr": lambda node, at: ChoiceTerm(
                term(node.test, at), term(node.expr1, at), term(node.expr2, at)
            ),
            "Compare": self._compare,
            "Neg": partial(self._signed, "-"),
            "Pos": partial(self._signed, "+"),
            "Filter": self._filter,
            **{name: partial(self._arithmetic, name) for name in ARITHMETIC},
        }

    def parse(self, words: str) -> Expression:
        from jinja2 import TemplateSyntaxError

        try:
            tree = _environment().parse("{{ " + words + " }}")
        except TemplateSyntaxError as error:
            fault = _PLACEHOLDER.sub(self._operand_text, str(error.message))
            fault = fault.replace("end of print statement", "the end")
            raise self._invalid(
                f"the expression {self._text.strip()!r:.60} can't be read: {fault}"
            ) from None
        except RecursionError:
            raise self._invalid("the expression is nested too deeply") from None
        (output,) = tree.body
        (node,) = output.nodes  # type: ignore[attr-defined]
        if type(node).__name__ == "Filter" and node.name == "raw":
            if not self._raw_allowed:
                raise self._invalid("the filter raw is only for the text of a shell step")
            if node.args or node.kwargs:
                raise self._invalid("the filter raw takes no argument")
            return Expression(self._term(node.node, 1), raw=True)
        return Expression(self._term(node, 1))

    def _invalid(self, sentence: str) -> ExpressionInvalid:
        return ExpressionInvalid(sentence, self._at)

    def _operand_text(self, found: re.Match[str]) -> str:
        term = dict(enumerate(self._operands)).get(int(found[1]))
        held = str(term.held) if isinstance(term, Literal) else found[0]
        return ".".join(term.keys) if isinstance(term, Path) else held

    def _term(self, node: nodes.Node | None, depth: int) -> Term:
        if depth > MAX_TREE_DEPTH:
            raise self._invalid(f"the expression is nested more than {MAX_TREE_DEPTH} levels deep")
        if node is None:
            return Literal(None)
        name = type(node).__name__
        if name not in self._makers:
            raise self._invalid(f"{_NOT_ALLOWED.get(name, name)} is not allowed in an expression")
        return self._makers[name](node, depth + 1)

    def _name(self, node: nodes.Name, _depth: int) -> Term:
        found = _PLACEHOLDER.fullmatch(node.name)
        if found is None:
            raise self._invalid(f"{node.name!r} can't stand here")
        return self._operands[int(found[1])]

    def _getitem(self, node: nodes.Getitem, depth: int) -> Term:
        of, key = self._term(node.node, depth), self._term(node.arg, depth)
        if isinstance(of, Path) and isinstance(key, Literal) and isinstance(key.held, str):
            return Path((*of.keys, key.held))
        return ItemTerm(of, key)

    def _compare(self, node: nodes.Compare, depth: int) -> Term:
        if len(node.ops) > 1:
            raise self._invalid(
                "a chain of comparisons is not allowed: join two of them with 'and'"
            )
        op = node.ops[0]
        return ComparisonTerm(op.op, self._term(node.expr, depth), self._term(op.expr, depth))

    def _arithmetic(self, name: str, node: nodes.BinExpr, depth: int) -> Term:
        return ArithmeticTerm(name, self._term(node.left, depth), self._term(node.right, depth))

    def _signed(self, sign: str, node: nodes.UnaryExpr, depth: int) -> Term:
        of = self._term(node.node, depth)
        # A constant may be larger than the numbers that arithmetic allows.
        if isinstance(of, Literal) and type(of.held) in (int, float):
            return Literal(-of.held if sign == "-" else of.held)
        return SignedTerm(sign, of)

    def _filter(self, node: nodes.Filter, depth: int) -> Term:
        if node.name == "raw" and self._raw_allowed:
            raise self._invalid("the filter raw must be the last one of its block")
        known = FILTERS.get(node.name)
        if known is None:
            raise self._invalid(f"there is no filter {node.name!r}; there are {', '.join(FILTERS)}")
        if node.kwargs or node.dyn_args or node.dyn_kwargs:
            raise self._invalid(
                f"the filter {node.name} takes no argument with a name, and none with a star"
            )
        if not known.least <= len(node.args) <= known.most:
            wanted = "one argument" if known.most else "no argument"
            raise self._invalid(f"the filter {node.name} takes {wanted}, not {len(node.args)}")
        return FilterTerm(
            node.name,
            self._term(node.node, depth),
            tuple(self._term(one, depth) for one in node.args),
        )
