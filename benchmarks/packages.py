"""Tries candidates for functions of real packages, by the packages' own tests.

    python -m benchmarks.packages                      # all: about an hour
    python -m benchmarks.packages toolz networkx.groups
    python -m benchmarks.packages --show               # the tables of what is known

The packages are fetched by pip, into `build/packages`, with an environment of their own; nothing of
them is part of this repository. `corpus/packages/PACKAGE/FUNCTION/KIND.py` are the candidates, of
the kinds of `benchmarks.corpus`. What `abreast optimize` said is a line in `build/packages.jsonl`:
stopped, it goes on with the next function.

It prints a table for each package, and ends with 1 if a candidate that is wrong or cheats was
accepted, or if less than 95% of the correct and really faster ones were.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.archives import only_data
from benchmarks.corpus import ENOUGH, GOOD, LONGEST, Result, Told, faults, table

TOP = Path(__file__).resolve().parent.parent
CANDIDATES = TOP / "corpus" / "packages"
BUILD = TOP / "build" / "packages"
KNOWN = TOP / "build" / "packages.jsonl"
FETCH_SECONDS = 900
# Of the project's environment, no plugins but pytest's own.
SETTINGS = "[pytest]\naddopts = -p no:cacheprovider\n"


@dataclass(frozen=True, slots=True)
class Package:
    """A package as pip finds it: a wheel if that has the tests, else the archive of its source."""

    requirement: str
    functions: tuple[tuple[str, str], ...]
    """The target and its tests, each from the top of what was unpacked."""
    wheel: bool = True
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.requirement.partition("==")[0]

    @property
    def place(self) -> Path:
        return BUILD / self.name


DOCTESTS = "--doctests"
PACKAGES = (
    Package(
        "toolz==1.0.0",
        (
            ("toolz/itertoolz.py::frequencies", "toolz/tests/test_itertoolz.py"),
            ("toolz/dicttoolz.py::merge_with", "toolz/tests/test_dicttoolz.py"),
            ("toolz/itertoolz.py::partition_all", "toolz/tests/test_itertoolz.py"),
        ),
    ),
    Package(
        "networkx==3.4.2",
        tuple(
            (f"networkx/utils/misc.py::{name}", "networkx/utils/tests/test_misc.py")
            for name in ("flatten", "make_list_of_ints", "groups")
        ),
    ),
    Package(
        "boltons==25.0.0",
        (
            ("boltons/strutils.py::format_int_list", "tests/test_strutils.py"),
            ("boltons/strutils.py::complement_int_list", DOCTESTS),  # it has no others
            ("boltons/iterutils.py::chunk_ranges", "tests/test_iterutils.py"),
        ),
        wheel=False,
        needs=("pytest<9",),  # its conftest.py takes an argument that pytest 9 has removed
    ),
    Package(
        "numpy-financial==1.0.0",
        (("numpy_financial/_financial.py::mirr", "numpy_financial/tests/test_financial.py"),),
        needs=("numpy<2",),
    ),
    Package(
        "humanize==4.12.3",
        (("src/humanize/number.py::intcomma", "tests/test_number.py::test_intcomma"),),
        wheel=False,
        needs=("freezegun",),
    ),
)


@dataclass(frozen=True, slots=True)
class PackageFunction:
    """One function of a package, with its candidates."""

    package: Package
    target: str
    tests: str

    @property
    def name(self) -> str:
        return f"{self.package.name}.{self.target.rpartition('::')[2]}"

    @property
    def folder(self) -> Path:
        return CANDIDATES / self.package.name / self.name.removeprefix(f"{self.package.name}.")

    @property
    def digest(self) -> str:
        """Of what is tried: other candidates, or another version, are another trial."""
        held = hashlib.sha256(f"{self.package.requirement} {self.target} {self.tests}".encode())
        for path in sorted(self.folder.glob("*.py")):
            held.update(path.name.encode() + path.read_bytes())
        return held.hexdigest()[:16]


def functions(names: list[str]) -> list[PackageFunction]:
    """Those of these names, which are packages or PACKAGE.FUNCTION; all if there is none."""
    every = [PackageFunction(one, *each) for one in PACKAGES for each in one.functions]
    wanted = set(names)
    found = [one for one in every if not wanted or {one.name, one.package.name} & wanted]
    if unknown := wanted - {word for one in every for word in (one.name, one.package.name)}:
        sys.exit(f"not among the packages: {', '.join(sorted(unknown))}")
    return found


# --- fetching


def fetch(package: Package) -> Path:
    """Return the Python that has what a package needs; fetch and unpack it if it isn't there."""
    environment = package.place / "env"
    python = environment / "bin" / "python"
    tree = package.place / "tree"
    if not (tree / ".git").exists():
        package.place.mkdir(parents=True, exist_ok=True)
        venv.create(environment, with_pip=True, clear=True)
        _pip(python, "install", "pytest", *package.needs)
        files = package.place / "files"
        how = "--only-binary" if package.wheel else "--no-binary"
        _pip(
            *(python, "download", "--no-deps", how, ":all:"),
            *("--dest", str(files), package.requirement),
        )
        (archive,) = files.iterdir()
        _unpack(archive, tree)
        _commit(tree)
    return python


def _pip(python: Path, *words: str) -> None:
    command = [str(python), "-m", "pip", *words, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
    )
    if done.returncode:
        sys.exit(f"pip {words[0]}: {done.stderr.strip()[-600:]}")


def _unpack(archive: Path, tree: Path) -> None:
    """Unpack a wheel, or an archive of sources without its first directory."""
    tree.mkdir(exist_ok=True)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(tree)
        return
    with only_data(tarfile.open(archive)) as source:
        for member in source.getmembers():
            member.name = member.name.partition("/")[2]
            if member.name:
                source.extract(member, tree)


def _commit(tree: Path) -> None:
    if not any((tree / name).exists() for name in ("pyproject.toml", "tox.ini", "setup.cfg")):
        (tree / "pytest.ini").write_text(SETTINGS, "utf-8")
    who = ("-c", "user.name=packages", "-c", "user.email=packages@example.com")
    for words in (("init", "-q", "."), ("add", "--all"), (*who, "commit", "-qm", "as fetched")):
        subprocess.run(["git", *words], cwd=tree, check=True, timeout=60)


# --- trying


def tried(function: PackageFunction, width: int) -> Told:
    """Run `abreast optimize` for one function: all of its candidates."""
    python, began = fetch(function.package), time.perf_counter()
    command = [
        *(sys.executable, "-m", "abreast", "optimize", function.target),
        *((DOCTESTS,) if function.tests == DOCTESTS else ("--tests", function.tests)),
        *("--python", str(python)),
        *("--candidates", str(function.folder), "--width", str(width)),
        *("--json", "--quiet", "--store", str(BUILD / "runs.db")),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=function.package.place / "tree",
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST,
            env={**os.environ, "PYTHONPATH": str(TOP / "src")},
        )
        facts = json.loads(done.stdout)["candidates"]
    except subprocess.TimeoutExpired:
        return Told(function.name, function.digest, (), time.perf_counter() - began, hangs=1)
    except (ValueError, KeyError):
        sys.exit(f"{function.name}: {' '.join(done.stderr.split())[-500:]}")
    results = tuple(
        Result(function.name, one["name"], one["verdict"], one["reason"]) for one in facts
    )
    return Told(function.name, function.digest, results, time.perf_counter() - began)


def known(path: Path, chosen: list[PackageFunction]) -> dict[str, Told]:
    """What is known of the chosen functions and their candidates of now."""
    digests = {one.name: one.digest for one in chosen}
    found = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            one = Told.of(line)
        except (ValueError, TypeError, KeyError):
            continue  # cut off
        if digests.get(one.specimen) == one.digest:
            found[one.specimen] = one
    return found


def say(told: list[Told]) -> bool:
    """Print a table for each package; return whether all is as it should be."""
    by_package: dict[str, list[Result]] = {}
    for one in told:
        by_package.setdefault(one.specimen.partition(".")[0], []).extend(one.results)
    for package, results in by_package.items():
        print(f"{package}\n{table(results)}\n")
    every = [result for one in told for result in one.results]
    fast = [one for one in every if one.kind == "fast-correct"]
    taken = sum(one.verdict == "faster" for one in fast)
    bad = sum(one.kind not in GOOD and one.verdict == "faster" for one in every)
    hangs = sum(one.hangs for one in told)
    print(
        f"{len(every)} candidates of {len(told)} functions of {len(by_package)} packages; "
        f"{taken} of {len(fast)} fast and correct ones accepted, "
        f"{bad} wrong or cheating ones; {hangs} hangs"
    )
    wrong = faults(every, "faster")
    print("\n".join(wrong) or f"nothing was taken for what it is not, at {ENOUGH:.0%}")
    return not wrong and not hangs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="packages, or PACKAGE.FUNCTION; all if none")
    parser.add_argument("--width", type=int, default=2, help="slots")
    parser.add_argument("--show", action="store_true", help="try nothing, show what is known")
    parser.add_argument("--known", type=Path, default=KNOWN, help="where what is known is kept")
    given = parser.parse_args()
    chosen = functions(given.names)
    found = known(given.known, chosen)
    for one in () if given.show else chosen:
        if one.name not in found:
            found[one.name] = tried(one, given.width)
            for result in found[one.name].results:
                told = f"{one.name}/{result.candidate}: {result.verdict} {result.reason}"
                print(told[:200], file=sys.stderr, flush=True)
            given.known.parent.mkdir(parents=True, exist_ok=True)
            with given.known.open("a", encoding="utf-8") as file:
                file.write(found[one.name].line())
    sys.exit(0 if say(list(found.values())) else 1)


if __name__ == "__main__":
    main()
