"""Runs pytest with a plugin that reports which test is running, and the outcome of each."""

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

from abreast.jobs.candidates.child.capture import Channel, Recorder

_MESSAGE_CHARACTERS = 300


class Suite:
    """The tests of one run."""

    def __init__(self, channel: Channel, recorder: Recorder, collected: Callable[[], None]) -> None:
        self._channel, self._recorder, self._collected = channel, recorder, collected
        self._outcomes: dict[str, str] = {}
        self._seed: Callable[[str], None] = importlib.import_module("random").seed

    def run(self, names: Sequence[str]) -> int:
        """Run pytest and return its exit code. Raises ImportError if it is not installed."""
        pytest = importlib.import_module("pytest")
        hooks: dict[str, Callable[..., None]] = {
            "pytest_runtest_logstart": self._begin,
            "pytest_runtest_logreport": self._report,
            "pytest_collectreport": self._report_collection,
            "pytest_collection_finish": self._collected,
        }
        plugin = type("Watching", (), {name: staticmethod(hook) for name, hook in hooks.items()})()
        return int(
            pytest.main(
                [*_isolation_options(), "--continue-on-collection-errors", "-q", *names],
                plugins=[plugin],
            )
        )

    def _begin(self, nodeid: str) -> None:
        self._recorder.test = nodeid
        self._seed(nodeid)  # so that functions that use random numbers can be compared
        self._channel.send("trying", nodeid)

    def _report(self, report: Any) -> None:  # noqa: ANN401 - pytest is not imported here
        word = "error"
        if report.skipped or report.when == "call" or report.outcome == "passed":
            word = report.outcome
        known = self._outcomes.get(report.nodeid)
        if (report.when == "call" or word != "passed") and known not in {"failed", "error"}:
            self._outcomes[report.nodeid] = word
            message = _failure_message(report) if word in {"failed", "error"} else ""
            self._channel.send("test", [report.nodeid, word, message])

    def _report_collection(self, report: Any) -> None:  # noqa: ANN401 - pytest is not imported here
        if report.failed:
            self._channel.send(
                "test", [report.nodeid or "<collection>", "error", _failure_message(report)]
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


def _isolation_options() -> list[str]:
    """Options for one process, the given order, no coverage, and a cache outside the project."""
    plugins = {
        "xdist": ["-n0"],
        "pytest_cov": ["--no-cov"],
        "pytest_randomly": ["--randomly-seed=1", "--randomly-dont-reorganize"],
    }
    found = [
        option
        for name, options in plugins.items()
        if importlib.util.find_spec(name)
        for option in options
    ]
    place = os.path.join(os.environ.get("TMPDIR", "/tmp"), "pytest")  # noqa: S108 - as TMPDIR's default
    return ["-o", f"cache_dir={place}", *found]
