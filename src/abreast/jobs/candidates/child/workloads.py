"""Runs what calls the target without tests: doctests, scripts, recorded and proposed calls.

Each is reported like a test, with a name and an outcome, so that all else is the same.
"""

import contextlib
import importlib
import inspect
import itertools
import os
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from types import AsyncGeneratorType, CoroutineType, ModuleType
from typing import Any

from abreast.jobs.candidates.child.capture import MOST_VALUES, Channel, Recorder
from abreast.jobs.candidates.child.paths import module_name
from abreast.jobs.candidates.child.suite import run_tests
from abreast.jobs.candidates.child.trying import Unbuildable, build
from abreast.jobs.candidates.values.stdlib_types import is_iterator

_MESSAGE_CHARACTERS = 300


class HintsUnusable(Exception):
    """No calls can be made from the type hints; the message says why."""


class WorkloadRunner:
    """Runs the workloads of a run, one after the other, in the process of the tests."""

    def __init__(self, target: str, qualname: str, channel: Channel, recorder: Recorder) -> None:
        self._target, self._qualname = target, qualname
        self._channel, self._recorder = channel, recorder
        self._seed: Callable[[str], None] = importlib.import_module("random").seed

    def import_target(self) -> ModuleType:
        """Import the target's module, which wraps the target."""
        return importlib.import_module(module_name(self._target))

    def run(self, workloads: Sequence[dict[str, Any]]) -> None:
        """Run them all. Whatever one raises is its outcome."""
        kinds = {
            "doctests": self._run_doctests,
            "script": self._run_script,
            "calls": self._run_calls,
            "hints": self._call_by_hints,
            "expressions": self._evaluate,
        }
        for one in workloads:
            kinds[one["kind"]](one)

    @contextlib.contextmanager
    def _item(self, name: str) -> Iterator[None]:
        """Within this context, an item of that name runs; an exception makes it fail."""
        self._recorder.test = name
        self._seed(name)
        self._channel.send("trying", name)
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - the outcome
            message = f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS]
            self._channel.send("test", [name, "failed", message])
        else:
            self._channel.send("test", [name, "passed", ""])

    # --- doctests

    def _run_doctests(self, _: dict[str, Any]) -> None:
        module = self.import_target()
        for test in _doctest_finder().find(module, module.__name__):
            if test.examples:
                with self._item(f"{test.name} (doctest)"):
                    _run_doctest(test)

    # --- scripts

    def _run_script(self, workload: dict[str, Any]) -> None:
        path = os.path.abspath(workload["path"])
        before = sys.argv[:], sys.path[:]
        with self._item(f"{workload['path']} (workload)"):
            sys.argv[:] = [path]
            sys.path.insert(0, os.path.dirname(path))
            try:
                importlib.import_module("runpy").run_path(path, run_name="__main__")
            except SystemExit as error:
                if error.code not in {None, 0}:
                    raise
            finally:
                sys.argv[:], sys.path[:] = before

    # --- recorded calls

    def _run_calls(self, workload: dict[str, Any]) -> None:
        module = self.import_target()
        for number, one in enumerate(workload["calls"], 1):
            with self._item(f"{workload['label']} {number}"):
                try:
                    call = self._call_of(module, one)
                except Unbuildable as error:
                    raise ValueError(f"it can't be made again ({error})") from None
                # What it raises is recorded as a part of the call.
                with contextlib.suppress(Exception, SystemExit):
                    _exhaust(call())

    def _call_of(self, module: ModuleType, one: dict[str, Any]) -> Callable[[], object]:
        *path, name = self._qualname.split(".")
        owner: Any = reduce(getattr, path, module)
        args: Any = build(one["args"])
        kwargs: Any = build(one["kwargs"])
        if not path:
            return lambda: getattr(owner, name)(*args, **kwargs)
        held = inspect.getattr_static(owner, name)
        holder = owner if isinstance(held, classmethod | staticmethod) else build(one["self"])
        if isinstance(held, property):
            return lambda: getattr(holder, name)
        return lambda: getattr(holder, name)(*args, **kwargs)

    # --- type hints

    def _call_by_hints(self, workload: dict[str, Any]) -> None:
        """Call the target with what Hypothesis makes of its type hints."""
        module = self.import_target()
        try:
            drawn = _draw(module, self._qualname, workload["count"])
        except HintsUnusable as error:
            self._channel.send("failed", str(error))
            return
        with self._item("type hints"):
            for call in drawn:
                with contextlib.suppress(Exception, SystemExit):
                    _exhaust(call())

    # --- expressions

    def _evaluate(self, workload: dict[str, Any]) -> None:
        """Evaluate expressions, which call the target, with the names of its module."""
        names = vars(self.import_target())
        with self._item("proposed calls"):
            for text in workload["texts"]:
                with contextlib.suppress(Exception, SystemExit):
                    _exhaust(eval(text, dict(names)))  # noqa: S307 - in the confined child


def run_suite(
    orders: dict[str, Any],
    target: str,
    channel: Channel,
    recorder: Recorder,
    collected: Callable[[], None],
) -> int:
    """Run the tests by pytest, then the workloads; return pytest's exit code, or 0.

    `collected` is called before the first test.
    """
    code = run_tests(orders["names"], channel, recorder, collected) if orders["names"] else 0
    if workloads := orders.get("workloads"):
        runner = WorkloadRunner(target, orders["qualname"], channel, recorder)
        if not orders["names"]:
            runner.import_target()
            collected()
        runner.run(workloads)
    return code


def _exhaust(result: object) -> None:
    """Run a coroutine to its end, and take the values of a lazy result."""
    kind = type(result)
    if kind in {CoroutineType, AsyncGeneratorType}:

        async def take() -> None:
            if kind is CoroutineType:
                await typing.cast("Any", result)
            else:
                async for _ in typing.cast("Any", result):
                    pass

        importlib.import_module("asyncio").run(take())
    elif is_iterator(kind):
        for _ in itertools.islice(typing.cast("Iterator[object]", result), MOST_VALUES):
            pass


def _doctest_finder() -> Any:  # noqa: ANN401 - of doctest, which is imported only here
    doctest = importlib.import_module("doctest")

    class Finder(doctest.DocTestFinder):  # type: ignore[misc, name-defined] # imported at run time
        """Finds the doctest of the traced target, too, whose code is not of its module."""

        def _from_module(self, module: ModuleType, one: object) -> bool:
            traced = "__watched__" in getattr(one, "__dict__", {})
            return traced or bool(super()._from_module(module, one))

    return Finder()


def _run_doctest(test: Any) -> None:  # noqa: ANN401 - of doctest, which is imported only here
    said: list[str] = []
    runner = importlib.import_module("doctest").DocTestRunner(verbose=False)
    if runner.run(test, out=said.append).failed:
        _, _, example = "".join(said).partition("Failed example:")
        raise AssertionError(" ".join(example.split()))


def _draw(module: ModuleType, qualname: str, count: int) -> list[Callable[[], object]]:
    """Return calls with arguments that Hypothesis draws. Raises `HintsUnusable`."""
    try:
        hypothesis = importlib.import_module("hypothesis")
    except ImportError:
        raise HintsUnusable(f"hypothesis is not installed for {sys.executable}") from None
    *path, name = qualname.split(".")
    owner: Any = reduce(getattr, path, module)
    held = inspect.getattr_static(owner, name)
    bound = not path or isinstance(held, classmethod | staticmethod)
    configuration = importlib.import_module("hypothesis.configuration")
    configuration.set_hypothesis_home_dir(os.environ.get("TMPDIR", os.curdir))
    strategies = hypothesis.strategies
    function = getattr(owner, name)
    parts = [strategies.just(owner) if bound else strategies.from_type(owner)]
    parts += _argument_strategies(strategies, function, skip_first=not bound)
    drawn: list[tuple[Any, tuple[object, ...], dict[str, object]]] = []

    @hypothesis.settings(  # type: ignore[untyped-decorator] # imported at run time
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategies.tuples(*parts))  # type: ignore[untyped-decorator] # the same
    def draw(found: tuple[Any, tuple[object, ...], dict[str, object]]) -> None:
        drawn.append(found)

    try:
        draw()
    except Exception as error:  # noqa: BLE001 - of a strategy, which may be the project's
        raise HintsUnusable(f"no calls can be made from the type hints: {error}") from None
    return [
        partial(getattr(holder, name), *args, **kwargs)
        for holder, args, kwargs in drawn
        if not isinstance(held, property)
    ]


def _argument_strategies(
    strategies: Any,  # noqa: ANN401 - a module of Hypothesis
    function: Callable[..., Any],
    *,
    skip_first: bool,
) -> list[Any]:
    """Return the strategies of positional arguments and of keywords. Raises `HintsUnusable`."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())[int(skip_first) :]
    except (NameError, TypeError, ValueError) as error:
        raise HintsUnusable(f"the type hints can't be read: {error}") from None
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for one in parameters:
        if one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
            continue
        if one.name not in hints:
            if one.default is not one.empty:
                break  # the rest has its defaults
            raise HintsUnusable(f"the parameter {one.name} has no type hint")
        strategy = strategies.from_type(hints[one.name])
        if one.kind is one.KEYWORD_ONLY:
            keywords[one.name] = strategy
        else:
            positional.append(strategy)
    return [strategies.tuples(*positional), strategies.fixed_dictionaries(keywords)]
