"""The repositories that are divided, fetched into a cache outside of this one.

They come with their tests from the package registries of Python, npm and Debian, at fixed versions
(those of Debian are what the release has). What can't be fetched is skipped, with the reason.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.archives import only_data

CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "abreast-benchmarks"
).resolve()
METIS = "pymetis==2025.2.2"
_SECONDS = 600


@dataclass(frozen=True)
class Repository:
    """A repository: how it is fetched, and the directory in it that is divided, as a pattern."""

    name: str
    language: str
    package: str
    fetch: Callable[[str, Path], None]
    inside: str

    def place(self) -> Path:
        """The directory that is divided; fetched if it is not there. Raises `NotFetched`."""
        folder = CACHE / self.package.replace("/", "+")
        if not folder.exists():
            unfinished = folder.with_suffix(".part")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            try:
                self.fetch(self.package, unfinished)
            except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
                raise NotFetched(f"{self.package} can't be fetched: {_reason(error)}") from None
            unfinished.rename(folder)
        [found] = folder.glob(self.inside)
        return found


class NotFetched(Exception):
    """A package can't be fetched; the message says why."""


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr or "").strip().splitlines()
        return lines[-1] if lines else f"exit code {error.returncode}"
    return str(error)


def _run(*argv: str, cwd: Path) -> None:
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True, timeout=_SECONDS)


def _unpack(folder: Path, pattern: str) -> None:
    [archive] = folder.glob(pattern)
    with only_data(tarfile.open(archive)) as opened:
        opened.extractall(folder)
    archive.unlink()


def from_python(package: str, folder: Path) -> None:
    """The source distribution."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq")
    _run(*pip, "--no-deps", "--no-binary", ":all:", "--dest", str(folder), package, cwd=folder)
    _unpack(folder, "*.tar.gz")


def from_npm(package: str, folder: Path) -> None:
    """The tarball of a package."""
    _run("npm", "pack", "--silent", package, cwd=folder)
    _unpack(folder, "*.tgz")


def from_debian(package: str, folder: Path) -> None:
    """The files of a package of sources."""
    _run("apt-get", "download", "-qq", package, cwd=folder)
    [archive] = folder.glob("*.deb")
    _run("dpkg-deb", "-x", archive.name, ".", cwd=folder)
    archive.unlink()


REPOSITORIES = (
    Repository("networkx", "Python", "networkx==3.4.2", from_python, "networkx-*"),
    Repository("sympy", "Python", "sympy==1.13.3", from_python, "sympy-*"),
    Repository("django", "Python", "django==5.1.4", from_python, "[Dd]jango-*"),
    Repository("zod", "TypeScript", "zod@4.6.7", from_npm, "package/src"),
    Repository(
        "containerd",
        "Go",
        "golang-github-containerd-containerd-dev",
        from_debian,
        "usr/share/gocode/src/github.com/containerd/containerd",
    ),
    Repository(
        "tokio", "Rust", "librust-tokio-dev", from_debian, "usr/share/cargo/registry/tokio-*"
    ),
)


def metis_python() -> Path:
    """The interpreter of an environment that has pymetis, made once. Raises `NotFetched`."""
    folder = CACHE / METIS
    python = folder / "bin" / "python"
    done = folder / ".done"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq")
        try:
            _run(*pip, METIS, cwd=folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotFetched(f"{METIS} can't be installed: {_reason(error)}") from None
        done.touch()
    return python
