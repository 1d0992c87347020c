"""Runs pytest with a plugin that reports which test is running, and the outcome of each."""

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

from abreast.jobs.candidates.child.capture import Channel, Recorder

_MESSAGE_CHARACTERS = 300
# By plugin: an attribute of pytest's options that it adds, and options for one process, the given
# order and no coverage.
_PLUGIN_OPTIONS = {
    "xdist": ("numprocesses", ("-n0",)),
    "pytest_cov": ("no_cov", ("--no-cov",)),
    "pytest_randomly": ("randomly_seed", ("--randomly-seed=1", "--randomly-dont-reorganize")),
}


def run_tests(
    names: Sequence[str], channel: Channel, recorder: Recorder, collected: Callable[[], None]
) -> int:
    """Run pytest and return its exit code. Raises ImportError if it is not installed.

    `collected` is called before the first test.
    """
    seed: Callable[[str], None] = importlib.import_module("random").seed
    outcomes: dict[str, str] = {}

    def begin(nodeid: str) -> None:
        recorder.test = nodeid
        seed(nodeid)  # so that functions that use random numbers can be compared
        channel.send("trying", nodeid)

    def note(report: Any) -> None:  # noqa: ANN401 - pytest is not imported here
        word = "error"
        if report.skipped or report.when == "call" or report.outcome == "passed":
            word = report.outcome
        known = outcomes.get(report.nodeid)
        if (report.when == "call" or word != "passed") and known not in {"failed", "error"}:
            outcomes[report.nodeid] = word
            message = _failure_message(report) if word in {"failed", "error"} else ""
            channel.send("test", [report.nodeid, word, message])

    def note_collection(report: Any) -> None:  # noqa: ANN401 - pytest is not imported here
        if report.failed:
            channel.send(
                "test", [report.nodeid or "<collection>", "error", _failure_message(report)]
            )

    pytest = importlib.import_module("pytest")
    hooks: dict[str, Callable[..., None]] = {
        "pytest_load_initial_conftests": remove_unknown_options,
        "pytest_runtest_logstart": begin,
        "pytest_runtest_logreport": note,
        "pytest_collectreport": note_collection,
        "pytest_collection_finish": collected,
        "pytest_sessionfinish": skip_foreign_summaries,
    }
    args = [*isolation_options(), "--continue-on-collection-errors", "-q", *names]
    return int(pytest.main(args, plugins=[plugin_of(hooks)]))


def plugin_of(hooks: dict[str, Callable[..., None]]) -> object:
    """Return a plugin of pytest with these hooks, by name."""
    return type("Watching", (), {name: staticmethod(hook) for name, hook in hooks.items()})()


def load_plugins(names: Sequence[str], modules: Sequence[str]) -> int:
    """Have pytest load its plugins as for these tests, and import modules; return its exit code.

    Given twice, `--version` prints the names of the plugins. No conftest.py and no test is loaded.
    The modules are imported while pytest's import hook is in place: of a package with plugins, it
    warns about modules that were imported without it.
    """
    pytest = importlib.import_module("pytest")

    def import_modules(**_: object) -> None:
        for name in modules:
            with contextlib.suppress(BaseException):
                importlib.import_module(name)

    hooks: dict[str, Callable[..., None]] = {
        "pytest_load_initial_conftests": remove_unknown_options,
        "pytest_cmdline_main": import_modules,
    }
    args = ["--version", "--version", "--noconftest", *isolation_options(), *names]
    return int(pytest.main(args, plugins=[plugin_of(hooks)]))


def skip_foreign_summaries(session: Any) -> None:  # noqa: ANN401 - pytest is not imported here
    """Leave out what installed plugins print after the last test; pytest prints its own.

    Only for that, the plugin of Hypothesis imports Hypothesis, which takes longer than pytest.
    """
    manager = session.config.pluginmanager
    foreign = [plugin for plugin, _ in manager.list_plugin_distinfo()]
    session.config.hook.pytest_terminal_summary = manager.subset_hook_caller(
        "pytest_terminal_summary", foreign
    )


def _failure_message(report: Any) -> str:  # noqa: ANN401 - pytest is not imported here
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    lines = (
        str(crash.message if crash is not None else getattr(report, "longrepr", "") or "")
        .strip()
        .splitlines()
    )
    if crash is None:  # the last line that says what was raised
        lines = [line[1:].strip() for line in lines if line.startswith("E ")][-1:] or lines[-1:]
    return (lines[0] if lines else "")[:_MESSAGE_CHARACTERS]


def isolation_options() -> list[str]:
    """Options for one process, the given order, no coverage, and a cache outside the project."""
    found = [
        option
        for name, (_, options) in _PLUGIN_OPTIONS.items()
        if importlib.util.find_spec(name)
        for option in options
    ]
    place = os.path.join(os.environ.get("TMPDIR", "/tmp"), "pytest")  # noqa: S108 - as TMPDIR's default
    return ["-o", f"cache_dir={place}", *found]


def remove_unknown_options(early_config: Any, args: list[str]) -> None:  # noqa: ANN401 - pytest is not imported here
    """Remove options of plugins that are installed, but that the project has disabled."""
    for added, options in _PLUGIN_OPTIONS.values():
        if not hasattr(early_config.option, added):
            args[:] = [one for one in args if one not in options]
