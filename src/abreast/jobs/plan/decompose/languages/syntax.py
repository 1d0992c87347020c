"""Finds statements in sources by tree-sitter, whose grammars come with the extra `plan`."""

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

_GRAMMARS: Final = {
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}


class Capture(NamedTuple):
    """A node that a query names, with the bytes it extends over."""

    name: str
    text: str
    start: int
    end: int


def can_parse(grammar: str) -> bool:
    """Whether the grammar is installed."""
    return all(find_spec(name) for name in ("tree_sitter", _GRAMMARS[grammar][0]))


@dataclass(slots=True)
class Syntax:
    """A grammar and a query; sources with errors are read as far as possible."""

    grammar: str
    query: str
    _parser: Any = field(init=False)
    _query: Any = field(init=False)
    _cursor: Any = field(init=False)

    def __post_init__(self) -> None:
        """Load the grammar; raises `ImportError` if it is not installed."""
        library = import_module("tree_sitter")
        language = _language(self.grammar)
        self._parser = library.Parser(language)
        self._query = library.Query(language, self.query)
        self._cursor = library.QueryCursor

    def captures(self, source: bytes) -> list[Capture]:
        """What the query finds, in the order of the source."""
        found: dict[str, list[Any]] = self._cursor(self._query).captures(
            self._parser.parse(source).root_node
        )
        return sorted(
            (
                Capture(
                    name,
                    source[node.start_byte : node.end_byte].decode(errors="replace"),
                    node.start_byte,
                    node.end_byte,
                )
                for name, nodes in found.items()
                for node in nodes
            ),
            key=lambda one: (one.start, -one.end),
        )


@cache
def _language(grammar: str) -> Any:  # noqa: ANN401 - tree-sitter may not be installed
    module, function = _GRAMMARS[grammar]
    return import_module("tree_sitter").Language(getattr(import_module(module), function)())
