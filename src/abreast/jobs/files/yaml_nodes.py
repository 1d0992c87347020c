"""Reads a YAML file into a tree of nodes with line numbers, bounded in size and depth.

The tree is built from the parser's events, not by recursion, so that depth and aliases are measured
before they are followed. Keys stay texts as written: `on:` is no boolean here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from abreast.jobs.files.problems import Problems

if TYPE_CHECKING:
    import yaml

MAX_BYTES: Final = 5 * 1024 * 1024
MAX_DEPTH: Final = 100
MAX_NODES: Final = 200_000
"""Values of a file, with every alias counted as often as it is used."""
_MAX_NUMBER_LENGTH: Final = 400  # characters
_INVALID_CHARACTER: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_TAG_PREFIX: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset({"str", "timestamp", "value", "merge"})  # a date stays a text
_ESCAPE_DIGITS: Final = {"x": 2, "u": 4, "U": 8}

Kind: TypeAlias = Literal["value", "list", "mapping"]


class _ReadingStopped(Exception):
    """The rest of the file is not read; its arguments are the line and the reason."""


@dataclass(slots=True, eq=False)
class YamlNode:
    """A scalar value, a list or a mapping."""

    kind: Kind
    line: int
    value: Any = None
    """Of a scalar: None, a text, a number or a boolean."""
    text: str = ""
    """Of a scalar: as it is written in the file, without quotes."""
    style: str = ""
    start: int = 0
    end: int = 0
    entries: list[YamlNode] = field(default_factory=list)
    pairs: dict[str, tuple[YamlNode, YamlNode]] = field(default_factory=dict)
    size: int = 1
    height: int = 1

    def get(self, key: str) -> YamlNode | None:
        """Return the value of a key; None if it is no mapping, or has no such key."""
        return self.pairs[key][1] if key in self.pairs else None

    def items(self) -> Iterator[tuple[str, YamlNode]]:
        """Return a mapping's keys and values."""
        return ((key, value) for key, (_, value) in self.pairs.items())

    def line_of(self, key: str) -> int:
        """Return the line of a key."""
        return self.pairs[key][0].line if key in self.pairs else self.line

    def plain(self, depth: int = 1_000) -> Any:  # noqa: ANN401 - any value of a file
        """Return it as plain data; lists and mappings below `depth` levels are left empty."""
        if self.kind == "list":
            return [one.plain(depth - 1) for one in self.entries] if depth else []
        if self.kind == "mapping":
            return {key: value.plain(depth - 1) for key, value in self.items()} if depth else {}
        return self.value


def node_of(value: Any) -> YamlNode:  # noqa: ANN401 - any plain data
    """Return plain data as the tree that a file of it would have, without lines."""
    if isinstance(value, Mapping):
        pairs = {str(key): (node_of(str(key)), node_of(one)) for key, one in value.items()}
        return YamlNode("mapping", 0, pairs=pairs)
    if isinstance(value, (list, tuple)):
        return YamlNode("list", 0, entries=[node_of(one) for one in value])
    return YamlNode("value", 0, value, str(value))


def read_yaml(text: str, report: Problems) -> YamlNode | None:
    """Return the tree of a file; None if it can't be read, and the report says why."""
    import yaml

    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        report.problem(1, "the file is larger than 5 MiB; move data into files that the steps read")
        return None
    if invalid := _INVALID_CHARACTER.search(text):
        report.problem(
            text.count("\n", 0, invalid.start()) + 1,
            f"the character U+{ord(invalid[0]):04X} can't stand in a YAML file; remove it",
        )
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        return _Builder(report, loader).build()
    except yaml.MarkedYAMLError as error:
        report.problem(*_syntax_fault(error, text))
    except _ReadingStopped as stopped:
        report.problem(*stopped.args)
    finally:
        loader.dispose()
    return None


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """The line to look at, and what is wrong there.

    Where a bracket is not closed, the parser notices it later: at a line that may well be right.
    """
    fault = " ".join(str(error.problem or error.context).split())
    mark, opened = error.problem_mark or error.context_mark, error.context_mark
    lines = text.splitlines() or [""]
    # What is missing at the end of the file is reported one line after it.
    line = min(mark.line + 1, len(lines)) if mark else 1
    said = f"this is no YAML: {fault}"
    if opened is not None and "flow" in str(error.context) and opened.line + 1 < line:
        bracket = lines[opened.line][opened.column : opened.column + 1]
        return opened.line + 1, f"{said} by line {line}; the {bracket!r} here is not closed"
    if "cannot start any token" in fault and "\t" in lines[line - 1]:
        return line, f"{said}: a tab; indent by spaces"
    if fault.startswith("mapping values are not allowed"):
        return line, f"{said}; put a text with ': ' in it in quotes"
    return line, said


class _Builder:
    def __init__(self, report: Problems, loader: Any) -> None:  # noqa: ANN401 - PyYAML has few types
        self.report, self.loader = report, loader
        # Each open node, the nodes in it so far (of a mapping keys and values in turn), its anchor.
        self.open: list[tuple[YamlNode, list[YamlNode], str | None]] = []
        self.anchors: dict[str, YamlNode] = {}
        self.size = 0

    def build(self) -> YamlNode | None:
        import yaml

        root: YamlNode | None = None
        while self.loader.check_event():
            event = self.loader.get_event()
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                root = self.alias(str(event.anchor), line) or root
            elif isinstance(event, yaml.ScalarEvent):
                root = self.add(self.scalar(event, line), event.anchor) or root
            elif isinstance(event, yaml.CollectionStartEvent):
                kind: Kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "mapping"
                self.begin(kind, event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                root = self.finish() or root
            elif isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise _ReadingStopped(line, "a file holds one workflow; remove the second document")
        if root is None:
            self.report.problem(1, "the file is empty; a workflow has at least workflow and steps")
        return root

    def begin(self, kind: Kind, event: yaml.CollectionStartEvent, line: int) -> None:
        allowed = {None, "!", f"{_TAG_PREFIX}{'seq' if kind == 'list' else 'map'}"}
        if event.tag not in allowed:
            self.report.problem(
                line, f"the tag {_shown_tag(str(event.tag))} is not read here; write a plain {kind}"
            )
        self.check_depth(len(self.open) + 1, line)
        self.open.append((YamlNode(kind, line), [], event.anchor))
        self.anchors.pop(event.anchor or "", None)

    def finish(self) -> YamlNode | None:
        node, parts, anchor = self.open.pop()
        node.size = 1 + sum(one.size for one in parts)
        node.height = 1 + max((one.height for one in parts), default=0)
        if node.kind == "list":
            node.entries = parts
        else:
            self.pair(node, parts)
        self.size -= node.size - 1  # `add` counts all of the node again
        return self.add(node, anchor)

    def add(self, node: YamlNode, anchor: str | None) -> YamlNode | None:
        """Add a node to the open one; return it if it is the root."""
        self.size += node.size
        if self.size > MAX_NODES:
            raise _ReadingStopped(
                node.line, f"the file holds more than {MAX_NODES:,} values, its aliases unfolded"
            )
        if anchor:
            self.anchors[anchor] = node
        if not self.open:
            return node
        self.open[-1][1].append(node)
        return None

    def alias(self, name: str, line: int) -> YamlNode | None:
        node = self.anchors.get(name)
        if node is None:
            raise _ReadingStopped(
                line,
                f"*{name} stands inside of what it repeats"
                if any(name == anchor for _, _, anchor in self.open)
                else f"there is no &{name} before *{name}",
            )
        self.check_depth(len(self.open) + node.height, line)
        return self.add(node, None)

    def check_depth(self, depth: int, line: int) -> None:
        if depth > MAX_DEPTH:
            raise _ReadingStopped(line, f"this is nested more than {MAX_DEPTH} levels deep")

    def pair(self, node: YamlNode, parts: list[YamlNode]) -> None:
        """Pair keys with their values; the mapping's own keys win over those of `<<`."""
        merged: list[YamlNode] = []
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            if key.kind != "value":
                self.report.problem(key.line, f"a key must be a text, not a {key.kind}")
            elif key.text == "<<" and not key.style:
                merged += value.entries if value.kind == "list" else [value]
            elif key.text in node.pairs:
                first = node.line_of(key.text)
                self.report.problem(
                    key.line,
                    f"{key.text!r:.80} stands here a second time; it is on line {first} too",
                )
            else:
                node.pairs[key.text] = (key, value)
        for source in merged:
            if source.kind != "mapping":
                self.report.problem(source.line, "<< takes a mapping, or a list of mappings")
            for name, pair in source.pairs.items():
                node.pairs.setdefault(name, pair)

    def scalar(self, event: Any, line: int) -> YamlNode:  # noqa: ANN401 - PyYAML has few types
        import yaml

        text: str = event.value
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(yaml.ScalarNode, text, event.implicit)
        node = YamlNode(
            "value",
            line,
            text,
            text,
            event.style or "",
            event.start_mark.index,
            event.end_mark.index,
        )
        name = tag.removeprefix(_TAG_PREFIX)
        make = {
            "null": self.loader.construct_yaml_null,
            "bool": self.loader.construct_yaml_bool,
            "int": self.loader.construct_yaml_int,
            "float": self.loader.construct_yaml_float,
        }.get(name)
        if make is not None and len(text) <= _MAX_NUMBER_LENGTH:
            try:
                node.value = make(yaml.ScalarNode(tag, text))
            except (ValueError, LookupError, OverflowError):
                self.report.problem(line, f"{text!r:.60} is no {name}")
        elif make is not None:
            self.report.problem(
                line, f"a number of {len(text)} characters is too long; put it in quotes"
            )
        elif name not in _TEXT_TAGS:
            self.report.problem(
                line, f"the tag {_shown_tag(tag)} is not read here; write a plain value"
            )
        return node


def _shown_tag(tag: str) -> str:
    return tag.replace(_TAG_PREFIX, "!!")[:80]


def line_in(node: YamlNode, offset: int, source: str) -> int:
    """Return the line of the file that a character of a text is on.

    YAML folds white space, so the characters that are no white space are counted.
    """
    if node.style == "|":
        return node.line + 1 + node.text.count("\n", 0, offset)
    source = source.removeprefix("\ufeff")
    before = sum(not one.isspace() for one in node.text[:offset])
    for index, is_space in _characters(source, node):
        if not is_space:
            if before == 0:
                return node.line + source.count("\n", node.start, index)
            before -= 1
    return node.line + source.count("\n", node.start, node.end)


def _characters(source: str, node: YamlNode) -> Iterator[tuple[int, bool]]:
    """Yield the offset in the file of each character of a folded text, and whether it is space."""
    at, end = node.start, node.end
    if node.style == ">":
        at = source.find("\n", at, end) + 1
    elif node.style in {"'", '"'}:
        at, end = source.index(node.style, at, end) + 1, end - 1
    while at < end:
        length, is_space = 1, source[at].isspace()
        if node.style == "'" and source.startswith("''", at):
            length = 2
        elif node.style == '"' and source[at] == "\\":
            escape = source[at + 1 : at + 2]
            length = 2 + _ESCAPE_DIGITS.get(escape, 0)
            is_space = escape in " \n\r\tntrvfNLP_"
        yield at, is_space
        at += length
