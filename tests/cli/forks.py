"""abreast by fork: processes to fork from, and a shell that starts what tests end from them."""

import os
import pkgutil
import subprocess
import sys
from contextlib import closing, contextmanager, suppress

import abreast.models
from abreast.core.errors import StoreError
from abreast.store.sqlite.store import SqliteStore
from tests.cli.shell import PATIENCE, Said, Shell, unmeasured
from tests.warm import Forked, SharedWarm

# What reports and comparisons of studies import, which takes 2 s.
STATISTICS = (
    "numpy",
    "plotly.offline",
    "scipy.stats",
    "statsmodels.stats.contingency_tables",
    "statsmodels.stats.proportion",
)
# What calls of a model import; the embedded one is not among them.
MODELS = [
    module.name
    for module in pkgutil.walk_packages(abreast.models.__path__, "abreast.models.")
    if not module.name.startswith("abreast.models.embedded")
]


class Forks:
    """Processes that have imported abreast, each started when the first call needs it."""

    def __init__(self):
        path = os.pathsep.join(filter(None, sys.path))
        self._environment = unmeasured({**os.environ, "PYTHONPATH": path})
        self._started = {}

    def close(self):
        for warm in self._started.values():
            warm.close()

    def suiting(self, arguments):
        """The one for this command line: for reports of studies, one with statistics."""
        words = [*map(str, arguments)]
        named = words[:1] == ["matrix"] or any("study" in word for word in words)
        studies = named and not {"--no-report", "export", "show"} & {*words}
        also = (*MODELS, *STATISTICS) if studies else tuple(MODELS)
        # Forks are measured as the process is, so there is another for tests that are not measured.
        measuring = {name: os.environ[name] for name in os.environ if name.startswith("COVERAGE_")}
        kind = (also, bool(measuring))
        if kind not in self._started:
            self._started[kind] = SharedWarm({**self._environment, **measuring}, also)
        return self._started[kind]

    def run(self, program, arguments, given=b"", **named):
        """Run it to its end, as `Warm.run` does."""
        return self.suiting(arguments).run(program, arguments, given, **named)


class ForkingShell(Shell):
    """A directory, and abreast in it, also where the test ends it: always forked."""

    def __call__(self, *arguments, program="abreast", given=b"", patience=PATIENCE, **named):
        """Run it to its end, or a script that becomes it."""
        if program == "abreast" and patience == PATIENCE:
            return super().__call__(*arguments, given=given, **named)
        code, out, err = self._warm.run(
            program,
            [*map(str, arguments)],
            given,
            cwd=self.folder,
            environment=unmeasured({**self.environment, **named}),
            patience=patience,
        )
        return Said(code, out.decode(), err.decode())

    def forked(self, *arguments, program="abreast", session=False, environment=(), **standard):
        """Start it, as `subprocess.Popen` does."""
        return Forked(
            self._warm.suiting(arguments),
            program,
            arguments,
            session=session,
            cwd=self.folder,
            env=unmeasured({**self.environment, **dict(environment)}),
            **standard,
        )

    @contextmanager
    def start(
        self,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        own_group=True,
        measured=True,
    ):
        """Start it, and let the test say how it ends."""
        del measured  # what a fork has imported is measured already
        with self.forked(
            *arguments, session=own_group, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    process.kill()

    def has_run(self):
        """Whether a run got as far as to be in the store."""
        if not self.store.exists():
            return False
        with closing(SqliteStore(self.store)) as store:
            return bool(store.runs())

    def until(self, process, holds):
        """Wait until this holds of what is recorded, while the process is there."""
        while True:
            with suppress(StoreError):  # it is just about to be made
                if self.store.exists() and holds():
                    return
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"it ended with {process.wait(0.02)}")
