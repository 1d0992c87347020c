"""When two sources are the same code: a normal form that is equal only if they behave alike.

It leaves out comments, layout and docstrings, and numbers local variables in the order in which they are bound. It is
sound, not complete: whatever could make a difference stays. Renamed are only plain variables of functions, and of
comprehensions, that nothing but their own function can see: never a global, attribute, class or function, an import, a
parameter (someone may pass it by name), a variable that an inner function, lambda or class names too, or one declared
`global` or `nonlocal`. Nor a variable that may be read before it is bound, since the error would say its name.
`symtable` has the last word on what is local. Source that looks at itself (`locals`, `eval`, frames, code objects,
`inspect`, an attribute whose name is computed) is its own normal form, character for character.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from abreast.jobs.candidates.source.local_names import rename_locals

# With these a program can see how it is written, or how its variables are called.
_MIRRORS = frozenset(
    {
        *(
            "locals",
            "vars",
            "dir",
            "eval",
            "exec",
            "compile",
            "globals",
            "breakpoint",
            "__import__",
            "import_module",
        ),
        *(
            "inspect",
            "traceback",
            "linecache",
            "dis",
            "pdb",
            "warnings",
            "tracemalloc",
            "logging",
            "gc",
            "ctypes",
        ),
        *(
            "__builtins__",
            "builtins",
            "importlib",
            "operator",
            "__dict__",
            "__getattribute__",
            "__loader__",
            "__spec__",
        ),
        *(
            "_getframe",
            "_current_frames",
            "settrace",
            "setprofile",
            "exc_info",
            "tb_frame",
            "tb_lineno",
            "__file__",
        ),
        *(
            "__traceback__",
            "f_locals",
            "f_lineno",
            "f_back",
            "gi_frame",
            "cr_frame",
            "ag_frame",
            "__code__",
            "__closure__",
        ),
        *(
            "modules",
            "stack",
            "currentframe",
            "getsource",
            "attrgetter",
            "methodcaller",
            "setattr",
            "delattr",
            "__doc__",
            "__annotations__",
            "get_type_hints",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Normal:
    """The normal form of a source, and its docstrings, which are kept apart: they are no behaviour."""

    code: str
    docstrings: tuple[str, ...]


def normal_form(source: str) -> str:
    """The normal form of a source. Raises `SyntaxError` if it is none.

    >>> normal_form("[x for x in range(3)]  # three") == normal_form("[y for y in range(3)]")
    True
    >>> normal_form("def f(a): return a") == normal_form("def f(b): return b")
    False
    """
    return normalise(source).code


def normalise(source: str) -> Normal:
    """The normal form of a source, and its docstrings. Raises `SyntaxError`."""
    try:
        tree = ast.parse(source)
        if _looks_at_itself(tree):
            return Normal(f"as it is:\n{source}", ())
        docstrings = tuple(_without_docstrings(tree))
        rename_locals(tree, source)
        return Normal(ast.dump(tree), docstrings)
    except (RecursionError, MemoryError):  # nested deeper than the parser goes
        return Normal(f"as it is:\n{source}", ())
    except ValueError as error:  # null bytes
        raise SyntaxError(str(error)) from None


def same_code(one: str, other: str) -> bool:
    """Whether two sources are the same code; what is no Python is the same only as itself."""
    if one == other:
        return True
    try:
        return normal_form(one) == normal_form(other)
    except SyntaxError:
        return False


# --- duplicates


Kind: TypeAlias = Literal["new", "original", "duplicate"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a candidate is beside those before it: new, the original itself, or a duplicate `of` an earlier one."""

    kind: Kind
    of: str | None = None


class Register:
    """The candidates so far.

    A duplicate takes the result of the earlier one, which keeps the shorter source.
    """

    def __init__(self, original: str) -> None:
        """No candidate yet."""
        self._original = _form(original)
        self._names: dict[str, str] = {}
        self._sources: dict[str, str] = {}

    def enter(self, name: str, source: str) -> Standing:
        """Where a candidate stands. Raises `ValueError` if there is one of that name."""
        if name in self._sources:
            raise ValueError(f"there is a candidate {name!r} already")
        form = _form(source)
        self._sources[name] = source
        if form == self._original:
            return Standing("original")
        first = self._names.setdefault(form, name)
        if first == name:
            return Standing("new")
        self._sources[first] = min(self._sources[first], source, key=len)
        return Standing("duplicate", first)

    def source_of(self, name: str) -> str:
        """The source to go on with: the shortest of those that are the same code."""
        return self._sources[name]


def _form(source: str) -> str:
    try:
        return normal_form(source)
    except SyntaxError:
        return f"no Python:\n{source}"


# --- what stays out


def _looks_at_itself(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _MIRRORS:
            return True
        if isinstance(node, ast.Attribute) and node.attr in _MIRRORS:
            return True
        if isinstance(node, ast.Import | ast.ImportFrom) and _imports_a_mirror(node):
            return True
    named = [
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _asks_for_a_name(node)
    ]
    return any(
        isinstance(node, ast.Name) and node.id == "getattr" and node not in named
        for node in ast.walk(tree)
    )


def _asks_for_a_name(node: ast.Call) -> bool:
    """Whether a call of `getattr` says which attribute it wants."""
    wanted = node.args[1] if len(node.args) > 1 else None
    return (
        isinstance(wanted, ast.Constant)
        and type(wanted.value) is str
        and wanted.value not in _MIRRORS
    )


def _imports_a_mirror(node: ast.Import | ast.ImportFrom) -> bool:
    named = {part for alias in node.names for part in alias.name.split(".")}
    if isinstance(node, ast.ImportFrom):
        named |= {
            *(node.module or "").split("."),
            *("*" for alias in node.names if alias.name == "*"),
        }
    return bool(named & (_MIRRORS | {"*"}))


def _without_docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                node.body[:1] = [] if node.body[1:] else [ast.Pass()]
                yield text
