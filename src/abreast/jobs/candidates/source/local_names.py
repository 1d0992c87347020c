"""Local variables under numbers instead of names: those alone that nothing outside of their function can tell apart."""

from __future__ import annotations

import ast
import symtable
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from abreast.jobs.candidates.source.bound_variables import BoundVariables, Comprehension, targets

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)


Tables: TypeAlias = dict[tuple[str, int], list[symtable.SymbolTable]]


def _tables(source: str) -> Tables:
    """The scopes of a source by name and line.

    Those of one line that share a name have to agree.
    """
    found: Tables = defaultdict(list)
    waiting = [symtable.symtable(source, "<candidate>", "exec")]
    while waiting:
        table = waiting.pop()
        found[table.get_name(), table.get_lineno()].append(table)
        waiting += table.get_children()
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
    """Number, in the tree of a source, the local variables that nobody else can see."""
    tables = _tables(source)
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            _Locals(node, tables[node.name, node.lineno]).rename()
    # What stands outside of functions, and in lambdas, has comprehensions too.
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.Module | ast.Lambda):
            _Locals(node, []).rename()


class _Locals:
    """The variables of one function, or of the comprehensions in one scope that is none."""

    def __init__(
        self,
        scope: Function | ast.ClassDef | ast.Module | ast.Lambda,
        tables: Sequence[symtable.SymbolTable],
    ) -> None:
        self._scope = scope
        self._tables = tables
        self._body: list[ast.AST] = (
            [scope.body] if isinstance(scope, ast.Lambda) else list(scope.body)
        )
        self._kept = _kept(self._body)
        self._numbers: dict[str, str] = {}
        self._count = 0

    def rename(self) -> None:
        risky = BoundVariables().risky(self._body)
        names = [
            node.id
            for node in _own(self._body)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        for name in dict.fromkeys(names):
            if (
                name not in self._kept | risky
                and not name.startswith("__")
                and _is_local(self._tables, name)
            ):
                self._numbers[name] = self._next()
        for node in self._body:
            self._apply(node, self._numbers)

    def _next(self) -> str:
        # No identifier can have a dot: nothing else in the source is called so.
        self._count += 1
        return f"local.{self._count}"

    def _apply(self, node: ast.AST, numbers: dict[str, str]) -> None:
        """Rename in a node and all of its scope.

        Comprehensions within have variables of their own besides.
        """
        waiting = [(node, numbers)]
        while waiting:
            node, numbers = waiting.pop()
            if isinstance(node, ast.Name):
                node.id = numbers.get(node.id, node.id)
            elif isinstance(node, _COMPREHENSIONS):
                inner = self._inner(node, numbers)
                first = node.generators[0].iter
                waiting += [(one, numbers if one is first else inner) for one in _parts(node)]
            else:
                waiting += [(one, numbers) for one in _of_this_scope(node)]

    def _inner(self, node: Comprehension, numbers: dict[str, str]) -> dict[str, str]:
        """The names that hold inside of a comprehension."""
        bound = list(dict.fromkeys(targets(node)))
        risky = BoundVariables().risky_in(node)
        free = {
            name: self._next()
            for name in bound
            if name not in self._kept | risky and not name.startswith("__")
        }
        return {**{name: new for name, new in numbers.items() if name not in bound}, **free}


def _parts(node: Comprehension) -> Iterator[ast.AST]:
    for one in node.generators:
        yield from (one.iter, one.target, *one.ifs)
    yield from (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)


def _of_this_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The children that are of the same scope: of an inner function, what is reckoned outside of it."""
    if isinstance(node, ast.Lambda):
        yield node.args
    elif isinstance(node, _FUNCTIONS):
        yield from (*node.decorator_list, node.args, *([node.returns] if node.returns else []))
    elif isinstance(node, ast.ClassDef):
        yield from (*node.decorator_list, *node.bases, *node.keywords)
    else:
        yield from ast.iter_child_nodes(node)


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node of a scope, in the order of the source.

    Not of inner functions, classes and comprehensions.
    """
    for node in body:
        yield node
        if isinstance(node, _COMPREHENSIONS):
            yield from _own([node.generators[0].iter])
        else:
            yield from _own(_of_this_scope(node))


def _kept(body: Iterable[ast.AST]) -> frozenset[str]:
    """Names that must stay: seen by inner scopes, declared, or bound in a way that shows the name."""
    kept: set[str] = set()
    for node in (one for part in body for one in ast.walk(part)):
        if isinstance(node, _SCOPES):
            inner = node.body if isinstance(node.body, list) else [node.body]
            kept |= {
                one.id for part in inner for one in ast.walk(part) if isinstance(one, ast.Name)
            }
        if isinstance(node, ast.Global | ast.Nonlocal):
            kept |= {*node.names}
        elif isinstance(node, ast.NamedExpr | ast.Delete):
            kept |= {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
            }
        else:
            kept |= _shown_names(node)
    return frozenset(kept)


def _shown_names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if type(node).__name__ == "TypeAlias":  # from Python 3.12 on
        return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return {node.name} if node.name else set()
    return {node.rest} if isinstance(node, ast.MatchMapping) and node.rest else set()
