"""The names that a Python file defines and imports, and which of its imports do not resolve.

In doubt it reports nothing: names that may be made at run time (`import *` of another package,
`__getattr__`, `globals()`) count as defined, and an import whose failure is caught is not reported.
"""

import ast
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from abreast.jobs.plan.decompose.import_scanner import Statement
from abreast.jobs.plan.decompose.languages.python_modules import Modules

_IMPORT_ERRORS: Final = frozenset(
    {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
)
_MODULE_ATTRIBUTES: Final = frozenset(
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
    """A Python file: its syntax error, its imports that must succeed, and its names."""

    fault: str | None = None
    imports: tuple[Statement, ...] = ()
    names: frozenset[str] = frozenset()
    stars: tuple[Statement, ...] = ()
    listed: frozenset[str] | None = None
    """The names in `__all__`, if that is a plain list."""
    open: bool = False
    """Whether it may have names that its syntax does not show."""


def read_module(content: bytes) -> Module:
    """Parse and compile a file, without running it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as one for an invalid escape
            tree = ast.parse(content)
            compile(tree, "<merged>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return Module(fault=error.msg, open=True)
    except (ValueError, RecursionError, MemoryError) as error:
        return Module(fault=str(error) or type(error).__name__, open=True)
    walker = _StatementWalker()
    walker.body(tree.body, guarded=False, top=True)
    dynamic = b"globals()" in content or b"vars()" in content or b"sys.modules" in content
    return Module(
        None,
        tuple(walker.imports),
        frozenset(walker.names),
        tuple(walker.stars),
        walker.listed,
        open=dynamic or "__getattr__" in walker.names,
    )


@dataclass(slots=True)
class _StatementWalker:
    """Collects the names at the top of a module, and the imports anywhere in it."""

    imports: list[Statement] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    stars: list[Statement] = field(default_factory=list)
    listed: frozenset[str] | None = None

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
        for block in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
            self.body(block.body, guarded=guarded, top=top)
        for name in ("orelse", "finalbody"):
            self.body(getattr(node, name, []), guarded=guarded, top=top)

    def _import(self, node: ast.Import | ast.ImportFrom, *, guarded: bool, top: bool) -> None:
        statement = Statement.of(node)
        if not guarded:
            self.imports.append(statement)
        if top and statement.is_star:
            self.stars.append(statement)
        elif top:
            self.names.update(bound for bound, _ in statement.bindings())

    def _bind(self, node: ast.stmt) -> None:
        """Add the names that a statement binds, in its targets or by `:=`.

        Statements within it are visited separately.
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
        kind is None or (isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS) for kind in kinds
    )


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """The names that can be imported from each module of one tree."""

    modules: Modules
    read: Callable[[str], Module]
    """Returns the module of a path."""
    _names: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def unresolved(self, path: str, module: Module) -> Iterator[str]:
        """The faults of a file's imports, as phrases."""
        for each in module.imports:
            for one in self.modules.imported_names(path, each):
                if one.file is None and not one.folder:
                    yield f"imports {one.module}, which is not there"
                elif one.name is not None and not self._has(one.file, one.name):
                    yield f"imports {one.name} from {one.module}, which doesn't have it"

    def _has(self, file: str | None, name: str) -> bool:
        if file is None:
            return False  # a namespace package has only modules
        names = self.names(file)
        return names is None or name in names or name in _MODULE_ATTRIBUTES

    def names(self, file: str) -> frozenset[str] | None:
        """The names of a module, with those it has by `import *`; None if they are not known."""
        if file not in self._names:
            # Not known while it is read, for a module that imports itself in a cycle.
            self._names[file] = None
            self._names[file] = self._find_names(file)
        return self._names[file]

    def _find_names(self, file: str) -> frozenset[str] | None:
        if not file.endswith(".py"):
            return None
        module = self.read(file)
        if module.open:
            return None
        names = set(module.names)
        for star in module.stars:
            found = [
                self._public_names(one.file) for one in self.modules.imported_names(file, star)
            ]
            if not found or None in found:
                return None  # from another package, or not known
            names.update(*filter(None, found))
        return frozenset(names)

    def _public_names(self, file: str | None) -> frozenset[str] | None:
        names = None if file is None else self.names(file)
        if file is None or names is None:
            return None
        listed = self.read(file).listed
        return (
            listed
            if listed is not None
            else frozenset(name for name in names if not name.startswith("_"))
        )
