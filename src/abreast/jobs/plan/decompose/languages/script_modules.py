"""Reads what files of JavaScript and TypeScript import and export, as it is written there.

Where all imports are plain ones at the beginning of a file, regular expressions find them, in a
fifth of the parser's time. Other files are parsed, so that the result is always that of the parser.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from abreast.jobs.plan.decompose.languages.syntax import Syntax

_GRAMMARS: Final = {".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx"}
_QUERY: Final = """
(import_statement) @import
(export_statement source: (string)) @export_from
(export_statement (export_clause) @export_names !source)
(export_statement declaration: (_ name: (_) @exported))
(export_statement declaration: (_ (variable_declarator name: (identifier) @exported)))
(call_expression function: (import) arguments: (arguments . (string) @called))
((call_expression function: (identifier) @function arguments: (arguments . (string) @called))
  (#eq? @function "require"))
"""
# One of these is in all that the query finds, but for what a file declares and exports itself.
_WORDS: Final = (b"import", b"require", b"from", b"export {", b"export{", b"export type")
_STATEMENT_END: Final = re.compile(rb"[;)}]")
_LITERAL: Final = re.compile(r"""(['"`])([^'"`\n]*)\1""")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BRACES: Final = re.compile(r"\{([^}]*)\}")
_ATTRIBUTES: Final = re.compile(r"""(?<=['"])\s*(?:with|assert)\s*\{[^}]*\}""")
_WHOLE: Final = re.compile(r"\*(?:\s*as\s+([\w$]+))?")
_DEFAULT: Final = re.compile(r"\Aimport\s+(?:type\s+)?(?!type\b|from\b)([\w$]+)")
# After blank lines, comments and `"use strict";`: an import of plain names, without attributes.
_PLAIN_IMPORT: Final = re.compile(
    rb"""(?: \s++ | //[^\n]*+ | /\*[^*]*+(?:\*(?!/)[^*]*+)*\*/ | "use\ \w+";? | 'use\ \w+';? )*
    (?P<spelled> import (?:
        \s+ (?:type\s+)? (?!type\b|from\b)(?P<only>[\w$]+) \s+ from
      | (?: \s+ (?:type\s+)? (?!type\b)(?P<default>[\w$]+) \s*, | \s+type )?
        \s* (?: \{(?P<names>[\w$\s,]*)\} | (?P<star>\*)\s*as\s+[\w$]+\s ) \s* from
      )? \s* (?P<quote>["']) (?P<source>[^"'`\\\n]*) (?P=quote) )
    [ \t]* (?: ; | (?= [\r\n/] | \Z ) )""",
    re.VERBOSE,
)
# What may be an import, or pass one on; in a comment or a string it is neither, but rare. Each
# begins with plain letters, to which the search can jump.
_MAY_IMPORT: Final = (
    re.compile(rb"import(?![\w$])"),
    re.compile(rb"require(?![\w$])"),
    re.compile(
        rb"""export(?! [\w$]
        | \s+(?:abstract|async|class|const|declare|default|enum|function|interface|let|namespace
             |var)\b
        | \s+type\s+[\w$]+\s*[=<] )""",
        re.VERBOSE,
    ),
)


@dataclass(slots=True)
class ScriptModule:
    """What a file imports and exports; names as others see them, `*` for the whole module."""

    imports: list[tuple[str, str]] = field(default_factory=list)  # source, name
    bound: dict[str, tuple[str, str]] = field(default_factory=dict)  # by its name in this file
    passed_on: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ScriptReader:
    """Reads many files; an import that comes again is not read again."""

    parsed: int = 0
    """Files that were parsed."""
    _known: dict[bytes, list[tuple[str, str]]] = field(default_factory=dict)

    def read(self, path: str, source: bytes) -> ScriptModule:
        """What a file imports and passes on; of what it declares itself, some may be left out."""
        found = self._scan(source)
        if found is not None:
            return ScriptModule(found)
        return self.read_whole(path, _imports_of(source))

    def read_whole(self, path: str, source: bytes) -> ScriptModule:
        """All that a file imports, passes on and declares."""
        self.parsed += 1
        return _parse(path, source)

    def _scan(self, source: bytes) -> list[tuple[str, str]] | None:
        """The imports at the beginning; None if there may be others, or exports of them."""
        found: list[tuple[str, str]] = []
        end = 0
        while statement := _PLAIN_IMPORT.match(source, end):
            spelled = statement["spelled"]
            known = self._known.get(spelled)
            if known is None:
                known = self._known[spelled] = _imports_in(statement)
            found += known
            end = statement.end()
        others = (pattern.search(source, end) for pattern in _MAY_IMPORT)
        return None if any(others) else found


def _imports_in(statement: re.Match[bytes]) -> list[tuple[str, str]]:
    """What a plain import imports: as `_add` has it for one that is parsed."""
    source = statement["source"].decode(errors="replace")
    names = [] if statement["names"] is None else _names_in(statement["names"].decode())
    found = [(source, name) for name, _ in names]
    if statement["default"] or statement["only"]:
        found.append((source, "default"))
    return found if found and not statement["star"] else [*found, (source, "*")]


def _imports_of(source: bytes) -> bytes:
    """A source up to its last import: most of what follows is large, and has nothing to read."""
    end = max(map(source.rfind, _WORDS))
    if end < 0:
        return b""
    if source.count(b"`", 0, end) % 2:
        return source  # it may be in a text, which must have its end
    closed, opened = source.find(b"*/", end), source.find(b"/*", end)
    if closed >= 0 and not 0 <= opened < closed:
        return source[: closed + 2]  # it is in a comment, which must have its end
    ended = _STATEMENT_END.search(source, end)
    return source[: ended.end()] if ended else source


@cache
def _syntax(grammar: str) -> Syntax:
    return Syntax(grammar, _QUERY)


def _parse(path: str, source: bytes) -> ScriptModule:
    made = ScriptModule()
    own: list[tuple[str, str]] = []
    if not source:
        return made
    grammar = _GRAMMARS.get(f".{path.rpartition('.')[2]}", "javascript")
    for each in _syntax(grammar).captures(source):
        if each.name == "exported":
            made.exported.add(each.text)
        elif each.name == "export_names":
            own += _names(_COMMENT.sub(" ", each.text))
        elif each.name in {"import", "export_from", "called"}:
            _add(made, each.name, each.text)
    for name, other in own:
        if name in made.bound:
            made.passed_on[other] = made.bound[name]
        else:
            made.exported.add(other)
    return made


def _add(made: ScriptModule, kind: str, text: str) -> None:
    """Add a statement: its names, or all of a module if it has none."""
    text = _ATTRIBUTES.sub("", _COMMENT.sub(" ", text)) if "{" in text else text
    literals = _LITERAL.findall(text)
    if not literals:
        return
    source = literals[-1][1]
    names = _names(text) if kind != "called" else []
    whole = _WHOLE.search(_BRACES.sub("", text)) if kind != "called" else None
    if kind == "export_from":
        made.passed_on.update({other: (source, name) for name, other in names})
        if whole is not None and whole[1]:
            made.passed_on[whole[1]] = (source, "*")
        elif whole is not None:
            made.stars.append(source)
    elif kind == "import":
        if default := _DEFAULT.search(text):
            names.append(("default", default[1]))
        if whole is not None:
            names.append(("*", whole[1] or ""))
        made.bound.update({other: (source, name) for name, other in names})
    made.imports += [(source, name) for name, _ in names] or [(source, "*")]


def _names(text: str) -> list[tuple[str, str]]:
    """The names in braces, and what they become."""
    return [name for braces in _BRACES.findall(text) for name in _names_in(braces)]


def _names_in(braces: str) -> list[tuple[str, str]]:
    found = []
    for each in braces.split(","):
        words = each.split()
        if words[:1] == ["type"] and len(words) > 1 and words[1] != "as":
            words = words[1:]
        if words:
            found.append((words[0].strip("'\""), words[-1].strip("'\"")))
    return found
