"""Runs what nobody trusts in a slot: bounded, and apart from the rest as far as the system allows.

What stood between the command and the rest is in `ConfinedResult.confinement`, wall by wall, as the
jail built them for this very command (`abreast.worktrees.sandbox`). The names of the walls:

    process group        ended with the call, with the time given to it, and with the driver
    environment          only PATH, LANG, an empty HOME and TMPDIR, and what the caller adds
    memory, cpu, processes, file size, no core      the kernel's limits
    network              none but a loopback of its own
    read-only files      all but the slot, HOME, TMPDIR and what the caller adds; no devices, no sockets in /run, /tmp
    processes apart      it sees no processes but its own (`processes unseen`), and can signal no others
    shared memory apart  the same for shared memory and message queues
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from abreast.core.errors import WorkerDied
from abreast.executors.commands import CommandMissing, CommandRefused, Finished
from abreast.worktrees.background import aside
from abreast.worktrees.errors import SlotClosed
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

Walls: TypeAlias = Literal["any", "own", "bubblewrap", "none"]
Why: TypeAlias = Literal["exit", "timeout", "memory", "cpu", "processes", "file size", "killed"]

_JAIL: Final = ("-I", "-S", str(Path(__file__).with_name("sandbox.py")))
_MASKED: Final = ("/tmp", "/var/tmp", "/run", "/dev")  # noqa: S108 - where others' sockets and devices are
_BEYOND: Final = 10.0  # s; what a jail may take on top of its command's time before it is given up
# Of the user's home: what opens other doors. The rest of it can be read, as Python itself may live
# there.
_SECRETS: Final = (
    *(
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".netrc",
        ".git-credentials",
        ".pypirc",
        ".npmrc",
    ),
    *(
        ".config/gcloud",
        ".config/gh",
        ".config/git/credentials",
        ".cargo/credentials.toml",
        ".huggingface",
    ),
)
_LIMIT_SAYS: Final[tuple[tuple[Why, tuple[bytes, ...]], ...]] = (
    ("memory", (b"MemoryError", b"Cannot allocate memory", b"std::bad_alloc", b"out of memory")),
    ("processes", (b"Resource temporarily unavailable", b"can't start new thread", b"Cannot fork")),
    ("file size", (b"File too large",)),
)
_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What a command may use. Memory, CPU and file size are of each process.

    `seconds` are of all of it.
    """

    seconds: float = 60.0
    memory: int = 2 << 30
    """Bytes of address space."""
    cpu: int = 60
    """Seconds of CPU, whole ones."""
    processes: int = 64
    """Processes and threads at once."""
    file_size: int = 256 << 20
    """Bytes of the biggest file."""
    files: int = 256
    """Files open at once."""
    output: int = 1 << 20
    """Bytes kept of stdout, and of stderr; more is counted, not kept."""

    def __post_init__(self) -> None:
        """ValueError for what is no limit."""
        for name, value in asdict(self).items():
            if not 0 < value < 1 << 62 or (name != "seconds" and not isinstance(value, int)):
                raise ValueError(
                    f"{name} is a number above 0, a whole one but for seconds; not {value!r}"
                )


@dataclass(frozen=True, slots=True)
class Confinement:
    """What stood between a command and the rest of the system."""

    layers: tuple[str, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    """The walls that could not be built, with the reason."""

    def __contains__(self, layer: object) -> bool:
        """Whether that wall stood."""
        return layer in self.layers


@dataclass(frozen=True, slots=True)
class ConfinedResult:
    """What became of a command."""

    exit_code: int | None
    """None if a signal ended it."""
    signal: int | None
    why: Why
    """`cpu` and `timeout` are certain.

    `memory`, `processes` and `file size`: it failed, and said itself that it was

    for want of that; the kernel doesn't. `killed`: by another signal; with SIGKILL, memory may have
    run out."""
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    """What was written in all, kept or not."""
    stderr_bytes: int
    wall_seconds: float
    cpu_seconds: float
    """Of the command and of what it started, as far as the kernel tells.

    With 10 ms of the jail's own.
    """
    peak_bytes: int | None
    """The most memory that one of its processes had; never less than the jail's own 10 MB."""
    confinement: Confinement

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.why == "exit" and self.exit_code == 0


async def run_confined(
    argv: Sequence[str],
    slot: Slot,
    *,
    limits: ResourceLimits | None = None,
    extra_env: Mapping[str, str] | None = None,
    writable: Sequence[str | Path] = (),
    cwd: str | Path | None = None,
    walls: Walls = "any",
) -> ConfinedResult:
    """Run a command in a slot, and end everything it started; when this is cancelled, at once.

        ran = await run_confined([sys.executable, "-m", "pytest", "-q"], slot, limits=Limits(seconds=20))
        if ran.why == "timeout": ...

    Args:
        argv: the command and its arguments, never shell code.
        slot: where it runs, and what it may write to.
        limits: what it may use; `ResourceLimits()` if None.
        extra_env: added to its environment, which has otherwise only PATH, LANG, HOME and TMPDIR.
        writable: what else it may write to; must exist.
        cwd: where it runs, from the slot's `root`.
        walls: how network, files and processes are kept apart: by namespaces of our own, else by bubblewrap if that is
            installed, else not at all; or only one of these ways.

    Raises:
        CommandMissing: there is no such command.
        CommandRefused: it can't be started; the message says why.
        SlotClosed: the slot's pool has been closed.
        WorkerDied: the jail was killed from outside, and with it the command.
    """
    commands = slot.commands
    if commands is None:
        raise SlotClosed(f"slot {slot.index} is closed")
    if not argv:
        raise CommandRefused("a command needs a name")
    limits = limits or ResourceLimits()
    scratch = slot.scratch / f"{slot.index}-{next(_NUMBERS)}"
    report = _make_scratch(scratch)
    try:
        jail = [sys.executable, *_JAIL]
        orders = _orders(argv, slot, scratch, limits, writable) | {
            "env": _environment(scratch, extra_env),
            "cwd": str(slot.root / (cwd or "")),
            "walls": ["own"] if walls in {"any", "own"} else [],
            "bubblewrap": shutil.which("bwrap") if walls in {"any", "bubblewrap"} else None,
            "jail": jail,
        }
        finished: Finished | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.seconds + _BEYOND):
                finished = await commands.run(
                    jail,
                    stdin=json.dumps(orders).encode(),
                    cwd=str(scratch),
                    env=_plain(),
                    keep=limits.output,
                )
        return _told(argv, limits, finished, os.pread(report, 1 << 20, 0))
    finally:
        os.close(report)
        with contextlib.suppress(OSError):  # closing the pool tries again, and says why not
            await aside(lambda _: remove_tree(scratch))


def _make_scratch(scratch: Path) -> int:
    """Directories for one command.

    Returns the open file of its report, which no name leads to but the jail's.
    """
    for name in ("", "home", "tmp"):
        (scratch / name).mkdir(mode=0o700)
    return os.open(scratch / "report", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _plain() -> dict[str, str]:
    """The jail's own environment.

    What is in it might be seen where processes can't be kept apart.
    """
    return {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}


def _environment(scratch: Path, extra: Mapping[str, str] | None) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        **(extra or {}),
    }


def _orders(
    argv: Sequence[str],
    slot: Slot,
    scratch: Path,
    limits: ResourceLimits,
    writable: Sequence[str | Path],
) -> dict[str, Any]:
    """What the jail is told."""
    open_to = [
        slot.path,
        scratch / "home",
        scratch / "tmp",
        *(Path(path).resolve() for path in writable),
    ]
    needed = [
        slot.repository.top,
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(shutil.which(argv[0]) or "/").parent,
    ]
    masked = [
        path
        for path in needed
        if any(path.is_relative_to(mask) for mask in _MASKED) and str(path) not in _MASKED
    ]
    home = Path.home()
    return {
        "argv": list(argv),
        "limits": asdict(limits),
        "seconds": limits.seconds,
        "report": str(scratch / "report"),
        "writable": [str(path) for path in open_to],
        "readable": [str(path) for path in masked],
        "masks": list(_MASKED),
        "hidden": [str(home / name) for name in _SECRETS if (home / name).exists()],
    }


def _told(
    argv: Sequence[str], limits: ResourceLimits, finished: Finished | None, report: bytes
) -> ConfinedResult:
    """What the jail reported, in our words."""
    try:
        facts: dict[str, Any] = json.loads(report)
    except ValueError:
        if finished is None:  # stopped from outside; its warden has ended it
            facts = {"why": "timeout", "wall": limits.seconds + _BEYOND, "cpu": 0.0, "peak": None}
        else:
            said = finished.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise WorkerDied(
                f"{argv[0]}: its jail ended with {finished.exit_code} {' '.join(said)}".strip()
            ) from None
    if refused := facts.get("refused"):
        number, _, reason = refused.partition(" ")
        if int(number) == 2:  # noqa: PLR2004 - ENOENT
            raise CommandMissing(f"{argv[0]}: there is no such command")
        raise CommandRefused(f"{argv[0]}: it could not be started ({reason})")
    finished = finished or Finished(0, b"", b"", 0, 0)
    status = facts.get("status")
    code = None if status is None else os.waitstatus_to_exitcode(status)
    return ConfinedResult(
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        why=_why(facts, code, limits, finished.stderr),
        stdout=finished.stdout,
        stderr=finished.stderr,
        stdout_bytes=finished.stdout_bytes,
        stderr_bytes=finished.stderr_bytes,
        wall_seconds=facts["wall"],
        cpu_seconds=facts["cpu"],
        peak_bytes=facts["peak"],
        confinement=Confinement(tuple(facts.get("layers", ())), facts.get("missing", {})),
    )


def _why(facts: Mapping[str, Any], code: int | None, limits: ResourceLimits, stderr: bytes) -> Why:
    if facts["why"] == "timeout":
        return "timeout"
    if code is None:
        return "killed"
    if code == -signal.SIGXCPU or (
        code == -signal.SIGKILL and facts.get("own_cpu", 0.0) >= limits.cpu
    ):
        return "cpu"
    if code == -signal.SIGXFSZ:
        return "file size"
    if code:
        for why, words in _LIMIT_SAYS:
            if any(word in stderr for word in words):
                return why
    return "killed" if code < 0 else "exit"
