"""An expression from its text: the words are found here, Jinja's parser puts them together, and only some are allowed.

Names, texts and numbers go to the parser as `_0_`, `_1_`, ..., so it sees nothing but words and
signs: keys may hold hyphens, a backslash in a text is a backslash, and no number is too long for
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from abreast.jobs.files.filters import FILTERS
from abreast.jobs.files.fuel import (
    DEEPEST_TREE,
    LONGEST_EXPRESSION,
    MOST_TOKENS,
    ExpressionInvalid,
    Value,
)
from abreast.jobs.files.terms import (
    ARITHMETIC,
    Arithmetic,
    Both,
    ChoiceTerm,
    Compared,
    Filtered,
    ItemTerm,
    Literal,
    Not,
    Pairs,
    Path,
    Several,
    Signed,
    Term,
)

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

# Each bracket costs Jinja's parser a dozen frames of Python's stack, of which there are a thousand.
_DEEPEST_BRACKETS: Final = 25
_LONGEST_NUMBER: Final = 100

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
_STAND_IN: Final = re.compile(r"_(\d+)_")
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
    """What stands between `{{` and `}}`.

    `raw` if its last filter says that its text is code for the shell.
    """

    term: Term
    raw: bool = False

    def paths(self) -> Iterator[tuple[str, ...]]:
        """The paths it reads, as far as they are written out."""
        waiting: list[Term] = [self.term]
        while waiting:
            term = waiting.pop()
            if isinstance(term, Path):
                yield term.keys
            waiting += term.parts()


def parse_expression(text: str, at: int = 0, *, raw_allowed: bool = False) -> Expression:
    """The expression, or ExpressionInvalid; `raw` is only allowed for the shell."""
    if len(text) > LONGEST_EXPRESSION:
        raise ExpressionInvalid(f"an expression is longer than {LONGEST_EXPRESSION} characters", at)
    words, held = _words(text, at)
    return _Reader(held, text, at, raw_allowed=raw_allowed).read(" ".join(words))


def _words(text: str, at: int) -> tuple[list[str], list[Term]]:
    """The text as Jinja gets it, and what its stand-ins stand for."""
    words: list[str] = []
    held: list[Term] = []
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
        if depth > _DEEPEST_BRACKETS or len(words) > MOST_TOKENS:
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
                words += ["[", f"_{len(held)}_", "]"]
                held.append(Literal(key))
        else:
            words.append(f"_{len(held)}_")
            held.append(_leaf(found.lastgroup or "", word, at + found.start()))
    if not words:
        raise ExpressionInvalid("there is nothing between {{ and }}", at)
    return words, held


def _leaf(kind: str, word: str, at: int) -> Term:
    if kind == "text":
        return Literal(word[1:-1])
    if kind == "path":
        return (
            Literal(_CONSTANTS[word.lower()])
            if word.lower() in _CONSTANTS
            else Path(tuple(word.split(".")))
        )
    if len(word) > _LONGEST_NUMBER:
        raise ExpressionInvalid("a number is too long", at)
    number: float = int(word) if word.replace("_", "").isdecimal() else float(word)
    if number == float("inf"):
        raise ExpressionInvalid(f"the number {word} is too large", at)
    return Literal(number)


@cache
def _environment() -> Environment:
    from jinja2 import Environment

    return Environment(autoescape=False)  # noqa: S701 - it only parses, and renders nothing


class _Reader:
    """Turns Jinja's tree into terms, and refuses what is not on the list."""

    def __init__(self, held: list[Term], text: str, at: int, *, raw_allowed: bool) -> None:
        self._held = held
        self._text = text
        self._at = at
        self._raw_allowed = raw_allowed
        self._makers: dict[str, Callable[[Any, int], Term]] = {
            "Name": self._name,
            "Getitem": self._getitem,
            "List": self._list,
            "Tuple": self._list,
            "Dict": self._dict,
            "And": self._and,
            "Or": self._or,
            "Not": self._not,
            "CondExpr": self._choice,
            "Compare": self._compare,
            "Neg": self._minus,
            "Pos": self._plus,
            "Filter": self._filter,
        }

    def read(self, words: str) -> Expression:
        from jinja2 import TemplateSyntaxError

        try:
            tree = _environment().parse("{{ " + words + " }}")
        except TemplateSyntaxError as error:
            said = _STAND_IN.sub(self._said, str(error.message))
            said = said.replace("end of print statement", "the end")
            raise self._invalid(
                f"the expression {self._text.strip()!r:.60} can't be read: {said}"
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

    def _said(self, found: re.Match[str]) -> str:
        term = dict(enumerate(self._held)).get(int(found[1]))
        if isinstance(term, Path):
            return ".".join(term.keys)
        return str(term.held) if isinstance(term, Literal) else found[0]

    def _term(self, node: nodes.Node | None, depth: int) -> Term:
        if depth > DEEPEST_TREE:
            raise self._invalid(f"the expression is nested more than {DEEPEST_TREE} levels deep")
        if node is None:
            return Literal(None)
        name = type(node).__name__
        if name in ARITHMETIC:
            return Arithmetic(
                name, self._term(node.left, depth + 1), self._term(node.right, depth + 1)
            )  # type: ignore[attr-defined]
        if name not in self._makers:
            raise self._invalid(f"{_NOT_ALLOWED.get(name, name)} is not allowed in an expression")
        return self._makers[name](node, depth + 1)

    def _name(self, node: nodes.Name, _depth: int) -> Term:
        found = _STAND_IN.fullmatch(node.name)
        if found is None:
            raise self._invalid(f"{node.name!r} can't stand here")
        return self._held[int(found[1])]

    def _getitem(self, node: nodes.Getitem, depth: int) -> Term:
        of, key = self._term(node.node, depth), self._term(node.arg, depth)
        if isinstance(of, Path) and isinstance(key, Literal) and isinstance(key.held, str):
            return Path((*of.keys, key.held))
        return ItemTerm(of, key)

    def _list(self, node: nodes.List | nodes.Tuple, depth: int) -> Term:
        return Several(tuple(self._term(item, depth) for item in node.items))

    def _dict(self, node: nodes.Dict, depth: int) -> Term:
        return Pairs(
            tuple(
                (self._term(pair.key, depth), self._term(pair.value, depth)) for pair in node.items
            )
        )

    def _and(self, node: nodes.And, depth: int) -> Term:
        return Both(self._term(node.left, depth), self._term(node.right, depth))

    def _or(self, node: nodes.Or, depth: int) -> Term:
        return Both(self._term(node.left, depth), self._term(node.right, depth), either=True)

    def _not(self, node: nodes.Not, depth: int) -> Term:
        return Not(self._term(node.node, depth))

    def _choice(self, node: nodes.CondExpr, depth: int) -> Term:
        return ChoiceTerm(
            self._term(node.test, depth),
            self._term(node.expr1, depth),
            self._term(node.expr2, depth),
        )

    def _compare(self, node: nodes.Compare, depth: int) -> Term:
        if len(node.ops) > 1:
            raise self._invalid(
                "a chain of comparisons is not allowed: join two of them with 'and'"
            )
        (op,) = node.ops
        return Compared(op.op, self._term(node.expr, depth), self._term(op.expr, depth))

    def _minus(self, node: nodes.Neg, depth: int) -> Term:
        return self._signed("-", node.node, depth)

    def _plus(self, node: nodes.Pos, depth: int) -> Term:
        return self._signed("+", node.node, depth)

    def _signed(self, sign: str, node: nodes.Node, depth: int) -> Term:
        of = self._term(node, depth)
        # A number that is written down may be larger than one that is reckoned with.
        if isinstance(of, Literal) and type(of.held) in (int, float):
            return Literal(-of.held if sign == "-" else of.held)
        return Signed(sign, of)

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
            wanted = ("no argument", "one argument")[known.most]
            raise self._invalid(f"the filter {node.name} takes {wanted}, not {len(node.args)}")
        return Filtered(
            node.name,
            self._term(node.node, depth),
            tuple(self._term(one, depth) for one in node.args),
        )
