"""What a Python file defines and imports, read from its syntax, and which of its imports lead nowhere.

It errs on the side of silence: names that are made at run time (`import *` of what isn't here, `__getattr__`,
`globals()`) are taken to be there, and an import whose failure is caught is nobody's fault.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from abreast.jobs.plan.decompose.imports import Modules

_CAUGHT: Final = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_OF_EVERY_MODULE: Final = frozenset(
    {
        "__name__",
        "__file__",
        "__doc__",
        "__path__",
        "__spec__",
        "__package__",
        "__dict__",
        "__loader__",
        "__builtins__",
        "__cached__",
    }
)


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file: why it doesn't compile, its imports that must succeed, and the names it has."""

    fault: str | None = None
    imports: tuple[ast.Import | ast.ImportFrom, ...] = ()
    names: frozenset[str] = frozenset()
    stars: tuple[ast.ImportFrom, ...] = ()
    listed: frozenset[str] | None = None
    """What `__all__` has, where that is a plain list."""
    open: bool = False
    """Whether it may have names that can't be seen."""


def read_module(content: bytes) -> Module:
    """Parse and compile a file; nothing is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is the author's business
            tree = ast.parse(content)
            compile(tree, "<merged>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return Module(fault=error.msg, open=True)
    except (ValueError, RecursionError, MemoryError) as error:
        return Module(fault=str(error) or type(error).__name__, open=True)
    walk = _Walk()
    walk.body(tree.body, guarded=False, top=True)
    seen = b"globals()" in content or b"vars()" in content or b"sys.modules" in content
    return Module(
        None,
        tuple(walk.imports),
        frozenset(walk.names),
        tuple(walk.stars),
        walk.listed,
        open=seen or "__getattr__" in walk.names,
    )


class _Walk:
    """Goes through a module's statements: names count at its top, imports everywhere."""

    def __init__(self) -> None:
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.names: set[str] = set()
        self.stars: list[ast.ImportFrom] = []
        self.listed: frozenset[str] | None = None

    def body(self, statements: Sequence[ast.stmt], *, guarded: bool, top: bool) -> None:
        for each in statements:
            self._statement(each, guarded=guarded, top=top)

    def _statement(self, node: ast.stmt, *, guarded: bool, top: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, guarded=guarded, top=top)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if top:
                self.names.add(node.name)
            self.body(node.body, guarded=guarded, top=False)
        elif isinstance(node, ast.Global):
            self.names.update(node.names)
        else:
            if top:
                self._bind(node)
            self._inner(node, guarded=guarded, top=top)

    def _inner(self, node: ast.stmt, *, guarded: bool, top: bool) -> None:
        caught = isinstance(node, ast.Try | ast.TryStar) and any(map(_catches, node.handlers))
        self.body(getattr(node, "body", []), guarded=guarded or caught, top=top)
        for handler in getattr(node, "handlers", []):
            self.body(handler.body, guarded=guarded, top=top)
        for case in getattr(node, "cases", []):
            self.body(case.body, guarded=guarded, top=top)
        for name in ("orelse", "finalbody"):
            self.body(getattr(node, name, []), guarded=guarded, top=top)

    def _import(self, node: ast.Import | ast.ImportFrom, *, guarded: bool, top: bool) -> None:
        if not guarded:
            self.imports.append(node)
        if top:
            for alias in node.names:
                if alias.name == "*" and isinstance(node, ast.ImportFrom):
                    self.stars.append(node)
                else:
                    self.names.add(alias.asname or alias.name.partition(".")[0])

    def _bind(self, node: ast.stmt) -> None:
        """Names that a statement gives, in its targets or by `:=`.

        Those of statements within it come by themselves.
        """
        waiting: list[ast.AST] = [node]
        while waiting:
            one = waiting.pop()
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                self.names.add(one.id)
            elif isinstance(one, ast.MatchAs | ast.MatchStar) and one.name:
                self.names.add(one.name)
            waiting += [
                child for child in ast.iter_child_nodes(one) if not isinstance(child, ast.stmt)
            ]
        if isinstance(node, ast.Assign) and any(
            isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets
        ):
            self.listed = _texts(node.value)


def _texts(node: ast.expr) -> frozenset[str] | None:
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    found = [
        one.value
        for one in node.elts
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    return frozenset(found) if len(found) == len(node.elts) else None


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in _CAUGHT) for kind in kinds
    )


class ModuleFacts:
    """What can be imported from where, in one tree."""

    def __init__(self, modules: Modules, read: Callable[[str], Module]) -> None:
        """`read` gives the module of a path."""
        self._modules = modules
        self._read = read
        self._names: dict[str, frozenset[str] | None] = {}

    def unresolved(self, path: str, module: Module) -> Iterator[str]:
        """What is wrong with the imports of a file, in words."""
        for each in module.imports:
            for wanted in self._modules.wanted(path, each):
                if wanted.file is None and not wanted.folder:
                    yield f"imports {wanted.module}, which is not there"
                elif wanted.name is not None and not self._has(wanted.file, wanted.name):
                    yield f"imports {wanted.name} from {wanted.module}, which doesn't have it"

    def _has(self, file: str | None, name: str) -> bool:
        if file is None:
            return False  # a namespace package has only modules
        names = self.names(file)
        return names is None or name in names or name in _OF_EVERY_MODULE

    def names(self, file: str) -> frozenset[str] | None:
        """The names of a module, with those it has by `import *`; None if nobody can say."""
        if file not in self._names:
            self._names[file] = (
                None  # what imports itself in a circle isn't known while it is looked at
            )
            self._names[file] = self._find(file)
        return self._names[file]

    def _find(self, file: str) -> frozenset[str] | None:
        if not file.endswith(".py"):
            return None
        module = self._read(file)
        if module.open:
            return None
        names = set(module.names)
        for star in module.stars:
            for wanted in self._modules.wanted(file, star):
                given = self._public(wanted.file)
                if given is None:
                    return None
                names |= given
            if not list(self._modules.wanted(file, star)):
                return None  # of a package that isn't here
        return frozenset(names)

    def _public(self, file: str | None) -> frozenset[str] | None:
        names = None if file is None else self.names(file)
        if file is None or names is None:
            return None
        listed = self._read(file).listed
        return (
            listed
            if listed is not None
            else frozenset(name for name in names if not name.startswith("_"))
        )
