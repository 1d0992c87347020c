"""Repositories for tests, and snapshots of everything that must not change."""

import os
import stat
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_OPTIONAL_LOCKS": "0",
}


def git(place, *words):
    done = subprocess.run(
        ["git", *words], cwd=place, env=ENVIRONMENT, capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode(errors="surrogateescape")


def write(place, files):
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def make_repository(place, files=None, *config):
    place.mkdir(parents=True)
    git(place, "init", "--quiet", "--initial-branch=main", ".")
    for name, value in config:
        git(place, "config", name, value)
    write(place, files or {"pkg/words.py": "one = 1\n", "README": "read\n"})
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message=first")
    return place


def look(top, *, without=()):
    """Every file, link and directory beneath, with its mode and content."""
    seen = {}
    for above, directories, files in os.walk(top):
        directories[:] = [name for name in directories if name not in without]
        for name in [*directories, *files]:
            path = Path(above) / name
            facts = path.lstat()
            content = str(path.readlink()) if stat.S_ISLNK(facts.st_mode) else None
            content = path.read_bytes() if stat.S_ISREG(facts.st_mode) else content
            seen[str(path.relative_to(top))] = (oct(facts.st_mode), content)
    return seen


def fingerprint(top):
    """Bytes, modes, index, refs, objects and stash: all are files in `top`.

    And what git makes of them.
    """
    return (
        look(top),
        git(top, "status", "--porcelain"),
        git(top, "worktree", "list").splitlines()[1:],
    )


def worktrees(top):
    return [line.split()[0] for line in git(top, "worktree", "list").splitlines()[1:]]


def left_in(cache):
    """What a pool has left in the cache."""
    return (
        sorted(str(path.relative_to(cache)) for path in cache.rglob("*")) if cache.exists() else []
    )


def start_python(program, *args, stdin=subprocess.PIPE, **environment):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    words = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.Popen(
        words, env=env, stdin=stdin, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
