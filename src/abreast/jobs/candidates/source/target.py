"""Finds the target function in its file, and puts a candidate's text in its place, in memory.

A candidate is the whole new file, or only the function, with the imports that it needs and with
helpers of new names.
"""

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, TypeAlias

from abreast.core.errors import AbreastError

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS: Final = (*_FUNCTIONS, ast.ClassDef)
_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_CLOSE: Final = re.compile(r"#\s*abreast:\s*close\b")


class TargetInvalid(AbreastError, ValueError):
    """There is no such function; the message says what there is."""

    retryable = False


class CandidateInvalid(AbreastError, ValueError):
    """The text of a candidate can't replace the target; the message says why."""

    retryable = False


@dataclass(frozen=True, slots=True)
class Target:
    """A function or method: its file, relative to the repository, and its dotted name in it."""

    file: str
    qualname: str

    def __str__(self) -> str:
        return f"{self.file}::{self.qualname}"

    @property
    def name(self) -> str:
        """The last part of the dotted name."""
        return self.qualname.rpartition(".")[2]


def parse_target(text: str, root: Path) -> Target:
    """Return the target that `pkg/mod.py::Class.method` names, looked up in `root`.

    Raises `TargetInvalid`.
    """
    file, *parts = text.split("::")
    if not file or not parts or not all(parts):
        raise TargetInvalid(
            f"{text!r} names no function: write FILE.py::FUNCTION, or FILE.py::CLASS.METHOD"
        )
    qualname = ".".join(parts)
    if "<" in qualname:
        raise TargetInvalid(
            f"{text}: a function inside of another one can't be reached: name the outer one"
        )
    root = root.resolve()
    path = (root / file).resolve()
    if not path.is_relative_to(root):
        raise TargetInvalid(f"{file} is outside of {root}")
    if not path.is_file():
        raise TargetInvalid(f"there is no file {file}")
    target = Target(path.relative_to(root).as_posix(), qualname)
    try:
        find_function(read_source(path), target)
    except CandidateInvalid as error:
        raise TargetInvalid(str(error)) from None
    return target


def read_source(path: Path) -> str:
    """Return the text of a Python file, with unchanged line ends.

    Raises `CandidateInvalid` if it is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise CandidateInvalid(f"{path.name} is not in UTF-8") from None


def find_function(text: str, target: Target) -> Function:
    """Return the target in a text of its file. Raises `CandidateInvalid`."""
    return _function(_parse(text, target.file), target)


def asks_for_closeness(text: str, target: Target) -> bool:
    """Whether a comment `# abreast: close` stands in the target, or on the line above it."""
    function = find_function(text, target)
    lines = range(_first_line(function) - 1, (function.end_lineno or function.lineno) + 1)
    return any(
        one.type == tokenize.COMMENT and one.start[0] in lines and _CLOSE.search(one.string)
        for one in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def candidate_text(
    original_text: str, target: Target, candidate_text: str, *, whole: bool = False
) -> str:
    """Return the target's file with the candidate in it, or the candidate if it is a whole file.

    Nothing is written. A candidate that is only the function keeps the original's decorators and
    docstring unless it has its own. If the file has nothing but the function, the candidate is
    treated as the function alone where possible. Its imports are added to those of the file;
    helpers of new names are put before the function, or before its class. With `whole` it is the
    whole file, whatever it looks like, as a patch makes it. Raises `CandidateInvalid`
    if it isn't Python, has no such function, or would change anything else.
    """
    old, new = _parse(original_text, target.file), _parse(candidate_text, "the candidate")
    before = _function(old, target)
    if whole:
        _check_same_kind(before, _function(new, target))
        return candidate_text
    is_whole = _is_whole_file(old, new, target)
    if is_whole:
        _check_same_kind(before, _function(new, target))
        if _bound_names(old.body) != {target.qualname}:
            return candidate_text
    try:
        return _Splice(original_text, old, candidate_text, new, target).text()
    except CandidateInvalid:
        if is_whole:
            return candidate_text
        raise


def _parse(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise CandidateInvalid(f"{name} is not Python: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise CandidateInvalid(
            f"{name} is not Python: {str(error) or 'nested too deeply'}"
        ) from None


def _function(tree: ast.Module, target: Target) -> Function:
    found = _lookup(tree, target.qualname)
    if isinstance(found, ast.ClassDef):
        raise CandidateInvalid(f"{target.qualname} is a class: name one of its methods")
    if found is None:
        names = [name for name, one in _members(tree) if isinstance(one, _FUNCTIONS)]
        suggestions = difflib.get_close_matches(target.qualname, names, 3, 0.4) or names[:5]
        hint = f"; there is {', '.join(suggestions)}" if suggestions else ", and no other function"
        raise CandidateInvalid(f"there is no function {target.qualname} in {target.file}{hint}")
    return found


def _lookup(tree: ast.Module, qualname: str) -> Definition | None:
    found = [
        one
        for name, one in _members(tree)
        if name == qualname
        and "overload" not in {ast.unparse(by).rpartition(".")[2] for by in one.decorator_list}
    ]
    if len(found) > 1:
        lines = ", ".join(str(one.lineno) for one in found)
        raise CandidateInvalid(
            f"{qualname} is defined {len(found)} times, in lines {lines}: "
            "which is meant can't be said"
        )
    return found[0] if found else None


def _members(
    inside: ast.Module | ast.ClassDef, above: str = ""
) -> Iterator[tuple[str, Definition]]:
    """Yield functions and classes with their dotted names; not those inside of functions."""
    for one in _definitions(inside.body):
        yield f"{above}{one.name}", one
        if isinstance(one, ast.ClassDef):
            yield from _members(one, f"{above}{one.name}.")


def _definitions(nodes: Iterable[ast.AST]) -> Iterator[Definition]:
    """Yield definitions among statements, and inside of their ifs, withs, loops and tries."""
    for one in nodes:
        if isinstance(one, _DEFINITIONS):
            yield one
        else:
            yield from _definitions(ast.iter_child_nodes(one))


def _bound_names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements bind, except imports; class members by dotted name."""
    found: set[str] = set()
    for one in body:
        if isinstance(one, _DEFINITIONS):
            found.add(one.name)
            if isinstance(one, ast.ClassDef):
                found |= {f"{one.name}.{name}" for name in _bound_names(one.body)}
        elif not isinstance(one, _IMPORTS):
            found |= {
                node.id
                for node in ast.walk(one)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            found |= {inner.name for inner in _definitions([one])}
    return found


def _import_table(tree: ast.Module) -> dict[str, tuple[str, int, str, str | None]]:
    found: dict[str, tuple[str, int, str, str | None]] = {}
    for one in tree.body:
        if isinstance(one, _IMPORTS):
            module, level = (
                (one.module or "", one.level) if isinstance(one, ast.ImportFrom) else ("", -1)
            )
            for alias in one.names:
                bound = alias.asname or (alias.name.partition(".")[0] if level < 0 else alias.name)
                # Several `import a.b` bind the same `a`; each of them is kept.
                key = bound if bound not in found or level >= 0 else f"{bound} by {alias.name}"
                found[key] = (module, level, alias.name, alias.asname)
    return found


def _is_whole_file(old: ast.Module, new: ast.Module, target: Target) -> bool:
    """Whether a candidate has all names of the original and needs none of its imports."""
    bound = _bound_names(new.body)
    used = {node.id for node in ast.walk(new) if isinstance(node, ast.Name)}
    return (
        _bound_names(old.body) <= bound
        and _lookup(new, target.qualname) is not None
        and not (used & _import_table(old).keys()) - _import_table(new).keys() - bound
    )


def _check_same_kind(before: Function, after: Function) -> None:
    if type(before) is not type(after):
        kinds = (
            ("async", "plain") if isinstance(before, ast.AsyncFunctionDef) else ("plain", "async")
        )
        raise CandidateInvalid(f"{before.name} is {kinds[0]}, and the candidate's is {kinds[1]}")


class _Splice:
    """Puts a function of one text into another, with the helpers and imports it needs."""

    def __init__(
        self, text: str, old: ast.Module, new_text: str, new: ast.Module, target: Target
    ) -> None:
        """Raises `CandidateInvalid` if the candidate has more than the function and its helpers."""
        self._old, self._new, self._target = old, new, target
        self._lines, self._new_lines = _lines(text), _lines(new_text)
        self._newline = "\r\n" if self._lines and self._lines[0].endswith("\r\n") else "\n"
        self._docstring_offset = 0
        self._before = _function(old, target)
        self._expected, self._class_helpers, self._top_helpers = self._parts()
        _check_same_kind(self._before, self._expected)
        self._has_decorators = bool(self._expected.decorator_list)
        if not self._has_decorators:
            self._expected.decorator_list = self._before.decorator_list
        self._docstring = self._inherited_docstring()

    def _parts(self) -> tuple[Function, list[ast.stmt], list[ast.stmt]]:
        """Return the function, its helpers in the same class, and its top-level helpers."""
        *path, name = self._target.qualname.split(".")
        function: ast.AST | None = _lookup(self._new, self._target.qualname) if path else None
        if function is None:  # the candidate has the method without its class
            found = [
                one for one in self._new.body if isinstance(one, _FUNCTIONS) and one.name == name
            ]
            function, path = (found[-1] if found else None), []
        if not isinstance(function, _FUNCTIONS):
            raise CandidateInvalid(f"the candidate has no function {name}")
        classes = [_lookup(self._new, ".".join(path[: at + 1])) for at in range(len(path))]
        levels = [self._new.body, *(one.body for one in classes if isinstance(one, ast.ClassDef))]
        helpers = [
            self._helpers([one for one in body if one is not inner], ".".join(path[:at]))
            for at, (body, inner) in enumerate(zip(levels, [*classes, function], strict=True))
        ]
        if any(helpers[1:-1]):
            raise CandidateInvalid(f"the candidate adds to {path[0]} too: give the whole file")
        return function, helpers[-1] if path else [], helpers[0]

    def _helpers(self, body: Sequence[ast.stmt], above: str) -> list[ast.stmt]:
        """Return the new statements; unchanged ones are left out, changed ones are refused."""
        place = _lookup(self._old, above) if above else self._old
        existing = place.body if isinstance(place, ast.ClassDef | ast.Module) else []
        same = {ast.dump(one) for one in existing}
        existing_names = _bound_names(existing) | (
            _import_table(self._old).keys() if not above else set()
        )
        kept: list[ast.stmt] = []
        for one in body:
            if (
                (isinstance(one, _IMPORTS) and not above)
                or ast.dump(one) in same
                or _has_no_effect(one)
            ):
                continue
            names = _bound_names([one])
            if not names or isinstance(one, ast.Expr):
                raise CandidateInvalid(
                    f"line {one.lineno} of the candidate is neither the function nor its helper: "
                    "give the whole file"
                )
            if changed := sorted(names & existing_names):
                raise CandidateInvalid(
                    f"the candidate changes {', '.join(changed)} too: give the whole file"
                )
            kept.append(one)
        return kept

    def _inherited_docstring(self) -> list[str]:
        """Return the lines of the original's docstring, if the candidate has none.

        Empty if a body starts on the line of its `def`, or is indented differently.
        """
        first, after = self._before.body[0], self._expected.body[0]
        indent = after.col_offset - self._expected.col_offset
        if (
            len(self._before.body) == 1
            or ast.get_docstring(self._before, clean=False) is None
            or ast.get_docstring(self._expected, clean=False) is not None
            or _first_line(after) <= self._expected.lineno
            or first.lineno <= self._before.lineno
            or indent != first.col_offset - self._before.col_offset
        ):
            return []
        self._docstring_offset = _first_line(after) - self._expected.lineno
        self._expected.body.insert(0, first)
        return self._lines[first.lineno - 1 : first.end_lineno]

    def text(self) -> str:
        """Return the file with function, helpers and imports in place."""
        lines = list(self._lines)
        start, end = _first_line(self._before), self._before.end_lineno or self._before.lineno
        function = self._reindented(self._expected, self._before, own=self._has_decorators)
        above = self._expected.lineno - _first_line(self._expected) if self._has_decorators else 0
        function[above + self._docstring_offset : above + self._docstring_offset] = self._docstring
        if not self._has_decorators:
            function = lines[start - 1 : self._before.lineno - 1] + function
        class_helper_lines = [
            line
            for one in self._class_helpers
            for line in [*self._reindented(one, self._before), self._newline]
        ]
        lines[start - 1 : end] = [*class_helper_lines, *function]
        top = next(
            one
            for one in self._old.body
            if _first_line(one) <= start <= (one.end_lineno or one.lineno)
        )
        helpers = [
            line
            for one in self._top_helpers
            for line in [*self._reindented(one, top), self._newline, self._newline]
        ]
        lines[_first_line(top) - 1 : _first_line(top) - 1] = helpers
        self._add_imports(lines)
        tree = _parse("".join(lines), "the candidate, spliced in,")
        if ast.dump(_function(tree, self._target)) != ast.dump(self._expected):
            raise CandidateInvalid(
                "the function can't be put into the file as it is written: give the whole file"
            )
        return "".join(lines)

    def _reindented(self, one: ast.stmt, like: ast.stmt, *, own: bool = True) -> list[str]:
        """Return the lines of a statement of the candidate, indented like `like`.

        Lines inside of strings are not changed.
        """
        start = _first_line(one) if own else one.lineno
        inside = _inside_strings(one)
        new_indent = self._lines[like.lineno - 1][: like.col_offset]
        old_indent = self._new_lines[one.lineno - 1][: one.col_offset]
        found: list[str] = []
        for number in range(start, (one.end_lineno or one.lineno) + 1):
            line = self._new_lines[number - 1]
            if number not in inside:
                bare = (
                    line.removeprefix(old_indent)
                    if line.startswith(old_indent)
                    else line.lstrip(" \t")
                )
                line = (new_indent if bare.strip() else "") + bare.rstrip("\r\n") + self._newline
            found.append(line)
        if not found[-1].endswith(("\n", "\r")):
            found[-1] += self._newline
        return found

    def _add_imports(self, lines: list[str]) -> None:
        """Add the new imports to `lines`, whose lines above the target are unchanged so far."""
        old = _import_table(self._old)
        bound = _bound_names(self._old.body)
        found: tuple[list[str], list[str]] = ([], [])  # of __future__, and others
        for key, (module, level, name, other) in _import_table(self._new).items():
            name_bound = key.partition(" ")[0]
            if (module, level, name, other) in old.values():
                continue
            if (name_bound in old and level >= 0) or name_bound in bound:
                raise CandidateInvalid(
                    f"the candidate imports another {name_bound} than the file has: "
                    "give the whole file"
                )
            what = f"{name} as {other}" if other else name
            line = f"import {what}" if level < 0 else f"from {'.' * level}{module} import {what}"
            found[module != "__future__"].append(line + self._newline)
        body = list(self._old.body)
        first = _first_line(body[0])
        if isinstance(body[0], ast.Expr) and _has_no_effect(body[0]):
            docstring = body.pop(0)
            first = (docstring.end_lineno or docstring.lineno) + 1
        last = first
        for one in takewhile(lambda one: isinstance(one, _IMPORTS), body):
            last = (one.end_lineno or one.lineno) + 1
        lines[last - 1 : last - 1] = found[1]
        lines[first - 1 : first - 1] = found[0]


def _has_no_effect(one: ast.stmt) -> bool:
    return isinstance(one, ast.Pass) or (
        isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    )


def _first_line(one: ast.stmt) -> int:
    decorators = one.decorator_list if isinstance(one, _DEFINITIONS) else []
    return min([one.lineno, *(decorator.lineno for decorator in decorators)])


def _inside_strings(one: ast.stmt) -> set[int]:
    return {
        number
        for node in ast.walk(one)
        if isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for number in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }


def _lines(text: str) -> list[str]:
    """Split a text into lines as Python does: a form feed ends no line."""
    return io.StringIO(text, newline="").readlines()
