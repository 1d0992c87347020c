"""Build the wheel and the sdist, look at what is in them, and install them as users do.

`make release-check` starts it with the tools of requirements/release.txt. For every Python that is
supported, the wheel is installed by pip, by `uv tool` and by pipx, each into an environment of its
own, and a few commands are tried there from an empty directory, with warnings as errors. A Python
that is not here and can't be had is skipped, and the table at the end says so; with `--strict` that
is a failure too, as before a release it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time  # noqa: TID251 - there is no run here whose clock it could be
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
TOOLS = Path(sys.executable).parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = "local,ui"
WEIGHTS = "models/SmolLM2-135M-Instruct"  # beginning of the file's path, in the cache of abreast
INSTALL_TIMEOUT = 900  # seconds
SMOKE_TIMEOUT = 900  # seconds


class CheckFailed(Exception):
    """A command failed, or what was built is not what it should be."""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A line of the table at the end."""

    what: str
    verdict: str
    seconds: float
    detail: str = ""


Installer: TypeAlias = Callable[[Path, Path, Path], Path]
"""Installs a wheel for a Python into a directory, and returns the command `abreast`."""


def main() -> int:
    """Check everything; returns 1 if something failed."""
    options = _options()
    shutil.rmtree(BUILD, ignore_errors=True)
    rows: list[CheckRow] = []

    def check(what: str, step: Callable[[], str]) -> bool:
        begun = time.monotonic()
        try:
            row = CheckRow(what, "ok", 0, step())
        except CheckFailed as failure:
            row = CheckRow(what, "FAILED", 0, str(failure))
        took = time.monotonic() - begun
        rows.append(CheckRow(row.what, row.verdict, took, row.detail))
        _say(rows[-1])
        return row.verdict == "ok"

    if check("build", build) and check("contents", check_contents):
        check("twine check", check_metadata)
        for version in options.pythons:
            python = find_python(version)
            if python is None:
                why = "not installed here, and uv can't download it"
                rows.append(CheckRow(f"Python {version}", "SKIPPED", 0, why))
                _say(rows[-1])
                continue
            for name, install in INSTALLERS.items():
                check(f"Python {version}, {name}", lambda: try_out(install, python))  # noqa: B023 - called at once
        check("Dockerfile", try_dockerfile)
    bad = ("FAILED", "SKIPPED") if options.strict else ("FAILED",)
    counts = {
        verdict: sum(row.verdict == verdict for row in rows)
        for verdict in ("ok", "FAILED", "SKIPPED")
    }
    print("release check:", ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(any(counts[verdict] for verdict in bad))


# --- what is built -------------------------------------------------------------------------------


def build() -> str:
    """Build the sdist, and the wheel from it: then the sdist has all that a build needs."""
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", BUILD / "dist", ROOT])
    return ", ".join(f"{path.name} ({path.stat().st_size / 1000:,.0f} kB)" for path in built())


def built() -> list[Path]:
    """The files that would be uploaded."""
    return sorted((BUILD / "dist").iterdir())


def check_contents() -> str:
    """Compare both archives with the tree; raises `CheckFailed` with what is missing or too much.

    The wheel has every file of the package, its SQL, its pages and its data, and no other.
    """
    tree = source_files(ROOT)
    (wheel,) = (path for path in built() if path.suffix == ".whl")
    (sdist,) = (path for path in built() if path.suffix == ".gz")
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    _compare(
        "the wheel", names, {name.removeprefix("src/") for name in tree if name.startswith("src/")}
    )
    with tarfile.open(sdist) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()} - {"PKG-INFO", ".gitignore"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    _compare("the sdist", held, sdist_files(tree, included))
    data = sum(not name.endswith(".py") for name in names)
    return f"{len(names)} files in the wheel, {data} of them data; {len(held)} in the sdist"


def check_metadata() -> str:
    """Have twine check what an index would show."""
    _run([TOOLS / "twine", "check", "--strict", *built()])
    return "both passed"


def source_files(root: Path) -> set[str]:
    """What git has, or would take, of a tree."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (root / name).is_file()}


def sdist_files(tree: Iterable[str], included: Iterable[str]) -> set[str]:
    """Those of a tree that the patterns of `include` name; the build back end adds three more."""
    folders = tuple(f"{one.strip('/')}/" for one in included if "*" not in one)
    always = {"pyproject.toml", "LICENSE", "Makefile"}
    return {
        name
        for name in tree
        if name.startswith(folders) or name in always or ("/" not in name and name.endswith(".md"))
    }


def _compare(what: str, held: set[str], wanted: set[str]) -> None:
    for word, names in (("lacks", wanted - held), ("has too much:", held - wanted)):
        if names:
            shown = ", ".join(sorted(names)[:5])
            raise CheckFailed(f"{what} {word} {shown}" + (" ..." if len(names) > 5 else ""))  # noqa: PLR2004 - as many as are shown


# --- what is installed ---------------------------------------------------------------------------


def find_python(version: str) -> Path | None:
    """An interpreter of that version, installed by uv if it isn't here; None if it can't be had."""
    if "/" in version:
        return Path(version)
    if found := _uv_python(version) or _pyenv_python(version):
        return found
    return _uv_python(version) if _install(version) else None


def _uv_python(version: str) -> Path | None:
    words = [str(TOOLS / "uv"), "python", "find", "--no-project", version]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def _install(version: str) -> bool:
    words = [str(TOOLS / "uv"), "python", "install", "--quiet", version]
    installed = subprocess.run(words, capture_output=True, check=False)
    return installed.returncode == 0


def _pyenv_python(version: str) -> Path | None:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return found[-1] if found else None


def with_pip(wheel: Path, python: Path, folder: Path) -> Path:
    """Into a new environment, by pip."""
    _run([TOOLS / "uv", "venv", "--quiet", "--seed", "--python", python, folder])
    _run([folder / "bin/python", "-m", "pip", "install", "--quiet", f"{wheel}[{EXTRAS}]"])
    return folder / "bin/abreast"


def with_uv_tool(wheel: Path, python: Path, folder: Path) -> Path:
    """As a tool of uv."""
    places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    words = ["tool", "install", "--quiet", "--python", python, f"{wheel}[{EXTRAS}]"]
    _run([TOOLS / "uv", *words], places)
    return folder / "bin/abreast"


def with_pipx(wheel: Path, python: Path, folder: Path) -> Path:
    """By pipx."""
    places = {"PIPX_HOME": str(folder / "home"), "PIPX_BIN_DIR": str(folder / "bin")}
    _run([TOOLS / "pipx", "install", "--python", python, f"{wheel}[{EXTRAS}]"], places)
    return folder / "bin/abreast"


INSTALLERS: dict[str, Installer] = {"pip": with_pip, "uv tool": with_uv_tool, "pipx": with_pipx}


def try_out(install: Installer, python: Path) -> str:
    """Install the wheel, and try commands; returns what was tried."""
    (wheel,) = (path for path in built() if path.suffix == ".whl")
    with tempfile.TemporaryDirectory(prefix="abreast-release-") as folder:
        command = install(wheel, python, Path(folder) / "environment")
        return smoke(command, Path(folder))


def smoke(command: Path, folder: Path) -> str:
    """Try the command in an empty directory, with a new home; raises `CheckFailed`.

    The embedded model is asked if its weights are in the cache of whoever started the check.
    """
    work = folder / "work"
    work.mkdir()
    home = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONWARNINGS": "error"}

    def abreast(*words: str, given: str = "") -> str:
        return _run([command, *words], home, cwd=work, given=given, timeout=SMOKE_TIMEOUT)

    wheel = next(path.name for path in built() if path.suffix == ".whl")
    _expect("--version", abreast("--version"), f"abreast {wheel.split('-')[1]}")
    python = next(
        line for line in abreast("doctor").splitlines() if line.startswith("ok       abreast")
    )
    said = abreast("map", "--quiet", "--width", "2", "--", "echo", "{}", given="a\nb\nc\n")
    _expect("map", said, "a\nb\nc")
    _expect("runs", abreast("runs", "--json").count('"state":"done"'), 1)
    tried = ["--version", "doctor", "map"]
    if weights_are_cached():
        words = (
            "-m",
            "local/smollm2",
            "--breadth",
            "2",
            "--max-tokens",
            "16",
            "--seed",
            "1",
            "--quiet",
        )
        prompt = "Answer with one word: what is the capital of France?"
        abreast("sample", *words, "--check", "min-words 1", prompt)
        tried.append("sample")
    else:
        tried.append("no sample: the weights are not cached")
    return f"{', '.join(tried)}: {python.partition(': ')[2]}"


def weights_are_cached() -> bool:
    """Whether the embedded model can answer without a download."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "abreast"
    return any(Path(os.environ.get("ABREAST_CACHE") or caches).glob(f"{WEIGHTS}*"))


def _expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise CheckFailed(f"abreast {what} printed {got!r}, not {wanted!r}")


# --- the image -----------------------------------------------------------------------------------


def try_dockerfile() -> str:
    """Run what the Dockerfile's first stage runs, in a directory; then its command, and the page.

    It needs no Docker: the copies and commands are the image's, on the Python of this environment.
    """
    with tempfile.TemporaryDirectory(prefix="abreast-image-") as folder:
        root = Path(folder)
        places = {"/opt/abreast": str(root / "opt"), "/build": str(root / "build")}
        for words in build_stage((ROOT / "Dockerfile").read_text("utf-8"), places):
            if words[0] == "COPY":
                for name in words[1:-1]:
                    _copy(ROOT / name, Path(words[-1]))
            else:
                path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
                _run(["sh", "-ec", words[1]], {"PATH": path}, cwd=root)
        tried = smoke(root / "opt/bin/abreast", root)
        return f"{tried}; ui: {first_page(root / 'opt/bin/abreast', root)}"


def build_stage(dockerfile: str, places: Mapping[str, str]) -> list[list[str]]:
    """The COPY and RUN lines of the first stage, with directories of the image replaced."""
    stage = re.split(r"(?m)^FROM ", re.sub(r"\\\n", " ", dockerfile))[1]
    for theirs, ours in places.items():
        stage = re.sub(rf"(?<![\w/]){theirs}(?![\w-])", ours, stage)
    found = []
    for line in stage.splitlines():
        word, _, rest = line.partition(" ")
        if word == "COPY":
            found.append([word, *rest.split()])
        elif word == "RUN":
            found.append([word, rest])
    return found


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def first_page(command: Path, work: Path) -> str:
    """Start `abreast ui`, fetch the page whose address it prints, and end it."""
    words = [str(command), "ui", "--port", "0", "--json"]
    variables = {**os.environ, "HOME": str(work)}
    with subprocess.Popen(words, cwd=work, env=variables, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or not (line := process.stdout.readline()):
                raise CheckFailed("abreast ui ended without an address")
            with urlopen(json.loads(line)["address"], timeout=60) as reply:  # noqa: S310 - of loopback
                return f"{reply.status}, {len(reply.read()):,} bytes"
        finally:
            process.terminate()


# --- commands ------------------------------------------------------------------------------------


def _run(
    words: Iterable[str | Path],
    variables: Mapping[str, str] | None = None,
    *,
    cwd: Path = ROOT,
    given: str = "",
    timeout: float = INSTALL_TIMEOUT,
) -> str:
    """Run a command to its end, without any environment of Python that is active; its stdout."""
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    cache = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"))
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    line = [str(word) for word in words]
    try:
        ended = subprocess.run(
            line,
            cwd=cwd,
            env={**inherited, "XDG_CACHE_HOME": cache, **(variables or {})},
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"not done after {timeout:.0f} s: {' '.join(line)}") from None
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().splitlines()[-12:]
        raise CheckFailed("\n    ".join([f"exit code {ended.returncode}: {' '.join(line)}", *said]))
    return ended.stdout.rstrip("\n")


def _say(row: CheckRow) -> None:
    print(f"{row.verdict:8} {row.seconds:6.1f} s  {row.what}: {row.detail}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "pythons",
        nargs="*",
        default=list(PYTHONS),
        help=f"versions or paths of interpreters  [{' '.join(PYTHONS)}]",
    )
    parser.add_argument(
        "--strict", action="store_true", help="a Python that can't be had is a failure"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
