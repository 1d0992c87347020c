"""What a node keeps and what it removes."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from abreast.core.clock import SYSTEM_CLOCK
from abreast.worktrees.background import StopRequest
from abreast.worktrees.nodes.cache import KEEP_SECONDS, NodeCache
from abreast.worktrees.nodes.content import ContentLister

DIES = """
import os, sys
from pathlib import Path
from abreast.worktrees.nodes.cache import NodeCache
with NodeCache(Path(sys.argv[1])).workplace() as place:
    (place / "file").write_text("x")
    print(place, flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), 9)
"""


def test_what_a_dead_process_left_is_removed_and_what_a_living_one_has_stays(tmp_path):
    living = subprocess.Popen(
        [sys.executable, "-c", DIES, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    theirs = Path(living.stdout.readline().strip())
    with NodeCache(tmp_path).workplace() as ours:
        assert ours.is_dir()
        assert theirs.exists()
    assert not ours.exists()
    living.communicate()
    assert theirs.exists()
    with NodeCache(tmp_path).workplace() as ours:
        assert {*(tmp_path / "work").iterdir()} == {ours, ours.with_suffix(".lock")}
    assert [*(tmp_path / "work").iterdir()] == []


def add(cache, text):
    digest = sha256(text).hexdigest()
    with cache.adding(digest) as file:
        file.write(text)
    return digest


def grow_old(path):
    old = SYSTEM_CLOCK.wall() - KEEP_SECONDS - 10
    os.utime(path, (old, old))


def test_files_that_were_not_used_for_a_week_are_removed(tmp_path):
    cache = NodeCache(tmp_path)
    old, used, new = (add(cache, text) for text in (b"old", b"used", b"new"))
    grow_old(cache.file(old))
    grow_old(cache.file(used))
    assert cache.has(used)
    with cache.workplace():
        assert [cache.has(digest) for digest in (old, used, new)] == [False, True, True]


def test_objects_of_git_are_made_once_and_end_with_their_use(tmp_path):
    cache, source = NodeCache(tmp_path / "cache"), tmp_path / "objects"
    (source / "ab").mkdir(parents=True)
    (source / "ab" / "cd").write_bytes(b"object")
    digest = add(cache, b"object")
    content = ContentLister().list(source, StopRequest())
    place = cache.objects(content, StopRequest())
    assert (place / "ab" / "cd").read_bytes() == b"object"
    assert cache.objects(content, StopRequest()) == place
    grow_old(cache.file(digest))
    with cache.workplace():
        assert place.is_dir()
    grow_old(place)
    with cache.workplace():
        assert not place.exists()
