"""Install each peer in a virtualenv of its own: `python -m benchmarks.peers [NAME ...]`."""

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

from benchmarks.archives import only_data

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".peers"

# One environment per peer, so that no peer's dependencies decide another's version.
PINS: dict[str, tuple[str, ...]] = {
    "anyio": ("anyio==4.16.0",),
    "aiometer": ("aiometer==1.0.0", "anyio==4.16.0"),
    "langgraph": ("langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2"),
    "dbos": ("dbos==3.3.0",),
    "httpx": ("httpx==0.28.1",),
    "openai": ("openai[aiohttp]==3.49.0",),
    "litellm": ("litellm==1.106.2",),
    "litellm-proxy": ("litellm[proxy]==1.106.2",),
    "anthropic": ("anthropic==2.9.0",),
    "langchain": ("langchain-openai==1.7.3",),
    "llm": ("llm==0.32.1",),
    "any-llm": ("any-llm-sdk[openai]==1.40.2",),
    "pydantic-ai": ("pydantic-ai-slim[openai]==2.66.0",),
    "inspect-ai": ("inspect-ai==0.3.285", "openai==3.49.0"),
    "mellea": ("mellea==0.8.0",),
    "dspy": ("dspy==3.4.1",),
    "specify-cli": ("specify-cli==1.2.3",),
    "prefect": ("prefect==3.8.4", "fastapi==0.139.0"),
}

# Peers whose own files and tests are read beside them: the source as it was published.
SOURCES = ("specify-cli",)


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, whether or not it exists."""
    return HOME / peer / "bin" / "python"


def is_installed(peer: str) -> bool:
    """Say whether the peer's environment was finished, with the pins of today."""
    stamp = _stamp_of(peer)
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _stamp_text(peer)


def install(peer: str) -> None:
    """Make the peer's environment, or go on with a half-made one.

    Raises CalledProcessError if pip fails.
    """
    if not python_of(peer).exists():
        venv.create(HOME / peer, with_pip=True, symlinks=True)
    pip = [str(python_of(peer)), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run([*pip, *PINS[peer]], check=True)
    if peer in SOURCES:
        _unpack(peer)
    # Written last: an interrupted install has no stamp and is taken up again by the next call.
    _stamp_of(peer).write_text(_stamp_text(peer), encoding="utf-8")


def _unpack(peer: str) -> None:
    """Put the peer's source into `source` of its environment, in place of one that is there."""
    source = HOME / peer / "source"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(python_of(peer)),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "-qq",
            "--no-deps",
        ]
        [name] = [pin for pin in PINS[peer] if pin.startswith(f"{peer}==")]
        subprocess.run([*command, "--no-binary", peer, "--dest", folder, name], check=True)
        [archive] = Path(folder).glob("*.tar.gz")
        with only_data(tarfile.open(archive)) as opened:
            opened.extractall(folder)
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(next(path for path in Path(folder).iterdir() if path.is_dir()), source)


def _stamp_of(peer: str) -> Path:
    return HOME / peer / "installed.txt"


def _stamp_text(peer: str) -> str:
    source = ["with its source"] if peer in SOURCES else []
    return (
        "\n".join(
            (f"python {sys.version_info.major}.{sys.version_info.minor}", *PINS[peer], *source)
        )
        + "\n"
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _install_telling(peer: str, place: str) -> bool:
    if is_installed(peer):
        _say(f"{place} {peer}: already there")
        return True
    _say(f"{place} {peer}: installing {' '.join(PINS[peer])}")
    began = time.perf_counter()
    try:
        install(peer)
    except subprocess.CalledProcessError as error:
        _say(f"{place} {peer}: failed, pip ended with {error.returncode}; call again to go on")
        return False
    _say(f"{place} {peer}: done in {time.perf_counter() - began:.0f} s")
    return True


def main() -> int:
    """Install the named peers, or all of them; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "peers",
        nargs="*",
        metavar="NAME",
        help=f"which of {', '.join(PINS)}; all when none is named",
    )
    names: list[str] = parser.parse_args().peers or list(PINS)
    if unknown := [name for name in names if name not in PINS]:
        parser.error(f"no such peer: {', '.join(unknown)} (there are {', '.join(PINS)})")
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n", encoding="utf-8")
    done = [
        _install_telling(name, f"[{place}/{len(names)}]") for place, name in enumerate(names, 1)
    ]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
