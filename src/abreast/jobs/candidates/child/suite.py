"""The plugin that pytest runs with: which test is under way, and what became of each."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

from abreast.jobs.candidates.child.capture import Recorder
from abreast.jobs.candidates.child.channel import Channel

_LONGEST = 300


class Suite:
    """The tests of one run."""

    def __init__(self, channel: Channel, recorder: Recorder, collected: Callable[[], None]) -> None:
        self._channel, self._recorder, self._collected = channel, recorder, collected
        self._outcomes: dict[str, str] = {}
        self._seed: Callable[[str], None] = importlib.import_module("random").seed

    def run(self, names: Sequence[str], extra: Sequence[str]) -> int:
        """Run pytest; returns its exit code. ImportError if there is none."""
        pytest = importlib.import_module("pytest")
        hooks: dict[str, Callable[..., None]] = {
            "pytest_runtest_logstart": self._begin,
            "pytest_runtest_logreport": self._report,
            "pytest_collectreport": self._collecting,
            "pytest_collection_finish": self._collected,
        }
        plugin = type("Watching", (), {name: staticmethod(hook) for name, hook in hooks.items()})()
        args = [*_apart(), "--continue-on-collection-errors", "-q", *extra, *names]
        return int(pytest.main(args, plugins=[plugin]))

    def _begin(self, nodeid: str) -> None:
        self._recorder.test = nodeid
        self._seed(nodeid)  # so that a function which draws numbers can be compared
        self._channel.say("trying", nodeid)

    def _report(self, report: Any) -> None:  # noqa: ANN401 - of pytest, which is not known here
        word = report.outcome if report.when == "call" or report.outcome == "passed" else "error"
        if report.skipped:
            word = "skipped"
        known = self._outcomes.get(report.nodeid)
        if report.when == "call" or word != "passed":
            if known in {"failed", "error"}:
                return
            self._outcomes[report.nodeid] = word
            self._channel.say(
                "test", [report.nodeid, word, _said(report) if word in {"failed", "error"} else ""]
            )

    def _collecting(self, report: Any) -> None:  # noqa: ANN401
        if report.failed:
            self._channel.say("test", [report.nodeid or "<collection>", "error", _said(report)])


def _said(report: Any) -> str:  # noqa: ANN401
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    lines = (
        str(crash.message if crash is not None else getattr(report, "longrepr", "") or "")
        .strip()
        .splitlines()
    )
    if crash is None:  # the last line that says what was raised
        lines = [line[1:].strip() for line in lines if line.startswith("E ")][-1:] or lines[-1:]
    return (lines[0] if lines else "")[:_LONGEST]


def _apart() -> list[str]:
    """What keeps the run to itself: in one process, in its order, unmeasured, and with nothing left behind."""
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
    return ["-o", f"cache_dir={os.path.join(os.environ.get('TMPDIR', '/tmp'), 'pytest')}", *found]  # noqa: S108
