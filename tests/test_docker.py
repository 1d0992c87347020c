"""What Docker would send to a build.

Computed from .dockerignore by Docker's own rules, over a tree full of traps.
"""

import posixpath
import re
import shlex
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

WANTED = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements/image.txt",
    "src/abreast/cli/commands/map.py",
    "src/abreast/py.typed",
)

# None of these may be sent. Those beneath src lie where everything else is sent.
PLANTED = (
    ".env",
    ".env.local",
    "secrets/.env",
    ".git/config",
    ".venv/bin/python",
    ".vscode/settings.json",
    "x.log",
    ".abreast/abreast.db",
    ".peers/dbos/bin/python",
    ".coverage",
    "build/docs/index.html",
    "notes.txt",
    "docs/index.md",
    "requirements/dev.txt",
    "src/pkg/__pycache__/mod.cpython-311.pyc",
    "src/pkg/__pycache__/mod.data",
    "src/.env",
    "src/abreast/.env.local",
    "src/abreast/.envrc",
    "src/abreast/.git/config",
    "src/.venv/bin/python",
    "src/venv/bin/python",
    "src/abreast/server.pem",
    "src/abreast/server.key",
    "src/abreast/mod.pyc",
    "src/abreast/mod.pyo",
    "src/.mypy_cache/3.11/x.json",
    "src/.pytest_cache/README.md",
    "src/.ruff_cache/x",
    "src/.hypothesis/unicode/x",
    "src/.coverage.host.1",
    "src/abreast/.abreast/abreast.db",
    "src/.peers/x/bin/python",
    "src/abreast/x.log",
    "src/.vscode/settings.json",
    "src/.idea/workspace.xml",
    "src/abreast/.map.py.swp",
    "src/abreast/map.py~",
    "src/.DS_Store",
    "src/build/lib/x.py",
    "src/dist/x.whl",
    "src/abreast.egg-info/PKG-INFO",
)


@dataclass(frozen=True)
class Pattern:
    """A line of .dockerignore. Docker cleans it as a path, so that `/a/`, `./a` and `a` are one."""

    text: str
    keeps: bool

    def matches(self, path):
        """Whether it names the path, or a directory above it."""
        parts = path.split("/")
        return any(
            expression(self.text).fullmatch("/".join(parts[: count + 1]))
            for count in range(len(parts))
        )


@cache
def expression(text):
    """A cleaned pattern as a regular expression for whole paths."""
    tokens = re.findall(r"\*\*/?|\*|\?|\[[^]]*]|\\.|[^*?[\\]+|.", text)
    last = len(tokens) - 1
    return re.compile(
        "".join(_translated(token, last=at == last) for at, token in enumerate(tokens))
    )


def _translated(token, *, last):
    if token.startswith("**"):
        return ".*" if last else "(.*/)?"  # any number of directories, none included
    if token.startswith("["):
        return token
    return {"*": "[^/]*", "?": "[^/]"}.get(token) or re.escape(token.removeprefix("\\"))


def patterns_of(text):
    """The patterns in order. A `#` makes a comment at the very start of a line only."""
    found = []
    for line in text.removeprefix("\ufeff").splitlines():
        bare = line.strip()
        if bare and not line.startswith("#"):
            keeps = bare.startswith("!")
            cleaned = posixpath.normpath(bare.removeprefix("!").strip()).lstrip("/")
            found.append(Pattern(cleaned, keeps))
    return found


def is_sent(path, patterns):
    """Whether a file is in the context: the last pattern that matches it decides."""
    return next((pattern.keeps for pattern in reversed(patterns) if pattern.matches(path)), True)


def context(folder, patterns):
    """The files of a folder that are sent."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {path for path in files if is_sent(path, patterns)}


def copied_by(dockerfile):
    """What a Dockerfile copies from its context."""
    lines = re.sub(r"\\\n", " ", dockerfile).splitlines()
    for line in lines:
        words = shlex.split(line, comments=True)
        if (
            words
            and words[0].upper() in ("COPY", "ADD")
            and not any(word.startswith("--from") for word in words)
        ):
            yield from (word for word in words[1:-1] if not word.startswith("--"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A project with all that is wanted, and all that must stay at home."""
    folder = tmp_path_factory.mktemp("context")
    for name in (*WANTED, *PLANTED):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", "utf-8")
    return folder


@pytest.fixture(scope="module")
def patterns():
    return patterns_of((ROOT / ".dockerignore").read_text("utf-8"))


@pytest.fixture(scope="module")
def dockerfile():
    return (ROOT / "Dockerfile").read_text("utf-8")


@pytest.mark.parametrize("name", PLANTED)
def test_what_must_stay_at_home_is_not_sent(tree, patterns, name):
    assert name not in context(tree, patterns)


def test_what_is_wanted_is_sent_and_nothing_else(tree, patterns):
    assert context(tree, patterns) == set(WANTED)


def test_without_any_one_of_its_patterns_the_context_would_be_another(tree, patterns):
    idle = [
        pattern.text
        for at, pattern in enumerate(patterns)
        if context(tree, patterns[:at] + patterns[at + 1 :]) == set(WANTED)
    ]

    assert idle == []


def test_everything_that_the_dockerfile_copies_is_sent(patterns, dockerfile):
    copied = list(copied_by(dockerfile))

    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        files = [ROOT / name] if (ROOT / name).is_file() else list((ROOT / name).rglob("*.py"))
        assert files, name
        assert [
            path for path in files if not is_sent(path.relative_to(ROOT).as_posix(), patterns)
        ] == []


def test_what_is_copied_is_enough_to_build_the_package(patterns, dockerfile, tmp_path):
    for name in copied_by(dockerfile):
        files = (
            [ROOT / name]
            if (ROOT / name).is_file()
            else [path for path in (ROOT / name).rglob("*") if path.is_file()]
        )
        for path in files:
            target = tmp_path / "build" / path.relative_to(ROOT)
            if is_sent(path.relative_to(ROOT).as_posix(), patterns):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())

    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel")],
        cwd=tmp_path / "build",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "wheel").iterdir()
    with zipfile.ZipFile(wheel) as packed:
        held = set(packed.namelist())
    assert {"abreast/cli/main.py", "abreast/py.typed"} <= held
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix not in (".py", ".pyc")]
    data = {path.relative_to(ROOT / "src").as_posix() for path in sources if path.is_file()}
    assert len(data) > 100
    assert data <= held


def test_everything_that_is_sent_is_copied(tree, patterns, dockerfile):
    copied = tuple(copied_by(dockerfile))

    assert [
        name
        for name in context(tree, patterns)
        if not any(f"{name}/".startswith(f"{at}/") for at in copied)
    ] == []


def test_the_image_runs_as_nobody_special(dockerfile):
    last_stage = re.split(r"(?m)^FROM ", dockerfile)[-1]
    users = re.findall(r"(?m)^USER (\S+)", last_stage)

    assert users
    assert users[-1] not in ("root", "0")
    assert last_stage.index("USER ") < last_stage.index("ENTRYPOINT ")


@pytest.mark.parametrize(
    ("lines", "path", "sent"),
    [
        ("", "a/b", True),
        ("a", "a", False),
        ("a", "a/b/c", False),
        ("a", "b/a", True),
        ("a/", "a/b", False),
        ("/a", "a/b", False),
        ("./a//b", "a/b", False),
        ("  a  ", "a", False),
        ("# a", "# a", True),
        (" # a", "# a", False),
        ("*.log", "x.log", False),
        ("*.log", "a/x.log", True),
        ("**/*.log", "x.log", False),
        ("**/*.log", "a/b/x.log", False),
        ("a/**/c", "a/c", False),
        ("a/**/c", "a/b/b/c", False),
        ("a/**", "a/b/c", False),
        ("a/**", "b", True),
        ("a?", "ab", False),
        ("a?", "a", True),
        ("*.py[co]", "x.pyc", False),
        ("*.py[co]", "x.py", True),
        ("a.b", "axb", True),
        (r"a\*", "a*", False),
        (r"a\*", "ab", True),
        ("*\n!a", "a/b", True),
        ("*\n!a", "b", False),
        ("!a\n*", "a", False),
        ("*\n!a\na/b", "a/b/c", False),
        ("*\n!a/b/c", "a/b/c", True),
        ("*\n!a/b/c", "a/b/d", False),
    ],
)
def test_patterns_are_read_as_docker_reads_them(lines, path, sent):
    assert is_sent(path, patterns_of(lines)) is sent
