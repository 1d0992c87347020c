"""Runs an agent once: its command line, its environment, its process group, how it ended."""

import asyncio
import json
import os
import re
import secrets
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from abreast.agents.report import AgentReport, ReportReader
from abreast.agents.reset_time import seconds_until_reset
from abreast.agents.runner import PROMPT, AgentRunner, Permission
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import CallFailed, KeyRefused, QuotaSpent, Throttled
from abreast.core.usage import Usage
from abreast.executors.commands import CommandMissing, CommandRunner, Finished
from abreast.worktrees.git import without_repository

MARK: Final = "ABREAST_AGENT"
"""The environment variable that all processes of one run of an agent have."""
OPTIONS: Final = "{options}"
_KEPT_ERRORS: Final = 64 << 10  # bytes kept of stderr
_ERROR_CHARACTERS: Final = 300
_STRAY_ROUNDS: Final = 100  # a look at all processes takes milliseconds
_STATUS_THROTTLED: Final = (429, 529)
_STATUS_SIGNED_OUT: Final = (401, 403)


class AgentFailed(CallFailed):
    """An agent ended without a result; its message is the agent's own, or how it ended."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What an agent is to do, and what it may."""

    prompt: str
    allow: tuple[Permission, ...] = ()
    model: str | None = None
    system: str | None = None
    schema: Mapping[str, Any] | None = None
    session: str | None = None
    """A session to go on with."""


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """Where an agent works, and what it finds in its environment."""

    folder: Path
    scratch: Path | None = None
    """A directory beside `folder` for its files; the system's for temporary files if None."""
    env: Mapping[str, str] = field(default_factory=dict)


def command_line(runner: AgentRunner, task: AgentTask, schema_file: str = "") -> list[str]:
    """The words of its command; raises `AgentUnknown` for what it can't be allowed."""
    words = list(runner.resume if task.session and runner.resume else runner.argv)
    added = runner.permissions(task.allow)
    added += runner.model if task.model else ()
    added += runner.system if task.system else ()
    added += runner.schema if task.schema is not None else ()
    at = words.index(OPTIONS) if OPTIONS in words else len(words)
    words[at : at + 1] = added
    filled = {
        PROMPT: asked(runner, task),
        "{model}": task.model or "",
        "{system}": task.system or "",
        "{schema}": json.dumps(task.schema),
        "{schema_file}": schema_file,
        "{session}": task.session or "",
    }
    return [filled.get(word, word) for word in words]


def asked(runner: AgentRunner, task: AgentTask) -> str:
    """The prompt, with the system prompt before it if the agent takes that no other way."""
    alone = task.system is None or bool(runner.system)
    return task.prompt if alone else f"{task.system}\n\n{task.prompt}"


async def run_agent(
    commands: CommandRunner,
    runner: AgentRunner,
    task: AgentTask,
    place: AgentPlace,
    *,
    changed: Callable[[AgentReport], None] = lambda _report: None,
    started: Callable[[int], None] | None = None,
) -> AgentReport:
    """Run an agent to its end, and return what it reports.

    Nothing that it started is left: not its process group, nor what left that. `changed` is called
    with the report as it grows; if it raises, the agent is ended.

    Raises:
        AgentFailed: it ended without a result, or says that it failed.
        KeyRefused: it is not signed in.
        Throttled: its provider had too many requests.
        QuotaSpent: the limit of its account is reached; `retry_after` says for how long, if known.
    """
    mark = secrets.token_hex(8)
    reader = ReportReader(runner, changed)
    with tempfile.TemporaryDirectory(prefix="abreast-agent-", dir=place.scratch) as own:
        schema_file = Path(own, "schema.json")
        if task.schema is not None:
            schema_file.write_text(json.dumps(task.schema), "utf-8")  # noqa: ASYNC240 - small
        words = command_line(runner, task, str(schema_file))
        # Without an input of its own an agent that asks a question would wait for the terminal's.
        stdin = b"" if PROMPT in runner.argv else asked(runner, task).encode()
        try:
            finished = await commands.run(
                words,
                stdin=stdin,
                cwd=str(place.folder),
                env=_environment(runner, place, Path(own), mark),
                keep=_KEPT_ERRORS,
                started=started,
                output=reader.feed,
            )
        except CommandMissing:
            raise AgentFailed(
                f"{runner.name} is not installed: there is no command {runner.program}"
            ) from None
        except BaseException as error:
            # What was used until now is charged, also if it was stopped.
            error.usage = reader.report.usage  # type: ignore[attr-defined]
            raise
        finally:
            await asyncio.shield(asyncio.to_thread(end_strays, mark))
    return _ended(runner, reader, finished)


def _environment(runner: AgentRunner, place: AgentPlace, own: Path, mark: str) -> dict[str, str]:
    env = {**without_repository(os.environ), **runner.env, **place.env, MARK: mark}
    # If its tree loses its git directory, git must not find a repository above it.
    above = [str(place.folder.parent), os.environ.get("GIT_CEILING_DIRECTORIES", "")]
    env["GIT_CEILING_DIRECTORIES"] = os.pathsep.join(filter(None, above))
    if runner.home == "own":
        (own / "home").mkdir()
        env["HOME"] = str(own / "home")
    return env


def _ended(runner: AgentRunner, reader: ReportReader, finished: Finished) -> AgentReport:
    report = reader.end()
    if report.error or not report.ended or finished.exit_code:
        raise failure(runner, report, _why(runner, reader, finished))
    return report


def _why(runner: AgentRunner, reader: ReportReader, finished: Finished) -> str:
    report = reader.report
    if report.error:
        return report.error
    code = finished.exit_code
    how = "it ended" if not code else f"exit code {code}" if code > 0 else _signal_name(-code)
    if runner.is_structured and not reader.events and not code:
        how = "it wrote no events"
    elif not report.ended and not code:
        how = "it ended without a result"
    lines = finished.stderr.decode("utf-8", "replace").strip().splitlines() or reader.strange
    return f"{how}: {lines[-1].strip()}" if lines else how


def _signal_name(number: int) -> str:
    known = number in set(signal.Signals)
    return f"killed by {signal.Signals(number).name if known else f'signal {number}'}"


def failure(
    runner: AgentRunner, report: AgentReport, why: str, now: datetime | None = None
) -> CallFailed:
    """The error that a text means, by the runner's patterns, with what the agent has used."""
    now = datetime.fromtimestamp(SYSTEM_CLOCK.wall(), UTC).astimezone() if now is None else now
    text = f"{runner.name}: {' '.join(why.split())[:_ERROR_CHARACTERS]}"
    error: CallFailed
    if report.resets is not None or _matches(runner.limit, why):
        after = seconds_until_reset(why, now)
        if report.resets is not None:
            after = max(0.0, report.resets - now.timestamp())
        error = QuotaSpent(text)
        error.retry_after = after
    elif report.status in _STATUS_THROTTLED or _matches(runner.throttled, why):
        error = Throttled(text, retry_after=seconds_until_reset(why, now))
    elif report.status in _STATUS_SIGNED_OUT or _matches(runner.signed_out, why):
        error = KeyRefused(text)
    else:
        error = AgentFailed(text, status=report.status)
        error.details |= {"session": report.session, "steps": report.steps[-20:]}
    error.usage = report.usage if report.usage.requests else Usage(requests=1, usd=report.cost)
    return error


def _matches(patterns: Sequence[str], text: str) -> bool:
    return any(re.search(each, text, re.IGNORECASE) for each in patterns)


def end_strays(mark: str) -> int:
    """Kill the processes that have the mark of an agent in their environment; return how many.

    They left its process group, as a server that was started in the background.
    """
    wanted = f"{MARK}={mark}".encode()
    ended = 0
    for _ in range(_STRAY_ROUNDS):  # again, for processes that were forked meanwhile
        environments = {pid: _environment_of(pid) for pid in _processes()}
        found = [pid for pid, given in environments.items() if given and wanted in given]
        if not found and None not in environments.values():
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended += 1
    return ended


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - hundreds of names
    except OSError:
        return []


def _environment_of(pid: int) -> list[bytes] | None:
    """The variables of a process, none if it can't be asked; None while its program is loaded."""
    place = Path(f"/proc/{pid}")
    try:
        found = (place / "environ").read_bytes()
        if not found:
            if not (place / "cmdline").read_bytes():
                (place / "exe").readlink()  # fails if it has ended, or is the kernel's
                return None
            found = (place / "environ").read_bytes()
    except OSError:  # so also if it belongs to another user
        return []
    return found.split(b"\0")
