"""Looks at a candidate's text before anything of it is run: what it newly reaches for, and whether it still fits.

What can be seen in the text is refused here, with the line. What can't is seen while it runs
(`watching`), by walls, by the interpreter's own account, and by looking at what has changed
afterwards. Both stand on their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from typing import Final

from abreast.jobs.candidates.behaviour.verdict import Behaviour
from abreast.jobs.candidates.source.target import CandidateInvalid, Function, Target, find_function

_MODULES: Final = {
    **dict.fromkeys(
        ("pytest", "_pytest", "unittest", "mock", "conftest"), "which could change the tests"
    ),
    **dict.fromkeys(("ctypes", "cffi", "_ctypes"), "which reaches past Python"),
    **dict.fromkeys(
        ("gc", "inspect", "sysconfig", "tracemalloc", "faulthandler"),
        "which looks at who is watching",
    ),
    **dict.fromkeys(
        ("importlib", "imp", "runpy", "pkgutil", "builtins", "__main__"),
        "which could change other code",
    ),
    **dict.fromkeys(
        ("socket", "ssl", "http", "urllib", "ftplib", "smtplib", "requests", "httpx"), "a network"
    ),
    **dict.fromkeys(
        ("subprocess", "multiprocessing", "pty", "signal", "atexit", "resource"), "other processes"
    ),
    **dict.fromkeys(
        ("contextvars", "weakref", "shelve", "dbm", "sqlite3", "tempfile"), "which outlives a call"
    ),
    "_abreast_child": "which watches it",
}
_ATTRIBUTES: Final = {
    **dict.fromkeys(("os._exit", "os.abort", "sys.exit"), "ends the program"),
    **dict.fromkeys(("os.fork", "os.forkpty", "os.system", "os.popen"), "starts a process"),
    **dict.fromkeys(("os.kill", "os.killpg"), "sends signals"),
    **dict.fromkeys(
        ("os.environ", "os.environb", "os.getenv", "os.putenv"), "reads or changes the environment"
    ),
    **dict.fromkeys(
        ("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile"),
        "looks at its callers",
    ),
    **dict.fromkeys(
        ("sys.modules", "sys.meta_path", "sys.path_hooks", "sys.path"), "changes what is imported"
    ),
    **dict.fromkeys(("threading.local",), "keeps something from one call to the next"),
}
_NAMES: Final = {
    **dict.fromkeys(
        ("exec", "eval", "compile", "__import__", "breakpoint"), "runs code made from text"
    ),
    **dict.fromkeys(("globals", "__builtins__"), "changes names from within"),
    **dict.fromkeys(("exit", "quit"), "ends the program"),
    "open": "opens a file",
}


def check_text(original: str, candidate: str, target: Target) -> Behaviour | None:
    """Why a candidate's whole file can't be accepted, whatever it does; None if it may be tried.

    `error` if it is no Python or has no such function; `refused` if its signature doesn't fit or it newly reaches for
    what an optimisation has no use for.
    """
    before = find_function(original, target)
    try:
        after = find_function(candidate, target)
    except CandidateInvalid as error:
        return Behaviour("error", str(error))
    if reason := _misfit(before, after):
        return Behaviour("refused", f"its signature does not fit: {reason}")
    known = {what for what, _ in _reaches(ast.parse(original))}
    for what, line in _reaches(ast.parse(candidate)):
        if what not in known:
            return Behaviour("refused", f"it {what} (line {line}), which the original does not")
    return None


# --- the signature


def _misfit(before: Function, after: Function) -> str:
    """Why a call that suits the one may not suit the other; empty if each does."""
    if type(before) is not type(after):
        return "one is async, the other is not"
    old, new = before.args, after.args
    return next(chain(_moved(old, new), _wanted(old, new), _other_defaults(old, new)), "")


def _moved(old: ast.arguments, new: ast.arguments) -> Iterator[str]:
    """Arguments by position that are not where they were, or not called what they were."""
    positional, others = [*old.posonlyargs, *old.args], [*new.posonlyargs, *new.args]
    for at, one in enumerate(positional):
        if at >= len(others):
            yield f"{one.arg} is missing"
        elif others[at].arg != one.arg and at >= len(old.posonlyargs):
            yield f"{one.arg} became {others[at].arg}"
        elif len(old.posonlyargs) <= at < len(new.posonlyargs):
            yield f"{one.arg} can no longer be given by name"
    if old.vararg and len(others) > len(positional):
        yield f"{others[len(positional)].arg} takes what was among the rest"


def _wanted(old: ast.arguments, new: ast.arguments) -> Iterator[str]:
    """Arguments that are new, or gone."""
    count, given = len(old.posonlyargs) + len(old.args), _defaults(new)
    added = [*[*new.posonlyargs, *new.args][count:], *new.kwonlyargs]
    yield from (
        f"{one.arg} is new and must be given"
        for one in added
        if one.arg not in {*_named(old), *given}
    )
    yield from (f"{one.arg} is missing" for one in old.kwonlyargs if one.arg not in _named(new))
    if (old.vararg and not new.vararg) or (old.kwarg and not new.kwarg):
        yield "it takes no further arguments any more"


def _other_defaults(old: ast.arguments, new: ast.arguments) -> Iterator[str]:
    now = _defaults(new)
    for name, value in _defaults(old).items():
        if name not in now:
            yield f"{name} must be given now"
        elif isinstance(value, ast.Constant) and ast.dump(value) != ast.dump(now[name]):
            yield f"the default of {name} was {ast.unparse(value)}, and is {ast.unparse(now[name])}"


def _named(arguments: ast.arguments) -> set[str]:
    return {one.arg for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}


def _defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    positional = [*arguments.posonlyargs, *arguments.args]
    found = {
        one.arg: value
        for one, value in zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        )
    }
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found | {one.arg: value for one, value in pairs if value is not None}


# --- what it reaches for


def _reaches(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What a text does that an optimisation has no use for, with the line."""
    imported = _imports(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = _by_import(node)
        elif isinstance(node, ast.Attribute):
            found = _by_attribute(node, imported)
        else:
            found = _by_name(node, imported)
        for what in found:
            yield what, getattr(node, "lineno", 0)


def _by_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for name in _modules(node):
        first = name.partition(".")[0]
        if why := _MODULES.get(first):
            yield f"imports {first}, {why}"
        elif isinstance(node, ast.ImportFrom) and (why := _ATTRIBUTES.get(name)):
            yield f"{why}: {name}"


def _by_attribute(node: ast.Attribute, imported: dict[str, str]) -> Iterator[str]:
    name = f"{imported.get(ast.unparse(node.value), '')}.{node.attr}"
    if why := _ATTRIBUTES.get(name):
        yield f"{why}: {name}"
    if isinstance(node.ctx, ast.Store | ast.Del) and _root(node) in imported:
        yield f"changes {ast.unparse(node)}"


def _by_name(node: ast.AST, imported: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _NAMES:
        yield f"{_NAMES[node.id]}: {node.id}"
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"setattr", "delattr"}
    ):
        yield from (
            f"changes {ast.unparse(one)}" for one in node.args[:1] if _root(one) in imported
        )


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Full names of what an import brings."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return (
        [f"{node.module}.{alias.name}" for alias in node.names]
        if node.module and not node.level
        else []
    )


def _imports(tree: ast.Module) -> dict[str, str]:
    """What the names that imports bind stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            found |= {
                alias.asname or alias.name: f"{node.module or ''}.{alias.name}"
                for alias in node.names
            }
    return found


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
