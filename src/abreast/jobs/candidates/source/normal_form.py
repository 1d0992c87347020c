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
import symtable
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from abreast.jobs.candidates.source.changes import CandidateSource, FileChange

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)

Tables: TypeAlias = dict[tuple[str, int], list[symtable.SymbolTable]]
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
        self._original = (_form_or_text(original), *_file_forms(()))
        self._names: dict[tuple[str, ...], str] = {}
        self._sources: dict[str, CandidateSource] = {}

    def enter(self, name: str, source: str, files: Sequence[FileChange] = ()) -> DuplicateStatus:
        """Add a candidate, with the files besides the target's that it changes.

        Raises `ValueError` if there is one of that name.
        """
        if name in self._sources:
            raise ValueError(f"there is a candidate {name!r} already")
        form = (_form_or_text(source), *_file_forms(files))
        self._sources[name] = given = CandidateSource(source, tuple(files))
        if form == self._original:
            return DuplicateStatus("original")
        first = self._names.setdefault(form, name)
        if first == name:
            return DuplicateStatus("new")
        self._sources[first] = min(self._sources[first], given, key=_length)
        return DuplicateStatus("duplicate", first)

    def source_of(self, name: str) -> CandidateSource:
        """Return the shortest source among those with the same normal form."""
        return self._sources[name]


def _length(source: CandidateSource) -> int:
    return len(source.text) + sum(len(one.after or "") for one in source.files)


def _file_forms(files: Sequence[FileChange]) -> Iterator[str]:
    """Yield path and normal form of each file whose code changes; documentation has none."""
    for one in sorted(files, key=lambda change: change.path):
        if one.path.endswith(".py"):
            before, after = (
                None if text is None else _form_or_text(text) for text in (one.before, one.after)
            )
            if before != after:
                yield from (one.path, "it is removed" if after is None else after)


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


# --- local variables: their names become numbers, where nothing outside can see the name


def _scope_tables(source: str) -> Tables:
    """Return the scopes of a source by name and line.

    Scopes with the same name on one line are in one list; a name is local only if it is in all.
    """
    found: Tables = defaultdict(list)
    pending = [symtable.symtable(source, "<candidate>", "exec")]
    while pending:
        table = pending.pop()
        found[table.get_name(), table.get_lineno()].append(table)
        pending += table.get_children()
    return found


def _is_local(tables: Sequence[symtable.SymbolTable], name: str) -> bool:
    symbols = [table.lookup(name) for table in tables if name in table.get_identifiers()]
    return bool(symbols) and all(
        one.is_local()
        and one.is_assigned()
        and not (one.is_parameter() or one.is_global() or one.is_free())
        for one in symbols
    )


def rename_locals(tree: ast.Module, source: str) -> None:
    """Replace the names of local variables that nothing else can see by numbers, in the tree."""
    tables = _scope_tables(source)
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            _Locals(node, tables[node.name, node.lineno]).rename()
    # Code outside of functions, and in lambdas, has comprehensions too.
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.Module | ast.Lambda):
            _Locals(node, []).rename()


class _Locals:
    """The variables of one function, or of the comprehensions in a scope that is no function."""

    def __init__(
        self,
        scope: Function | ast.ClassDef | ast.Module | ast.Lambda,
        tables: Sequence[symtable.SymbolTable],
    ) -> None:
        self._scope = scope
        self._scope_tables = tables
        self._body: list[ast.AST] = (
            [scope.body] if isinstance(scope, ast.Lambda) else list(scope.body)
        )
        self._fixed_names = _fixed_names(self._body)
        self._new_names: dict[str, str] = {}
        self._count = 0

    def rename(self) -> None:
        maybe_unbound = BoundVariables().maybe_unbound(self._body)
        names = [
            node.id
            for node in _nodes_of_scope(self._body)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        for name in dict.fromkeys(names):
            if (
                name not in self._fixed_names | maybe_unbound
                and not name.startswith("__")
                and _is_local(self._scope_tables, name)
            ):
                self._new_names[name] = self._next_name()
        for node in self._body:
            self._apply(node, self._new_names)

    def _next_name(self) -> str:
        # No identifier contains a dot, so the new name is unique.
        self._count += 1
        return f"local.{self._count}"

    def _apply(self, node: ast.AST, new_names: dict[str, str]) -> None:
        pending = [(node, new_names)]
        while pending:
            node, new_names = pending.pop()
            if isinstance(node, ast.Name):
                node.id = new_names.get(node.id, node.id)
            elif isinstance(node, _COMPREHENSIONS):
                inner = self._comprehension_names(node, new_names)
                first = node.generators[0].iter
                pending += [
                    (one, new_names if one is first else inner)
                    for one in _comprehension_parts(node)
                ]
            else:
                pending += [(one, new_names) for one in _children_in_scope(node)]

    def _comprehension_names(
        self, node: Comprehension, new_names: dict[str, str]
    ) -> dict[str, str]:
        bound = list(dict.fromkeys(targets(node)))
        maybe_unbound = BoundVariables().maybe_unbound_in(node)
        free = {
            name: self._next_name()
            for name in bound
            if name not in self._fixed_names | maybe_unbound and not name.startswith("__")
        }
        return {**{name: new for name, new in new_names.items() if name not in bound}, **free}


def _comprehension_parts(node: Comprehension) -> Iterator[ast.AST]:
    for one in node.generators:
        yield from (one.iter, one.target, *one.ifs)
    yield from (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)


def _children_in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children in the same scope: of an inner function, those evaluated outside it."""
    if isinstance(node, ast.Lambda):
        yield node.args
    elif isinstance(node, _FUNCTIONS):
        yield from (*node.decorator_list, node.args, *([node.returns] if node.returns else []))
    elif isinstance(node, ast.ClassDef):
        yield from (*node.decorator_list, *node.bases, *node.keywords)
    else:
        yield from ast.iter_child_nodes(node)


def _nodes_of_scope(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in source order, without inner scopes and comprehensions."""
    for node in body:
        yield node
        first = [node.generators[0].iter] if isinstance(node, _COMPREHENSIONS) else None
        yield from _nodes_of_scope(first or _children_in_scope(node))


def _fixed_names(body: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names that must stay: used by inner scopes, declared, or otherwise visible."""
    fixed: set[str] = set()
    for node in (one for part in body for one in ast.walk(part)):
        if isinstance(node, _SCOPES):
            inner = node.body if isinstance(node.body, list) else [node.body]
            fixed |= {
                one.id for part in inner for one in ast.walk(part) if isinstance(one, ast.Name)
            }
        if isinstance(node, ast.Global | ast.Nonlocal):
            fixed |= {*node.names}
        elif isinstance(node, ast.NamedExpr | ast.Delete):
            fixed |= {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
            }
        else:
            fixed |= _visible_names(node)
    return frozenset(fixed)


def _visible_names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if type(node).__name__ == "TypeAlias":  # from Python 3.12 on
        return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return {node.name} if node.name else set()
    return {node.rest} if isinstance(node, ast.MatchMapping) and node.rest else set()


# --- variables that may be read before they are bound: the error message has their name


class BoundVariables:
    """Finds the variables that may be read unbound, by walking the statements in order."""

    def __init__(self) -> None:
        self._maybe_unbound: set[str] = set()

    def maybe_unbound(self, body: Sequence[ast.AST]) -> set[str]:
        """Return the names that some path through a body reads unbound.

        Globals and parameters are among them, which does no harm.
        """
        self._block(body, frozenset())
        return self._maybe_unbound

    def maybe_unbound_in(self, node: Comprehension) -> set[str]:
        """Return the same for the variables of one comprehension."""
        own = frozenset(targets(node))
        bound: frozenset[str] = frozenset()
        for at, one in enumerate(node.generators):
            if at:
                self._maybe_unbound |= {*_names(one.iter, ast.Load)} & own - bound
            bound |= {*_names(one.target, ast.Store)}
        return self._maybe_unbound

    def _block(self, body: Iterable[ast.AST], bound: frozenset[str]) -> frozenset[str]:
        for node in body:
            bound = self._statement(node, bound)
        return bound

    def _read(self, bound: frozenset[str], *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self._maybe_unbound |= {*_names(node, ast.Load)} - bound

    def _statement(self, node: ast.AST, bound: frozenset[str]) -> frozenset[str]:
        """Return the names that are certainly bound after a statement.

        After a loop, `with`, `try` or `match`, only those that were bound before it.
        """
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return self._assignment(node, bound)
        if isinstance(node, ast.For | ast.AsyncFor):
            self._read(bound, node.iter)
            self._block(node.body, self._bind_target(node.target, bound))
            self._block(node.orelse, bound)
        elif isinstance(node, ast.While):
            self._read(bound, node.test)
            self._block(node.body, bound)
            self._block(node.orelse, bound)
        elif isinstance(node, ast.If):
            self._read(bound, node.test)
            return self._block(node.body, bound) & self._block(node.orelse, bound)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with_statement(node, bound)
        elif isinstance(node, ast.Try | ast.TryStar):
            self._block([*node.body, *node.orelse], bound)
            for part in (*(handler.body for handler in node.handlers), node.finalbody):
                self._block(part, bound)
            self._read(bound, *(handler.type for handler in node.handlers))
        elif isinstance(node, ast.Match):
            self._read(bound, node.subject)
            for case in node.cases:
                self._read(bound, case.pattern, case.guard)
                self._block(case.body, bound)
        else:
            self._read(bound, node)
        return bound

    def _assignment(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, bound: frozenset[str]
    ) -> frozenset[str]:
        self._read(bound, node.value)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._maybe_unbound |= {node.target.id} - bound
        if isinstance(node, ast.AnnAssign):
            self._read(bound, node.annotation)
            if node.value is None:
                self._read(bound, node.target)
                return bound
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            bound = self._bind_target(target, bound)
        return bound

    def _bind_target(self, target: ast.AST, bound: frozenset[str]) -> frozenset[str]:
        """Bind a target; `a[i], i = ...` reads `i` before it binds it."""
        self._read(bound, target)
        return bound | {*_names(target, ast.Store)}

    def _with_statement(self, node: ast.With | ast.AsyncWith, bound: frozenset[str]) -> None:
        for item in node.items:
            self._read(bound, item.context_expr)
            if item.optional_vars is not None:
                bound = self._bind_target(item.optional_vars, bound)
        self._block(node.body, bound)


def _names(node: ast.AST, context: type[ast.expr_context]) -> list[str]:
    return [
        one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, context)
    ]


def targets(node: Comprehension) -> list[str]:
    """Return the names that a comprehension binds."""
    return [name for one in node.generators for name in _names(one.target, ast.Store)]
