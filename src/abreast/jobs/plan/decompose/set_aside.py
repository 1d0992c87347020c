"""Leaves out files that no one edits by hand, and files that the user chooses by patterns.

    chosen = choose_files(take_inventory(root), root, include=["vendor/ours/"], exclude=["docs/"])

Left out are vendored files, by the name of a directory above them, and generated ones, by their
name or by what their first lines say; `.gitattributes` decides with `linguist-generated` and
`linguist-vendored`. A file that matches a pattern of `include` is never left out.

Patterns are those of `.gitignore`: `*.js` at any depth, `docs/` a directory with all in it,
`src/*.c` from the root, `**` any number of directories.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from abreast.jobs.plan.decompose.inventory import FileEntry, Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.worktrees.merge.listing import count_in_words

_VENDORED: Final = re.compile(
    r"(?:^|/)(?:_?vendor|vendored|third[_-]?party|node_modules|bower_components|Godeps)/"
)
_GENERATED: Final = re.compile(
    r""".+_pb2(_grpc)?\.pyi? | .+\.pb(\.gw)?\.(go|cc|h|swift) | zz_generated\..+ | .+\.Designer\.cs
    | .+\.min\.(js|css) | .+\.(js|css)\.map | .+\.(g|freezed)\.dart
    | (package-lock|npm-shrinkwrap)\.json | pnpm-lock\.yaml | conda-lock\.yml | bun\.lockb?
    | (yarn|Cargo|poetry|uv|pdm|pixi|Pipfile|Gemfile|composer|flake|mix|pubspec|Podfile)\.lock
    | go(\.work)?\.sum | Package\.resolved | gradle\.lockfile""",
    re.VERBOSE,
)
_ATTRIBUTES: Final = ".gitattributes"
_LINGUIST: Final = re.compile(r"(-|!)?linguist-(generated|vendored)(?:=(\w+))?")
_SEGMENTS: Final = re.compile(
    r"\A\*\*/|/\*\*/|/\*\*\Z|\*+|\?|\[!?\]?[^]]*\]|\\.|[^*?[\\/]+|.", re.DOTALL
)
_WILD: Final = {"**/": "(?:.*/)?", "/**/": "/(?:.*/)?", "/**": "/.*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern of `.gitignore` for paths from the root."""

    text: str
    expression: re.Pattern[str]

    @classmethod
    def read(cls, text: str, *, beneath: str = "") -> "PathPattern":
        """Read a pattern, of paths beneath a directory; raises `PlanInvalid`."""
        body = text.strip().removeprefix("./")
        if not body.strip("/"):
            raise PlanInvalid(f"{text!r} is not a pattern of paths")
        if body.startswith("!"):
            raise PlanInvalid(f"{text!r}: patterns are not negated; use include and exclude")
        anchored = "/" in body.rstrip("/")
        made = "".join(map(_regex, _SEGMENTS.findall(body.strip("/"))))
        end = "/.*" if body.endswith("/") else "(?:/.*)?"
        start = re.escape(f"{beneath}/") if beneath else ""
        try:
            return cls(
                text, re.compile(start + ("" if anchored else "(?:.*/)?") + made + end, re.DOTALL)
            )
        except re.error:
            raise PlanInvalid(f"{text!r} is not a pattern of paths") from None

    def matches(self, path: str) -> bool:
        """Whether it matches a path, or a directory above it."""
        return self.expression.fullmatch(path) is not None


def _regex(token: str) -> str:
    if token in _WILD:
        return _WILD[token]
    if token.startswith("*"):
        return "[^/]*"
    if token.startswith("[") and len(token) > 1:
        inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
        return f"[^/{inner[1:]}]" if inner.startswith(("!", "^")) else f"[{inner}]"
    return re.escape(token.removeprefix("\\"))


def choose_files(
    inventory: Inventory,
    root: Path | None = None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Inventory:
    """The files that are not left out, with notes that count the others.

    `.gitattributes` are read beneath `root`. Raises `PlanInvalid` for what is no pattern.
    """
    kept_in = [PathPattern.read(text) for text in include]
    left_out = [PathPattern.read(text) for text in exclude]
    marks = list(_marks(inventory, root)) if root is not None else []
    unused = {pattern.text for pattern in (*kept_in, *left_out)}
    kept: list[FileEntry] = []
    others: dict[str, list[str]] = {"vendored": [], "generated": [], "excluded": []}
    for file in inventory.files:
        matched = [each for each in (*kept_in, *left_out) if each.matches(file.path)]
        unused -= {pattern.text for pattern in matched}
        kind = "excluded" if matched else _kind(file, marks)
        if kind is None or any(each in kept_in for each in matched):
            kept.append(file)
        else:
            others[kind].append(file.path)
    notes = [*(_note(kind, paths) for kind, paths in others.items() if paths)]
    notes += [f"no file matches the pattern {text}" for text in sorted(unused)]
    return replace(inventory, files=tuple(kept), notes=(*inventory.notes, *notes))


def _note(kind: str, paths: Sequence[str]) -> str:
    if kind == "excluded":
        return count_in_words(len(paths), "file is", "files are", "left out by exclude")
    return count_in_words(
        len(paths),
        f"{kind} file is",
        f"{kind} files are",
        f"left out, such as {paths[0]}; a pattern of include takes them in",
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """A line of `.gitattributes` that says whether files are generated or vendored."""

    pattern: PathPattern
    kind: str
    holds: bool


def _marks(inventory: Inventory, root: Path) -> Iterator[_Mark]:
    """All marks, the strongest last: those of deeper directories, and of later lines."""
    found = [path for path in inventory.paths if path.rpartition("/")[2] == _ATTRIBUTES]
    for path in sorted(found, key=lambda path: path.count("/")):
        try:
            lines = (root / path).read_text("utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            text, *words = line.split() or ["#"]
            for word in filter(None, map(_LINGUIST.fullmatch, () if text[0] in "#[" else words)):
                pattern = PathPattern.read(text, beneath=path.rpartition("/")[0])
                yield _Mark(pattern, word[2], holds=not word[1] and word[3] != "false")


def _kind(file: FileEntry, marks: Sequence[_Mark]) -> str | None:
    """`vendored`, `generated`, or neither."""
    said = {mark.kind: mark.holds for mark in marks if mark.pattern.matches(file.path)}
    if said.get("vendored", _VENDORED.search(file.path) is not None):
        return "vendored"
    name = file.path.rpartition("/")[2]
    by_name = file.generated or _GENERATED.fullmatch(name) is not None
    return "generated" if said.get("generated", by_name) else None
