"""Checks the text of a candidate before it runs: its signature, and what it newly imports or uses.

What the text shows is refused here, with the line. The rest is found while the candidate runs
(`behaviour.traced_run`), by the sandbox, by the interpreter's audit events, and by comparing the
state afterwards. Neither check relies on the other.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from abreast.jobs.candidates.behaviour.verdict import Behaviour
from abreast.jobs.candidates.source.changes import FileChange, refuse_path
from abreast.jobs.candidates.source.target import CandidateInvalid, Function, Target, find_function

_TEST_MODULES: Final = frozenset({"pytest", "_pytest", "unittest"})
_REFUSED_MODULES: Final = {
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
_REFUSED_ATTRIBUTES: Final = {
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
_REFUSED_NAMES: Final = {
    **dict.fromkeys(
        ("exec", "eval", "compile", "__import__", "breakpoint"), "runs code made from text"
    ),
    **dict.fromkeys(("globals", "__builtins__"), "changes names from within"),
    **dict.fromkeys(("exit", "quit"), "ends the program"),
    "open": "opens a file",
}


def check_files(files: Iterable[FileChange], tests: Collection[str]) -> Behaviour | None:
    """Return why the other files of a candidate can't be accepted; None if they may be staged.

    `tests` are the files that pytest has collected. A file that imports pytest helps the tests.
    """
    for one in files:
        if why := refuse_path(one.path, tests):
            return Behaviour("refused", f"it touches {one.path}: {why}")
        if not one.path.endswith(".py"):
            continue
        for text in (one.before, one.after):
            try:
                tree = ast.parse(text or "")
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                if text is one.after:
                    return Behaviour("error", f"{one.path} is not Python: {error}")
                continue
            if _TEST_MODULES & {name.partition(".")[0] for name in _import_table(tree).values()}:
                reason = f"it touches {one.path}, which imports pytest and so belongs to the tests"
                return Behaviour("refused", reason)
    return None


def check_text(
    original: str, candidate: str, target: Target, files: Sequence[FileChange] = ()
) -> Behaviour | None:
    """Return why a candidate's whole file can't be accepted; None if it may run.

    `error` if it is not Python or has no such function; `refused` if its signature doesn't fit, or
    if it, or one of the other `files`, newly uses something that an optimisation doesn't need.
    """
    before = find_function(original, target)
    try:
        after = find_function(candidate, target)
    except CandidateInvalid as error:
        return Behaviour("error", str(error))
    if reason := _signature_mismatch(before, after):
        return Behaviour("refused", f"its signature does not fit: {reason}")
    code = [one for one in files if one.path.endswith(".py")]
    befores = [original, *(one.before or "" for one in code)]
    known = {what for text in befores for what, _ in _refused_uses(_tree_of(text))}
    afters = {"": candidate, **{f" of {one.path}": one.after or "" for one in code}}
    return next(
        (
            Behaviour("refused", f"it {what} (line {line}{where}), which the original does not")
            for where, text in afters.items()
            for what, line in _refused_uses(_tree_of(text))
            if what not in known
        ),
        None,
    )


def _tree_of(text: str) -> ast.Module:
    """Parse a text; one that is not Python uses nothing."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


# --- the signature


def _signature_mismatch(before: Function, after: Function) -> str:
    """Return why a valid call of `before` may not be one of `after`; empty if all are."""
    if type(before) is not type(after):
        return "one is async, the other is not"
    old, new = before.args, after.args
    return next(
        chain(
            _positional_changes(old, new), _added_or_removed(old, new), _changed_defaults(old, new)
        ),
        "",
    )


def _positional_changes(old: ast.arguments, new: ast.arguments) -> Iterator[str]:
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


def _added_or_removed(old: ast.arguments, new: ast.arguments) -> Iterator[str]:
    count, given = len(old.posonlyargs) + len(old.args), _defaults(new)
    added = [*[*new.posonlyargs, *new.args][count:], *new.kwonlyargs]
    yield from (
        f"{one.arg} is new and must be given"
        for one in added
        if one.arg not in {*_parameter_names(old), *given}
    )
    yield from (
        f"{one.arg} is missing" for one in old.kwonlyargs if one.arg not in _parameter_names(new)
    )
    if (old.vararg and not new.vararg) or (old.kwarg and not new.kwarg):
        yield "it takes no further arguments any more"


def _changed_defaults(old: ast.arguments, new: ast.arguments) -> Iterator[str]:
    now = _defaults(new)
    for name, value in _defaults(old).items():
        if name not in now:
            yield f"{name} must be given now"
        elif isinstance(value, ast.Constant) and ast.dump(value) != ast.dump(now[name]):
            yield f"the default of {name} was {ast.unparse(value)}, and is {ast.unparse(now[name])}"


def _parameter_names(arguments: ast.arguments) -> set[str]:
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


# --- what the text imports and uses


def _refused_uses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    imported = _import_table(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = _refused_imports(node)
        elif isinstance(node, ast.Attribute):
            found = _refused_attributes(node, imported)
        else:
            found = _refused_names(node, imported)
        yield from ((what, getattr(node, "lineno", 0)) for what in found)


def _refused_imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and (node.level or not node.module):
        return
    module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for name in [f"{module}{alias.name}" for alias in node.names]:
        first = name.partition(".")[0]
        if why := _REFUSED_MODULES.get(first):
            yield f"imports {first}, {why}"
        elif isinstance(node, ast.ImportFrom) and (why := _REFUSED_ATTRIBUTES.get(name)):
            yield f"{why}: {name}"


def _refused_attributes(node: ast.Attribute, imported: dict[str, str]) -> Iterator[str]:
    name = f"{imported.get(ast.unparse(node.value), '')}.{node.attr}"
    if why := _REFUSED_ATTRIBUTES.get(name):
        yield f"{why}: {name}"
    if isinstance(node.ctx, ast.Store | ast.Del) and _root_name(node) in imported:
        yield f"changes {ast.unparse(node)}"


def _refused_names(node: ast.AST, imported: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _REFUSED_NAMES:
        yield f"{_REFUSED_NAMES[node.id]}: {node.id}"
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"setattr", "delattr"}
    ):
        yield from (
            f"changes {ast.unparse(one)}" for one in node.args[:1] if _root_name(one) in imported
        )


def _import_table(tree: ast.Module) -> dict[str, str]:
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


def _root_name(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
