"""What a run of candidates works with: its target, its tests, and where candidates come from.

The command line and `abreast.optimize` both drive it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from abreast.executors.commands import Commands
from abreast.jobs.candidates.author import (
    AgentAuthor,
    AskableModel,
    EditingAgent,
    ModelAuthor,
    PromptAuthor,
    blocks_of,
    proposals_of,
    propose_calls,
)
from abreast.jobs.candidates.behaviour.evidence import EvidenceSources
from abreast.jobs.candidates.behaviour.traced_run import LIMITS, Tests
from abreast.jobs.candidates.branch import CandidateBranch
from abreast.jobs.candidates.evaluator import MIN_WALL_SECONDS, Bounds, Evaluator
from abreast.jobs.candidates.job import Author, CandidateRun, CandidatesContext, EvaluationOptions
from abreast.jobs.candidates.report import CandidatesReport
from abreast.jobs.candidates.results import Proposal
from abreast.jobs.candidates.rules import CLOSE_ABSOLUTE, CLOSE_RELATIVE, LOOSE, STRICT, Rules
from abreast.jobs.candidates.source.changes import protected_places
from abreast.jobs.candidates.source.origins import (
    Project,
    from_directory,
    from_file,
    from_patches,
    from_refs,
    patches_in,
)
from abreast.jobs.candidates.source.target import (
    CandidateInvalid,
    Target,
    TargetInvalid,
    asks_for_closeness,
    parse_target,
    read_source,
)
from abreast.jobs.candidates.spec import CandidatesSpec
from abreast.jobs.candidates.timing.measure import MeasurePlan
from abreast.jobs.files import units
from abreast.run.run import Run
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.git import GitFailed, find_repository

KIND: Final = "candidates"
"""The kind of its runs, and the key of its facts in a manifest."""

_INTERPRETER_TIMEOUT: Final = 60.0  # seconds that an interpreter may take to start

Propose: TypeAlias = Callable[[Run], Awaitable[Sequence[Proposal]]]
"""Makes the first candidates of a run."""


class CandidatesTools:
    """The target, the tests, the evaluator and the author of one run of candidates.

    `author` is None unless something is to be repaired and refined; it is set before `work`.
    """

    def __init__(
        self, spec: CandidatesSpec, cwd: Path, *, spell: Callable[[str], str] = str
    ) -> None:
        """Find the target and the tests; it blocks while git and the project's Python start.

        `spell` says how an option is written, for errors. Raises ValueError for errors that are
        visible beforehand.
        """
        self.spec, self._cwd, self._spell = spec, cwd, spell
        self.root, self.target = _find_target(spec.target, cwd)
        self.original = read_source(self.root / self.target.file)
        self.tests = find_tests(spec, cwd, self.root, spell)
        evidence = find_evidence(spec, cwd, self.root, spell)
        self.protected = protected_places(self.tests.names, evidence.scripts, self.target.file)
        self._evaluator = Evaluator(
            self.target, self.original, self.tests, self._read_bounds(), evidence, cwd=cwd
        )
        self.branch = None if spec.branch is None else CandidateBranch(self.root, spec.branch)
        self.author: Author | None = None
        self._trials: CandidateRun | None = None

    def _read_bounds(self) -> Bounds:
        close = asks_for_closeness(self.original, self.target)
        return _read_bounds(self.spec, _read_rules(self.spec, close=close), self._spell)

    def model_author(self, model: AskableModel) -> ModelAuthor:
        """A model as the author of candidates for this target."""
        return ModelAuthor(self.target, self.original, model)

    def use_model(self, model: AskableModel) -> None:
        """Have a model propose candidates, or repair and refine those that are given."""
        self.author = self.model_author(model)

    def use_agent(self, agent: EditingAgent) -> None:
        """Have a coding agent propose candidates, or repair and refine those that are given."""
        self.author = AgentAuthor(self.target, self.original, agent)

    def use_calls(self, model: AskableModel) -> None:
        """Have a model propose calls of the target."""
        self._evaluator.ask_for_calls = partial(propose_calls, model, self.target, self.original)

    def facts(self) -> dict[str, Any]:
        """What a manifest records."""
        return {
            "spec": self.spec.plain(),
            "cwd": str(self._cwd),
            "target": str(self.target),
            "original": self.original,
        }

    async def work(
        self, run: Run, notify: Callable[[str], None], propose: Propose | None = None
    ) -> None:
        """Try the candidates of the specification, or those that `propose` returns."""
        spec = self.spec
        how = EvaluationOptions(
            max(1, spec.width),
            repairs=spec.repairs,
            refine=spec.refine,
            executor=spec.executor or "local",
            timing=spec.timing,
        )
        context = CandidatesContext(
            self.target, self.original, self.root, self._evaluator, self.author, how
        )
        self._trials = CandidateRun(context, notify)
        await self._trials.run(run, lambda: (propose or self._propose)(run))

    def report(self) -> CandidatesReport:
        """The report of what is known so far."""
        trials, evaluator = self._trials, self._evaluator
        tried = trials.tried if trials else ()
        found = CandidatesReport(
            self.target,
            self.original,
            tried,
            timing=self.spec.timing,
            failures=len(trials.failed) if trials else 0,
        )
        if trials is None or not evaluator.seen:
            return found
        return replace(
            found,
            watched=evaluator.original,
            inputs=evaluator.inputs,
            profile=trials.profile,
            processes=evaluator.processes,
            costs=evaluator.costs,
        )

    # --- where candidates come from --------------------------------------------------------------

    async def _propose(self, run: Run) -> Sequence[Proposal]:
        spec = self.spec
        if spec.command is not None:
            return await self._from_command(run, spec.command)
        if any((spec.candidates, spec.patches, spec.patch, spec.refs)):
            return await run_in_thread(self._read_proposals)
        if isinstance(self.author, PromptAuthor):
            return await self.author.propose(run, spec.proposals, max(1, spec.width))
        return []

    def _read_proposals(self, stop: StopRequest) -> list[Proposal]:
        """Candidates from files or commits; it blocks while files are read and git works."""
        spec, here = self.spec, self._cwd
        if spec.candidates is not None:
            return from_directory(here / spec.candidates)
        if spec.patches is not None:
            return from_patches(patches_in(here / spec.patches), self._project, stop)
        if spec.patch is None:
            return from_refs(spec.refs, self._project, stop)
        return self.read_path(here / spec.patch, stop)

    def read_path(self, path: Path, stop: StopRequest) -> list[Proposal]:
        """The candidates of a directory, a Python file or a patch; it blocks."""
        if path.is_dir():
            return from_directory(path)
        return (
            [from_file(path)] if path.suffix == ".py" else from_patches([path], self._project, stop)
        )

    @property
    def _project(self) -> Project:
        return Project(self.target, self.original, self.root, self.protected)

    async def _from_command(self, run: Run, command: str) -> list[Proposal]:
        """Candidates that a command prints: it runs once for each, each time in a new directory."""
        async with Commands() as commands:

            async def print_one(number: int) -> str:
                environment = {
                    **os.environ,
                    "ABREAST_TARGET": str(self.target),
                    "ABREAST_NUMBER": str(number),
                    "ABREAST_FILE": str(self.root / self.target.file),
                }
                place = tempfile.mkdtemp(prefix="abreast-command-")
                try:
                    finished = await commands.run(
                        ["sh", "-c", command],
                        stdin=self.original.encode(),
                        cwd=place,
                        env=environment,
                    )
                finally:
                    # In a thread, as the command may have written many files.
                    await run_in_thread(lambda _: shutil.rmtree(place, ignore_errors=True))
                if code := finished.exit_code:
                    errors = finished.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
                    raise CandidateInvalid(
                        f"the command ended with exit code {code} {' '.join(errors)}"
                    )
                return "\n".join(blocks_of(finished.stdout.decode("utf-8", "replace"))[:1])

            return await proposals_of(
                run, print_one, self.spec.proposals, max(1, self.spec.width), "command"
            )


# --- reading the specification -------------------------------------------------------------------


def find_tests(
    spec: CandidatesSpec, cwd: Path, root: Path, spell: Callable[[str], str] = str
) -> Tests:
    """The tests of a specification, and the Python that runs them. Raises ValueError."""
    names = []
    for given in spec.tests:
        file, mark, rest = given.partition("::")
        names.append(f"{_find_file(file, cwd, root, spell('tests'))}{mark}{rest}")
    python = spec.python or sys.executable
    if spec.python and os.sep in python:
        # Not resolved: the link's own place decides which virtual environment it is.
        python = str(cwd / python)
    if shutil.which(python) is None:
        raise ValueError(f"{spell('python')}: there is no {python}")
    if names:
        _check_pytest(python, root, spell("python"))
    return Tests(tuple(names), python)


def find_evidence(
    spec: CandidatesSpec, cwd: Path, root: Path, spell: Callable[[str], str] = str
) -> EvidenceSources:
    """What calls the target besides the tests. Raises ValueError."""
    scripts = tuple(_find_file(one, cwd, root, spell("workload")) for one in spec.workload)
    return EvidenceSources(spec.doctests, scripts, spec.trace, spec.hints, spec.calls_by)


def _find_file(given: str, cwd: Path, root: Path, word: str) -> str:
    """Return the path of a file of the project from its directory. Raises ValueError."""
    path = (cwd / given).resolve()
    if not path.exists():
        raise ValueError(f"{word}: there is no {given}")
    if not path.is_relative_to(root):
        raise ValueError(f"{word}: {given} is outside of {root}")
    return path.relative_to(root).as_posix()


def find_root(place: Path, cwd: Path) -> Path:
    """The directory of the project: of the repository, else the current one.

    Raises GitFailed and OSError.
    """
    repository = find_repository(place, StopRequest())
    return repository.top if repository.common else cwd.resolve()


def _find_target(given: str, cwd: Path) -> tuple[Path, Target]:
    file, mark, name = given.partition("::")
    path = (cwd / file).resolve()
    place = path.parent if path.parent.is_dir() else cwd
    try:
        top = find_root(place, cwd)
        return top, parse_target(f"{path}{mark}{name}" if path.is_file() else given, top)
    except CandidateInvalid as error:
        raise TargetInvalid(str(error)) from None
    except (GitFailed, OSError) as error:
        raise TargetInvalid(f"{place} can't be used: {error}") from None


def _read_rules(spec: CandidatesSpec, *, close: bool) -> Rules:
    """The rules of the comparison; `close` if the function asks for that with a comment."""
    given = (spec.rel_tol, spec.abs_tol)
    if close and given == (None, None):
        given = (CLOSE_RELATIVE, CLOSE_ABSOLUTE)
    return replace(
        STRICT if spec.compare == "strict" else LOOSE,
        exceptions=spec.exceptions,  # type: ignore[arg-type] # one of the words, by the spec
        relative=given[0] or 0.0,
        absolute=given[1] or 0.0,
    )


def read_limits(spec: CandidatesSpec, spell: Callable[[str], str] = str) -> ResourceLimits:
    """What a run of the tests may use. Raises ValueError."""
    try:
        seconds = units.duration(spec.timeout)
    except ValueError as error:
        raise ValueError(f"{spell('timeout')}: {error}") from None
    return replace(LIMITS, seconds=max(MIN_WALL_SECONDS, 10 * seconds), cpu=max(1, round(seconds)))


def _read_bounds(spec: CandidatesSpec, rules: Rules, spell: Callable[[str], str]) -> Bounds:
    limits = read_limits(spec, spell)
    plan = MeasurePlan(
        threshold=spec.threshold, first=min(MeasurePlan().first, spec.blocks), most=spec.blocks
    )
    return Bounds(rules, limits, plan, spec.generated, timing=spec.timing)


def _check_pytest(python: str, root: Path, flag: str) -> None:
    """Raise ValueError unless the project's interpreter has pytest.

    Otherwise the first candidates would be requested from a model, and paid, in vain.
    """
    look = "import importlib.util, sys; sys.exit(3 * (importlib.util.find_spec('pytest') is None))"
    try:
        found = subprocess.run(
            [python, "-c", look],
            cwd=root,
            capture_output=True,
            timeout=_INTERPRETER_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{flag}: {python} can't be run: {error}") from None
    if found.returncode == 3:  # noqa: PLR2004 - the code above; other failures show in the tests
        raise ValueError(
            f"{flag}: pytest is not installed for {python}, and the tests are run by it"
        )
