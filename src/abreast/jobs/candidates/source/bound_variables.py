"""Finds the variables that may be read before they are bound.

Such a variable must keep its name, because the error message has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


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
                self._maybe_unbound |= _reads(one.iter) & own - bound
            bound |= _writes(one.target)
        return self._maybe_unbound

    def _block(self, body: Iterable[ast.AST], bound: frozenset[str]) -> frozenset[str]:
        for node in body:
            bound = self._statement(node, bound)
        return bound

    def _read(self, bound: frozenset[str], *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self._maybe_unbound |= _reads(node) - bound

    def _statement(self, node: ast.AST, bound: frozenset[str]) -> frozenset[str]:
        """Return the names that are certainly bound after a statement.

        After a loop, `with`, `try` or `match`, only those that were bound before it.
        """
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return self._assignment(node, bound)
        if isinstance(node, ast.For | ast.AsyncFor):
            self._read(bound, node.iter)
            inner = self._bind_target(node.target, bound)
            self._block(node.body, inner)
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
        return bound | _writes(target)

    def _with_statement(self, node: ast.With | ast.AsyncWith, bound: frozenset[str]) -> None:
        for item in node.items:
            self._read(bound, item.context_expr)
            if item.optional_vars is not None:
                bound = self._bind_target(item.optional_vars, bound)
        self._block(node.body, bound)


def _reads(node: ast.AST) -> frozenset[str]:
    return frozenset(
        one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    )


def _writes(node: ast.AST) -> frozenset[str]:
    return frozenset(
        one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )


def targets(node: Comprehension) -> Iterator[str]:
    """Yield the names that a comprehension binds."""
    for one in node.generators:
        yield from (
            n.id
            for n in ast.walk(one.target)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )
