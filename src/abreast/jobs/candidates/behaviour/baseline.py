"""Checks that candidates can be compared with the original, and says precisely why not."""

from typing import Final

from abreast.core.errors import AbreastError
from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.behaviour.verdict import join_names

USAGE_EXIT: Final = 4  # pytest's exit code for arguments that it does not understand
NO_TESTS_EXIT: Final = 5
PYTEST_EXITS: Final = {
    2: "pytest was interrupted",
    3: "pytest itself failed",
    USAGE_EXIT: "pytest did not understand its arguments, or there is no such test",
    NO_TESTS_EXIT: "there are no tests in it",
}
_OUTPUT_LINES: Final = 12  # last lines of pytest's output that are shown
CRASH: Final = "Fatal Python error"  # how the interpreter's report of a crash begins


class BaselineFailed(AbreastError):
    """The original can't be compared with candidates; the message says why."""

    retryable = False

    def __init__(self, reason: str, said: tuple[str, ...] = (), usage: bool = False) -> None:  # noqa: FBT001, FBT002 - to be pickled
        """`said` are the last lines of pytest's output; `usage`: other `--tests` are needed."""
        super().__init__(reason, said, usage)
        self.reason, self.said, self.usage = reason, said, usage

    def __str__(self) -> str:
        """The message without pytest's lines."""
        return self.reason


def check_baseline(watched: Watched, qualname: str, top: str) -> None:
    """Raise `BaselineFailed` unless a test of the original passed and called the target.

    `top` is the directory of the slot; it is removed from the paths in pytest's lines.
    """
    lines, usage = _last_lines(watched, top), watched.exit in {USAGE_EXIT, NO_TESTS_EXIT}
    if watched.failure:
        raise BaselineFailed(
            f"the tests can't be run on the code as it is: {watched.reason}", lines, usage=usage
        )
    if watched.invocations and watched.passed:
        return
    if broken := [name for name, word in watched.outcomes if word == "error" and "::" not in name]:
        why = watched.messages.get(broken[0], "").replace(f"{top}/", "")
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise BaselineFailed(f"pytest can't collect {broken[0]}{more}: {why}".rstrip(": "), lines)
    if watched.exit in PYTEST_EXITS:
        raise BaselineFailed(
            f"the tests can't be run: {PYTEST_EXITS[watched.exit]}", lines, usage=usage
        )
    if watched.invocations:
        raise BaselineFailed(
            f"no test passes on the code as it is ({watched.tests} were run)", lines
        )
    if failed := [name for name, word in watched.outcomes if word in {"failed", "error"}]:
        message = watched.messages.get(failed[0], "")
        why = f"{join_names(failed)} failed before that: {message}".rstrip(": ")
        raise BaselineFailed(f"no test calls {qualname}; {why}", lines)
    raise BaselineFailed(f"no test calls {qualname}: name tests that do with --tests", usage=False)


def _last_lines(watched: Watched, top: str) -> tuple[str, ...]:
    found = [
        line.rstrip().replace(f"{top}/", "")
        for output in (watched.stdout, watched.stderr)
        for line in output.splitlines()
        if line.strip()
    ]
    # The interpreter's crash report has the place first and pytest's innermost calls last.
    crash = next((at for at, line in enumerate(found) if CRASH in line), None)
    return tuple(found[-_OUTPUT_LINES:] if crash is None else found[crash : crash + _OUTPUT_LINES])
