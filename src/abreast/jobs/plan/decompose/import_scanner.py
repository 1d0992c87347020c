"""Finds the import statements of a Python file without parsing the rest of it.

A parser spends more than 90% of its time on code that imports nothing. Here, strings and comments
are blanked up to the last `import`, and only the remaining import statements go to the parser.
Where the text is ambiguous (an `import` in no statement, an unmatched quote or parenthesis, Python
2), the whole file is parsed, so that the result is always that of the parser. Other syntax errors
are not looked for.
"""

import ast
import itertools
import keyword
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self


class Statement(NamedTuple):
    """An import statement: a fifth of the memory of the parser's, of which there may be 100,000."""

    names: tuple[tuple[str, str | None], ...]
    """Each name, and the one that it is given by `as`."""
    module: str | None = None
    level: int | None = None
    """The dots of `from`; None if it is no `from`."""

    @classmethod
    def of(cls, node: ast.Import | ast.ImportFrom) -> Self:
        """The statement of a node."""
        names = tuple((alias.name, alias.asname) for alias in node.names)
        if isinstance(node, ast.Import):
            return cls(names)
        return cls(names, node.module, node.level)

    @property
    def is_star(self) -> bool:
        """Whether it is `from module import *`."""
        return self.names[0][0] == "*"

    def bindings(self) -> list[tuple[str, str]]:
        """The names that it binds, each with the name that it imports for it."""
        if self.level is not None:
            return [(other or name, name) for name, other in self.names]
        return [
            (other, name) if other else (name.partition(".")[0],) * 2 for name, other in self.names
        ]


# Each loop is unrolled (plain characters, then any number of: one special, plain characters), and
# each branch begins with a plain character, to which the search can jump: five times as fast as the
# usual way to write it.
_BLANKED: Final = re.compile(
    r"""\#[^\n]*
    | \"\"\" [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* (?: \"\"\" | \Z )
    | \'\'\' [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* (?: \'\'\' | \Z )
    | \" [^"\\\n]* (?: \\. [^"\\\n]* )* \"
    | \' [^'\\\n]* (?: \\. [^'\\\n]* )* \'
    """,
    re.DOTALL | re.VERBOSE,
)
# The word first, what is around it second: a search for plain letters is ten times as fast as one
# for `\bimport`.
_WORD: Final = re.compile(r"import(?<!\wimport)\b")
_HEAD: Final = re.compile(r"(?:.*[;:])?[ \t\f]*(from\b[\w. \t\f]*)?")
_TAIL: Final = re.compile(r"[ \t\f]*\([^)]*\)|[^;\n(]*")
_CODING: Final = re.compile(rb"\A(?:[^\n]*\n)?[^\n]*coding[:=][ \t]*(?!utf-?8\b)", re.IGNORECASE)
_PYTHON_2: Final = re.compile(
    r"^[ \t]*(?:print[ \t]+(?:[^ \t=(.,:)]|$)|except [^\n:(]*,)", re.MULTILINE
)
_EXCEPT: Final = re.compile(r"except [^\n:(]*,")
_PLAIN_IMPORT: Final = re.compile(
    r"import[ \t]+([^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:[ \t]+as[ \t]+([^\W\d]\w*))?[ \t]*", re.ASCII
)
_PLAIN_FROM: Final = re.compile(
    r"""from[ \t]+(?=[.\w])(\.*)((?:[^\W\d]\w*(?:\.[^\W\d]\w*)*)?)[ \t]+import
        (?:[ \t]+(\*|[\w, \t]+)|[ \t]*\(([\w,\s]+)\)[ \t]*)""",
    re.ASCII | re.VERBOSE,
)
_RENAMED: Final = re.compile(r"([^\W\d]\w*)\s+as\s+([^\W\d]\w*)", re.ASCII)
_LAST_COMMA: Final = re.compile(r",\s*\Z")
_KEYWORDS: Final = frozenset(keyword.kwlist)


@dataclass(slots=True)
class ImportScanner:
    """Reads the imports of many files; a line that comes again is not read again."""

    _known: dict[str, list[Statement]] = field(default_factory=dict)
    parsed_bytes: int = 0
    """Bytes that the parser read: single statements, and files that were parsed whole."""

    def read(self, source: bytes, text: str | None = None) -> list[Statement]:
        """All imports of a file, also in functions; `text` is that of `read_text`, if known.

        Raises what `ast.parse` raises if the file is parsed whole.
        """
        if b"import" not in source:
            return []
        found = self._scan(read_text(source) if text is None else text)
        if found is None:
            self.parsed_bytes += len(source)
            found = parse_imports(source)
        return found

    def _scan(self, text: str | None) -> list[Statement] | None:
        """The imports found by scanning the text; None if that may be wrong."""
        if text is None or _looks_broken(text):
            return None
        code = without_strings(text[: _end_of_line(text, text.rindex("import"))])
        if "'" in code or '"' in code:
            return None
        found: list[Statement] = []
        end = 0
        try:
            while (at := code.find("import", end)) >= 0:
                start, end = code.rfind("\n", 0, at) + 1, code.find("\n", at)
                end = len(code) if end < 0 else end
                line = code[start:end]
                known = self._known.get(line)
                if known is None:
                    several = "(" in line  # it may go on in the next line
                    plain = None if several else _plain_statement(line.lstrip(" \t\f"))
                    known = self._statements(code, start, end) if plain is None else [plain]
                    if not several:
                        self._known[line] = known
                found += known
        except (SyntaxError, ValueError):
            return None
        return found

    def _statements(self, code: str, start: int, end: int) -> list[Statement]:
        """Those that begin in a line; raises `ValueError` if an `import` is in none."""
        found: list[Statement] = []
        for word in _WORD.finditer(code, start, end):
            head = _HEAD.fullmatch(code, start, word.start())
            tail = _TAIL.match(code, word.end())
            if head is None or tail is None:
                raise ValueError("an import that is no statement")
            spelled = f"{head[1] or ''}import{tail[0]}"
            plain = _plain_statement(spelled)
            if plain is None:
                self.parsed_bytes += len(spelled)
                found += _walk(ast.parse(spelled).body)
            else:
                found.append(plain)
        return found


def without_strings(text: str) -> str:
    """The text without strings and comments, with continued lines joined."""
    code = _BLANKED.sub(" ", text)
    return code.replace("\\\n", " ") if "\\" in code else code


def parse_imports(source: bytes) -> list[Statement]:
    """The imports of a file by parsing it whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as one for an invalid escape
        return list(_walk(ast.parse(source).body))


def _walk(body: Sequence[ast.AST]) -> Iterator[Statement]:
    """All imports, also in functions, under `try` and `if TYPE_CHECKING`.

    Expressions can't have any, and are not walked.
    """
    pending = list(reversed(body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield Statement.of(node)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, name, None)
            if isinstance(found, list):
                pending.extend(found)


def read_text(source: bytes) -> str | None:
    """The file as text with plain line ends; None if only the parser can find its encoding."""
    if b"\0" in source or (b"coding" in source and _CODING.search(source)):
        return None
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _plain_statement(spelled: str) -> Statement | None:
    """A statement of plain names, in a third of the parser's time; None for others."""
    if found := _PLAIN_IMPORT.fullmatch(spelled):
        module, other = found.groups()
        made = Statement(((module, other),))
        words: list[str | None] = [*module.split("."), other]
    elif found := _PLAIN_FROM.fullmatch(spelled):
        dots, module, listed, enclosed = found.groups()
        names: list[tuple[str, str | None]] = []
        for each in (listed or _LAST_COMMA.sub("", enclosed)).split(","):
            name = each.strip()
            if name.isidentifier():
                names.append((name, None))
            elif one := _RENAMED.fullmatch(name):
                names.append((one[1], one[2]))
            elif name == "*" == listed:
                names.append((name, None))
            else:
                return None
        made = Statement(tuple(names), module or None, len(dots))
        words = [*module.split("."), *itertools.chain.from_iterable(names)]
    else:
        return None
    # `import import` and `from a import in` are left to the parser.
    return made if _KEYWORDS.isdisjoint(words) else None


def _looks_broken(text: str) -> bool:
    """Whether parentheses don't match, or there is a statement of Python 2.

    Strings and comments are ignored.
    """
    uneven = text.count("(") != text.count(")")
    if not uneven and "print " not in text and not _EXCEPT.search(text):
        return False
    code = without_strings(text)
    return code.count("(") != code.count(")") or _PYTHON_2.search(code) is not None


def _end_of_line(text: str, at: int) -> int:
    """The end of the logical line that `at` is in, after the bracket that is open there."""
    end = text.find("\n", at)
    if end < 0:
        return len(text)
    if "(" in text[at:end]:
        closed = text.find(")", at)
        end = max(end, text.find("\n", closed) if closed >= 0 else end)
    while text[end - 1] == "\\":
        following = text.find("\n", end + 1)
        if following < 0:
            return len(text)
        end = following
    return end
