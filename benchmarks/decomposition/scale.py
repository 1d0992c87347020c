"""Measures `abreast plan show` on a generated repository: CPU seconds and peak memory of a child.

Areas of packages of 25 files, of about 1.5 kB each, which import three files of their package and
one of any other; each fifth file is a test of the one before. The bars are 10 s of CPU and 300 MB
for 50,000 files.
"""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_SECONDS = 10.0
MOST_MEGABYTES = 300.0
_BARS_FOR = 50_000
_IN_PACKAGE = 25
_PACKAGES_IN_AREA = 40


@dataclass(frozen=True)
class Language:
    """How a file of a language is named, imports another, and goes on."""

    name: str
    path: Callable[[int], str]
    head: Callable[[str, str], str]
    body: str


def _folder(number: int) -> str:
    package = number // _IN_PACKAGE
    return f"app/area{package // _PACKAGES_IN_AREA}/pkg{package % _PACKAGES_IN_AREA}"


def _tests(number: int) -> int:
    """1 for a test of the file before it, else 0."""
    return int(number % 5 == 4)


def _python_path(number: int) -> str:
    test = _tests(number)
    return f"{_folder(number)}/{'test_' * test}mod{number - test}.py"


def _python_head(_path: str, to: str) -> str:
    module = to.removesuffix(".py").replace("/", ".")
    return f"from {module} import work as {module.rpartition('.')[2]}_work\n"


def _typescript_path(number: int) -> str:
    test = _tests(number)
    return f"{_folder(number)}/mod{number - test}{'.test' * test}.ts"


def _typescript_head(path: str, to: str) -> str:
    source = os.path.relpath(to, Path(path).parent).removesuffix(".ts")
    source = source if source.startswith(".") else f"./{source}"
    return f"import {{ work as {Path(source).name.replace('.', '_')}Work }} from '{source}';\n"


_PYTHON_BODY = '''

def work(count: int, factor: float = 1.5) -> list[float]:
    """Return multiples of the factor, some of them twice."""
    found = []
    for number in range(count):
        if number % 3 == 0:
            found.append(number * factor)  # the first of two
        found.append(f"{number}: {factor}" and number / factor)
    return found
'''
_TYPESCRIPT_BODY = """
/** Returns multiples of the factor, some of them twice. */
export function work(count: number, factor = 1.5): number[] {
  const found: number[] = [];
  for (let number = 0; number < count; number += 1) {
    if (number % 3 === 0) {
      found.push(number * factor); // the first of two
    }
    found.push(`${number}: ${factor}`.length / factor);
  }
  return found;
}
"""
LANGUAGES = (
    Language("Python", _python_path, _python_head, _PYTHON_BODY),
    Language("TypeScript", _typescript_path, _typescript_head, _TYPESCRIPT_BODY),
)


def sources(language: Language, count: int) -> Iterator[tuple[str, str]]:
    """The path and the text of each file."""
    drawn = random.Random(11)
    paths = [language.path(number) for number in range(count)]
    for number, path in enumerate(paths):
        first = number - number % _IN_PACKAGE
        near = [min(count - 1, first + drawn.randrange(_IN_PACKAGE)) for _ in range(3)]
        targets = {paths[to] for to in (*near, drawn.randrange(count))} - {path}
        targets |= {paths[number - 1]} if _tests(number) else set()
        head = "".join(language.head(path, to) for to in sorted(targets))
        yield path, head + language.body * 3


def print_scale(count: int) -> int:
    """Print CPU and memory for each language; 1 if a bar is missed."""
    missed = 0
    for language in LANGUAGES:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in sources(language, count):
                place = root / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
            subprocess.run(["git", "init", "-q"], cwd=root, check=True)
            subprocess.run(["git", "add", "."], cwd=root, check=True)
            seconds, megabytes, said = measure(root)
        missed += count <= _BARS_FOR and (seconds > MOST_SECONDS or megabytes > MOST_MEGABYTES)
        print(
            f"{count:,} files of {language.name}: {seconds:.1f} s of CPU "
            f"(bar {MOST_SECONDS:g}), {megabytes:.0f} MB (bar {MOST_MEGABYTES:g}); {said}"
        )
    return int(missed > 0)


def measure(root: Path) -> tuple[float, float, str]:
    """CPU seconds with those of git, peak memory in MB, and what was said of the subplans."""
    command = [sys.executable, "-m", "abreast", "plan", "show"]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    # Modules are compiled by then, as they are where abreast is installed.
    subprocess.run([*command, "--help"], env=environ, stdout=subprocess.DEVNULL, check=True)
    with tempfile.TemporaryFile("w+") as printed:
        child = subprocess.Popen([*command, str(root)], env=environ, stdout=printed)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise RuntimeError(f"abreast plan show ended with {child.returncode}")
        printed.seek(0)
        [said] = [line for line in printed if "subplans, depth" in line]
    megabyte = 1024 * 1024 if sys.platform == "darwin" else 1024  # of bytes there, else kilobytes
    return used.ru_utime + used.ru_stime, used.ru_maxrss / megabyte, said.strip()
