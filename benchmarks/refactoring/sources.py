"""The package that the trial renames in: networkx, or a small one that is written here."""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

NETWORKX = "networkx==3.4.2"
_NAMED = ("-c", "user.name=trial", "-c", "user.email=trial@example.org")


@dataclass(frozen=True, slots=True)
class Refactoring:
    """What is renamed, in which package."""

    package: str
    names: dict[str, str]
    """The new name of each old one; a person edits the line that defines the first."""
    min_files: int = 10
    split: str = ""
    """The name of a part that is split in two, if none of the package's directories is."""

    @property
    def prompt(self) -> str:
        """The names as the agents are told."""
        return " ".join(f"{old}={new}" for old, new in self.names.items())


IN_NETWORKX = Refactoring(
    "networkx",
    {"NetworkXNotImplemented": "NetworkXUnsupported", "not_implemented_for": "unsupported_for"},
)
IN_SMALL = Refactoring("shop", {"price_of": "cost_of"}, min_files=4, split="shop/area00/*")


def download_networkx(folder: Path) -> None:
    """Put the sources of networkx, with its tests, into a directory; exits with 2 without them."""
    wheels = folder.parent / "wheels"
    words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", str(wheels))
    argv = [sys.executable, "-m", "pip", *words, NETWORKX]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        print(f"{NETWORKX} can't be downloaded: {why}; try --small", file=sys.stderr)
        raise SystemExit(2)
    with zipfile.ZipFile(next(wheels.glob("networkx-*.whl"))) as wheel:
        wheel.extractall(
            folder, [name for name in wheel.namelist() if name.startswith("networkx/")]
        )


def write_small(folder: Path, directories: int = 12) -> None:
    """Write a package of some directories, each with modules and tests that use one function."""
    shop = folder / "shop"
    _write(shop / "__init__.py", "")
    _write(shop / "prices.py", "def price_of(count):\n    return 3 * count\n")
    for number in range(directories):
        area = shop / f"area{number:02}"
        _write(area / "__init__.py", "")
        _write(area / "tests/__init__.py", "")
        for name in ("cart", "stock", "words"):
            place = f"shop.area{number:02}.{name}"
            _write(
                area / f"{name}.py",
                f"from shop.prices import price_of\n\n\ndef {name}(count):\n"
                f"    return price_of(count) + {number}\n",
            )
            _write(
                area / f"tests/test_{name}.py",
                f"from shop.prices import price_of\nfrom {place} import {name}\n\n\n"
                f"def test_{name}():\n    assert {name}(2) == price_of(2) + {number}\n",
            )


def make_repository(folder: Path) -> None:
    """Commit a directory, with all that an undo has to leave alone or to bring back."""
    _write(folder / "tools/check.sh", "#!/bin/sh\nexec true\n")
    (folder / "tools/check.sh").chmod(0o755)
    (folder / "latest").symlink_to("tools/check.sh")
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "trial"),
        ("config", "user.email", "trial@example.org"),
        ("add", "-A"),
        ("commit", "-q", "-m", "The package as it is published"),
        ("tag", "published"),
    ):
        _git(folder, *words)
    _write(folder / "tools/check.sh", "#!/bin/sh\nexec false\n")
    _git(folder, "stash", "-q")
    _write(folder / "tools/own.txt", "not committed\n")


def _write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *_NAMED, *words], cwd=folder, check=True)
