"""The parts of a plan as people write and edit them, in the file of a plan.

plan:
  parts:
    - name: core
      files: [src/core/, src/errors.py]
      instructions: Keep the names of exceptions.
    - name: cli
      files: [src/cli/, "src/*_options.py"]
      after: [core]
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from abreast.jobs.files.units import quoted
from abreast.jobs.files.yaml_nodes import YamlNode, node_of
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import ROOT
from abreast.worktrees.merge.merge import SOURCE

EDIT: Final = "edit"
"""What `plan resolve --take` calls a text of one's own; no part is called so."""
PART_WORDS: Final = ("id", "name", "files", "instructions", "after")
"""The keys of a part."""
_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,78}[A-Za-z0-9])?")
_RESERVED: Final = frozenset({ROOT, SOURCE, EDIT})
_NOT_IN_ID: Final = re.compile(r"[^a-z0-9]+")
_MAX_ID_WORDS: Final = 24  # characters of a name that its id begins with
_MAX_INSTRUCTION_BYTES: Final = 100_000  # a command gets them in a variable


@dataclass(frozen=True, slots=True)
class WrittenName:
    """A file, a pattern or a part as it is written, and where, such as `plan.yaml:7: `."""

    text: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class PartSpec:
    """A part as it is written."""

    id: str
    name: str
    files: tuple[WrittenName, ...]
    instructions: str = ""
    after: tuple[WrittenName, ...] = ()
    """The ids of the parts that it waits for."""
    place: str = ""

    def plain(self) -> dict[str, Any]:
        """The part as plain data, without places."""
        found: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "files": [each.text for each in self.files],
        }
        found |= {"instructions": self.instructions} if self.instructions else {}
        return found | ({"after": [each.text for each in self.after]} if self.after else {})


def parts_schema() -> dict[str, Any]:
    """JSON Schema of a plan's parts."""
    text = {"type": "string", "minLength": 1}
    texts = {"type": "array", "items": text}
    return {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["files"],
            "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
            "properties": {
                "id": text,
                "name": text,
                "files": {**texts, "minItems": 1},
                "instructions": {"type": "string"},
                "after": texts,
            },
            "additionalProperties": False,
        },
    }


# --- reading --------------------------------------------------------------------------------------


def read_parts(given: object, file: str = "") -> tuple[PartSpec, ...]:
    """The parts of a file's node, or of plain data; raises `PlanInvalid` for a wrong one."""
    if isinstance(given, tuple) and all(isinstance(one, PartSpec) for one in given):
        return given
    node = given if isinstance(given, YamlNode) else node_of(given)
    return _Reader(file).parts(node)


@dataclass(frozen=True, slots=True)
class _Reader:
    file: str

    def place(self, line: int) -> str:
        return f"{self.file}:{line}: " if self.file else ""

    def refused(self, node: YamlNode, sentence: str) -> PlanInvalid:
        return PlanInvalid(f"{self.place(node.line)}{sentence}")

    def parts(self, node: YamlNode) -> tuple[PartSpec, ...]:
        if node.kind != "list" or not node.entries:
            raise self.refused(node, "parts must be a list of parts, each with name and files")
        found = [self.part(each) for each in node.entries]
        first: dict[str, PartSpec] = {}
        for part in found:
            if part.id in first:
                raise PlanInvalid(
                    f"{part.place}part {part.id!r} comes twice{also_at(first[part.id].place)}"
                )
            first[part.id] = part
        ordered = tuple(self.ordered(part, found) for part in found)
        _check_circle(ordered)
        return ordered

    def part(self, node: YamlNode) -> PartSpec:
        if node.kind != "mapping":
            raise self.refused(node, "a part must be a mapping, with name and files")
        for word in node.pairs:
            if word not in PART_WORDS:
                close = get_close_matches(word, PART_WORDS, 1)
                hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(PART_WORDS)}"
                raise PlanInvalid(
                    f"{self.place(node.line_of(word))}a part has no {quoted(word)}; {hint}"
                )
        name, given_id = self.text(node, "name"), self.text(node, "id")
        if not name and not given_id:
            raise self.refused(node, "a part needs a name")
        if given_id and (not _ID.fullmatch(given_id) or given_id in _RESERVED):
            at = self.place(node.line_of("id"))
            raise PlanInvalid(
                f"{at}id {quoted(given_id)} can't be used: it needs letters, digits, - and _, "
                f"at most 80, and is none of {', '.join(sorted(_RESERVED))}"
            )
        instructions = self.text(node, "instructions")
        if len(instructions.encode(errors="replace")) > _MAX_INSTRUCTION_BYTES:
            at = self.place(node.line_of("instructions"))
            raise PlanInvalid(f"{at}instructions have more than {_MAX_INSTRUCTION_BYTES:,} bytes")
        files = self.names(node, "files")
        if not files:
            raise self.refused(node, f"part {quoted(name or given_id)} has no files")
        return PartSpec(
            given_id or id_of(name),
            name or given_id,
            files,
            instructions,
            self.names(node, "after"),
            self.place(node.line),
        )

    def text(self, node: YamlNode, word: str) -> str:
        value = node.get(word)
        if value is None or (value.value is None and value.kind == "value"):
            return ""
        if value.kind != "value":
            raise self.refused(value, f"{word} must be a text")
        return value.text.strip() if word == "instructions" else value.text

    def names(self, node: YamlNode, word: str) -> tuple[WrittenName, ...]:
        value = node.get(word)
        if value is None or (value.value is None and value.kind == "value"):
            return ()
        entries = value.entries if value.kind == "list" else [value]
        if value.kind == "mapping" or any(
            each.kind != "value" or not each.text for each in entries
        ):
            raise self.refused(value, f"{word} must be a list of texts")
        return tuple(WrittenName(each.text, self.place(each.line)) for each in entries)

    def ordered(self, part: PartSpec, parts: Sequence[PartSpec]) -> PartSpec:
        """The part with the ids of the parts that it waits for, which may be written as names."""
        ids = {each.id for each in parts}
        by_name = Counter(each.name for each in parts)
        named = {each.name: each.id for each in parts if by_name[each.name] == 1}
        after: list[WrittenName] = []
        for each in part.after:
            known = each.text if each.text in ids else named.get(each.text)
            if known is None:
                close = get_close_matches(each.text, [*ids, *named], 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                several = "several parts are called" if each.text in by_name else "there is no part"
                raise PlanInvalid(f"{each.place}{several} {quoted(each.text)}{hint}")
            after.append(WrittenName(known, each.place))
        return replace(part, after=tuple(after))


def _check_circle(parts: Sequence[PartSpec]) -> None:
    needs = {part.id: [each.text for each in part.after] for part in parts}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = error.args[1]
        place = next(
            each.place
            for part in parts
            if part.id in circle
            for each in part.after
            if each.text in circle
        )
        raise PlanInvalid(
            f"{place}parts wait for each other in a circle: {' -> '.join(circle)}"
        ) from None


def id_of(name: str) -> str:
    """The id of a part that has only a name."""
    digest = hashlib.sha256(f"part\0{name}".encode(errors="surrogatepass")).hexdigest()[:12]
    words = _NOT_IN_ID.sub("-", name.lower()).strip("-")
    return f"{words[:_MAX_ID_WORDS].strip('-') or 'part'}-{digest}"


def also_at(place: str) -> str:
    """The end of a sentence: where it is written for the first time."""
    return f"; it is at {place.rstrip(': ')} too" if place else ""
