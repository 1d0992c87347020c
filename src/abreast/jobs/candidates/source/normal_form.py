"""The normal form of a source: two sources with the same normal form behave in the same way.

It leaves out comments, layout and docstrings, and numbers local variables in the order in which
they are bound. It is sound, not complete: everything that could make a difference stays. Only plain
variables of functions, and of comprehensions, that nothing but their own function can see are
renamed: never a global, attribute, class or function, an import, a parameter (a caller may pass it
by name), a variable that an inner function, lambda or class names too, or one declared `global` or
`nonlocal`. Nor a variable that may be read before it is bound, since the error message would have
its name. `symtable` decides what is local. Source that inspects itself (`locals`, `eval`, frames,
code objects, `inspect`, an attribute whose name is computed) is its own normal form, character for
character.
"""

import ast
from dataclasses import dataclass
from typing import Literal, TypeAlias

from abreast.jobs.candidates.source.local_names import rename_locals

# With these a program can read its own source, or the names of its variables.
_INTROSPECTION_NAMES = frozenset(
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


def normal_form(source: str) -> str:
    """Return the normal form of a source. Raises `SyntaxError`.

    >>> normal_form("[x for x in range(3)]  # three") == normal_form("[y for y in range(3)]")
    True
    >>> normal_form("def f(a): return a") == normal_form("def f(b): return b")
    False
    """
    try:
        tree = ast.parse(source)
        if not _inspects_itself(tree):
            _remove_docstrings(tree)
            rename_locals(tree, source)
            return ast.dump(tree)
    except (RecursionError, MemoryError):  # nested too deeply for the parser
        pass
    except ValueError as error:  # null bytes
        raise SyntaxError(str(error)) from None
    return f"as it is:\n{source}"


# --- duplicates


Kind: TypeAlias = Literal["new", "original", "duplicate"]


@dataclass(frozen=True, slots=True)
class DuplicateStatus:
    """Whether a candidate is new, the original itself, or a duplicate `of` an earlier one."""

    kind: Kind
    of: str | None = None


class DuplicateFinder:
    """The candidates so far, by normal form.

    A duplicate takes the result of the earlier candidate; of both, the shorter source is kept.
    """

    def __init__(self, original: str) -> None:
        self._original = _form_or_text(original)
        self._names: dict[str, str] = {}
        self._sources: dict[str, str] = {}

    def enter(self, name: str, source: str) -> DuplicateStatus:
        """Add a candidate. Raises `ValueError` if there is one of that name."""
        if name in self._sources:
            raise ValueError(f"there is a candidate {name!r} already")
        form = _form_or_text(source)
        self._sources[name] = source
        if form == self._original:
            return DuplicateStatus("original")
        first = self._names.setdefault(form, name)
        if first == name:
            return DuplicateStatus("new")
        self._sources[first] = min(self._sources[first], source, key=len)
        return DuplicateStatus("duplicate", first)

    def source_of(self, name: str) -> str:
        """Return the shortest source among those with the same normal form."""
        return self._sources[name]


def _form_or_text(source: str) -> str:
    try:
        return normal_form(source)
    except SyntaxError:
        return f"no Python:\n{source}"


# --- introspection and docstrings


def _inspects_itself(tree: ast.Module) -> bool:
    nodes = list(ast.walk(tree))
    safe_calls = [
        node.func for node in nodes if isinstance(node, ast.Call) and _has_constant_attribute(node)
    ]
    return any(
        (isinstance(node, ast.Name) and node.id in _INTROSPECTION_NAMES)
        or (isinstance(node, ast.Attribute) and node.attr in _INTROSPECTION_NAMES)
        or (isinstance(node, ast.Import | ast.ImportFrom) and _imports_introspection(node))
        or (isinstance(node, ast.Name) and node.id == "getattr" and node not in safe_calls)
        for node in nodes
    )


def _has_constant_attribute(node: ast.Call) -> bool:
    """Whether a call has a constant attribute name, which is no name for introspection."""
    wanted = node.args[1] if len(node.args) > 1 else None
    return (
        isinstance(wanted, ast.Constant)
        and type(wanted.value) is str
        and wanted.value not in _INTROSPECTION_NAMES
    )


def _imports_introspection(node: ast.Import | ast.ImportFrom) -> bool:
    module = node.module if isinstance(node, ast.ImportFrom) else None
    names = [module or "", *(alias.name for alias in node.names)]
    return not (_INTROSPECTION_NAMES | {"*"}).isdisjoint(".".join(names).split("."))


def _remove_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body[:1] = [] if node.body[1:] else [ast.Pass()]
