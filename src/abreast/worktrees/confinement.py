"""Runs an untrusted command in a slot, limited and isolated as far as the system allows.

`ConfinedResult.confinement` lists the restrictions that were in effect for the command, as the
sandbox applied them (`abreast.worktrees.sandbox.program`). Their names:

    process group        ended with the call, at the time limit, and with the driver
    environment          only PATH, LANG, an empty HOME and TMPDIR, and what the caller adds
    memory, cpu, processes, file size, no core      the kernel's limits
    network              none but a loopback of its own
    read-only files      all but the slot, HOME, TMPDIR and what the caller adds; no devices, and no
                         sockets in /run and /tmp
    processes apart      it can signal only its own processes, and with `processes unseen` it sees
                         no others
    shared memory apart  the same for shared memory and message queues

Where these are the work of namespaces, `user namespace` is among them; where they are the work of
the kernel's filters, `landlock` and `seccomp` are. Under filters there is no loopback either, /dev
has no shared memory, modes, owners and times of files stay as they are, and other processes are
seen, though not their memory and environment.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from abreast.core.errors import WorkerDied
from abreast.executors.commands import CommandMissing, CommandRefused, Finished
from abreast.worktrees.background import run_in_thread
from abreast.worktrees.errors import SlotClosed
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

Walls: TypeAlias = Literal["any", "own", "bubblewrap", "filters", "none"]
Why: TypeAlias = Literal["exit", "timeout", "memory", "cpu", "processes", "file size", "killed"]

# Runs the sandbox with a request some other way than by a new process; gets the request, a
# directory that the command can't reach, and how many bytes of its output to keep.
StartSandbox: TypeAlias = Callable[[dict[str, Any], Path, int], Awaitable[Finished]]

_SANDBOX: Final = ("-I", "-S", str(Path(__file__).with_name("sandbox") / "program.py"))
# Hidden from the command: sockets of other processes, and devices.
_MASKED: Final = ("/tmp", "/var/tmp", "/run", "/dev")  # noqa: S108 - no file is made there
# Credentials in the user's home. The rest of it can be read, as Python may be installed there.
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
_LIMIT_MESSAGES: Final[tuple[tuple[Why, tuple[bytes, ...]], ...]] = (
    ("memory", (b"MemoryError", b"Cannot allocate memory", b"std::bad_alloc", b"out of memory")),
    ("processes", (b"Resource temporarily unavailable", b"can't start new thread", b"Cannot fork")),
    ("file size", (b"File too large",)),
)
_SCRATCH_NUMBERS: Final = count()
_PROBE_SECONDS: Final = 30.0
PRIVATE: Final = "private-"  # directories in `scratch` that begin so are hidden from commands


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What a command may use.

    Memory, CPU and file size are limits of each process, `seconds` is the limit of the whole run.
    """

    seconds: float = 60.0
    memory: int = 2 << 30  # bytes of address space
    cpu: int = 60  # seconds of CPU, whole ones
    processes: int = 64  # processes and threads at once
    file_size: int = 256 << 20  # bytes of the biggest file
    files: int = 256  # files open at once
    output: int = 1 << 20  # bytes kept of stdout, and of stderr; more is counted, not kept

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < 1 << 62 or (name != "seconds" and not isinstance(value, int)):
                raise ValueError(
                    f"{name} is a number above 0, a whole one but for seconds; not {value!r}"
                )


@dataclass(frozen=True, slots=True)
class Confinement:
    """The restrictions that were in effect for a command."""

    layers: tuple[str, ...]
    # The restrictions that could not be applied, with the reason.
    missing: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, layer: object) -> bool:
        return layer in self.layers


@dataclass(frozen=True, slots=True)
class ConfinedResult:
    """How a command ended, and what it used."""

    exit_code: int | None  # None if a signal ended it
    signal: int | None
    # Why it ended. `cpu` and `timeout` are certain. `memory`, `processes` and `file size` mean that
    # it failed and its own output names that cause, as the kernel does not report it. `killed`
    # means another signal; with SIGKILL, memory may have run out.
    why: Why
    stdout: bytes
    stderr: bytes
    stdout_bytes: int  # all bytes that were written, kept or not
    stderr_bytes: int
    wall_seconds: float
    # CPU of the command and of all that it started, as far as the kernel reports it. Includes some
    # 10 ms of the sandbox itself.
    cpu_seconds: float
    # Peak memory of its largest process; at least 10 MB, which the sandbox itself uses.
    peak_bytes: int | None
    confinement: Confinement

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
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
    grace: float = 10.0,
    start: StartSandbox | None = None,
) -> ConfinedResult:
    """Run a command in a slot, then end every process it started; on cancellation, at once.

        limits = ResourceLimits(seconds=20)
        ran = await run_confined([sys.executable, "-m", "pytest", "-q"], slot, limits=limits)
        if ran.why == "timeout": ...

    Args:
        argv: the command and its arguments, never shell code.
        slot: where it runs, and what it may write to.
        limits: what it may use; `ResourceLimits()` if None.
        extra_env: added to its environment, which has otherwise only PATH, LANG, HOME and TMPDIR.
        writable: what else it may write to; must exist.
        cwd: where it runs, from the slot's `root`.
        walls: how network, files and processes are isolated: by namespaces of our own, else by
            bubblewrap if it is installed, and what these do not isolate by filters (Landlock and
            seccomp); or by only one of these ways.
        grace: seconds beyond `limits.seconds`, or after a cancellation, until a sandbox that does
            not answer is given up.
        start: runs the sandbox; by default in a new process.

    Raises:
        CommandMissing: there is no such command.
        CommandRefused: it can't be started; the message says why.
        SlotClosed: the slot's pool has been closed.
        WorkerDied: the sandbox was killed from outside, and the command with it.
    """
    commands = slot.commands
    if commands is None:
        raise SlotClosed(f"slot {slot.index} is closed")
    if not argv:
        raise CommandRefused("a command needs a name")
    limits = limits or ResourceLimits()
    scratch = slot.scratch / f"{slot.index}-{next(_SCRATCH_NUMBERS)}"
    for name in ("", "home", "tmp"):
        (scratch / name).mkdir(mode=0o700)
    # Only the sandbox knows its path.
    report = os.open(scratch / "report", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        sandbox = [sys.executable, *_SANDBOX]
        request = _sandbox_request(argv, slot, scratch, limits, writable) | {
            "env": {
                "PATH": os.environ.get("PATH", os.defpath),
                "LANG": os.environ.get("LANG", "C.UTF-8"),
                "HOME": str(scratch / "home"),
                "TMPDIR": str(scratch / "tmp"),
                **(extra_env or {}),
            },
            "cwd": str(slot.root / (cwd or "")),
            **_ways(walls),
            "sandbox": sandbox,
        }
        finished: Finished | None = None
        most = limits.seconds + grace
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most):
                if start is not None:
                    finished = await start(request, scratch, limits.output)
                else:
                    finished = await commands.run(
                        sandbox,
                        stdin=json.dumps(request).encode(),
                        cwd=str(scratch),
                        env=sandbox_environment(),
                        keep=limits.output,
                        grace=grace,  # without a namespace, only it can end a daemon
                    )
        return _read_report(argv, limits, most, finished, os.pread(report, 1 << 20, 0))
    finally:
        os.close(report)
        with contextlib.suppress(OSError):  # closing the pool tries again, and reports the reason
            await run_in_thread(lambda _: remove_tree(scratch))


def probe_confinement() -> Confinement:
    """Run a command that does nothing, and return what it was confined by; blocks meanwhile.

    Raises OSError or ValueError if no sandbox can be started here.
    """
    with tempfile.TemporaryDirectory(prefix="abreast-probe-") as place:
        sandbox = [sys.executable, *_SANDBOX]
        report = Path(place) / "report"
        request = {
            "argv": [sys.executable, "-I", "-S", "-c", ""],
            "limits": asdict(ResourceLimits()),
            "seconds": _PROBE_SECONDS,
            "report": str(report),
            "writable": [place],
            "readable": [str(path) for path in _behind_masks((sys.prefix, sys.base_prefix))],
            "masks": list(_MASKED),
            "hidden": [],
            "env": sandbox_environment(),
            "cwd": place,
            **_ways("any"),
            "sandbox": sandbox,
        }
        subprocess.run(
            sandbox,
            input=json.dumps(request).encode(),
            env=sandbox_environment(),
            capture_output=True,
            check=False,
            timeout=2 * _PROBE_SECONDS,
        )
        facts = json.loads(report.read_bytes())
    return Confinement(tuple(facts["layers"]), facts["missing"])


def _ways(walls: Walls) -> dict[str, Any]:
    """How network, files and processes may be isolated, for the sandbox."""
    return {
        "walls": ["own"] if walls in {"any", "own"} else [],
        "bubblewrap": shutil.which("bwrap") if walls in {"any", "bubblewrap"} else None,
        "filters": walls in {"any", "filters"},
    }


def _behind_masks(paths: Iterable[str | Path]) -> list[Path]:
    """Return those of the paths that the masked directories would hide."""
    return [
        path
        for path in map(Path, paths)
        if any(path.is_relative_to(mask) for mask in _MASKED) and str(path) not in _MASKED
    ]


def sandbox_environment() -> dict[str, str]:
    """The environment of a sandbox, without secrets."""
    # Minimal: the command can read it where process isolation is not available.
    return {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}


def _sandbox_request(
    argv: Sequence[str],
    slot: Slot,
    scratch: Path,
    limits: ResourceLimits,
    writable: Sequence[str | Path],
) -> dict[str, Any]:
    writable_paths = [
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
    home = Path.home()
    return {
        "argv": list(argv),
        "limits": asdict(limits),
        "seconds": limits.seconds,
        "report": str(scratch / "report"),
        "writable": [str(path) for path in writable_paths],
        "readable": [str(path) for path in _behind_masks(needed)],
        "masks": list(_MASKED),
        "hidden": [
            *(str(home / name) for name in _SECRETS if (home / name).exists()),
            *(str(path) for path in slot.scratch.glob(f"{PRIVATE}*")),
        ],
    }


def _read_report(
    argv: Sequence[str],
    limits: ResourceLimits,
    waited: float,
    finished: Finished | None,
    report: bytes,
) -> ConfinedResult:
    """Turn the report of the sandbox into a result.

    `waited` is how many seconds were waited for a sandbox that did not finish.
    """
    try:
        facts: dict[str, Any] = json.loads(report)
    except ValueError:
        if finished is None:  # stopped from outside; the supervisor process has ended it
            facts = {
                "why": "timeout",
                "wall": waited,
                "cpu": 0.0,
                "peak": None,
            }
        else:
            last_line = "".join(finished.stderr.decode(errors="replace").strip().splitlines()[-1:])
            raise WorkerDied(
                f"{argv[0]}: its sandbox ended with {finished.exit_code} {last_line}".strip()
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
        for why, words in _LIMIT_MESSAGES:
            if any(word in stderr for word in words):
                return why
    return "killed" if code < 0 else "exit"
