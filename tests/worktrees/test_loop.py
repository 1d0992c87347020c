"""The pool touches no file in the thread of the event loop: a slow disk delays nothing else."""

import json
import subprocess
import sys

SCRIPT = """
import asyncio, json, sys, threading

from abreast.worktrees.pool import open_worktrees

repository, cache = sys.argv[1:]
TOUCHES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir",
           "os.link", "os.symlink", "os.chmod", "os.truncate", "os.utime", "shutil.")
touched = {"the loop": [], "others": []}
loop, watching = threading.get_ident(), []


def watch(event, given):
    if not watching or not event.startswith(TOUCHES):
        return
    if not any(str(one).startswith((repository, cache)) for one in given):
        return
    thread = "the loop" if threading.get_ident() == loop else "others"
    touched[thread].append(f"{watching[-1]}: {event} {given[0]}")


async def main():
    watching.append("open")
    async with open_worktrees(repository, 3, ignored=True) as trees:
        watching.append("digest")
        await trees.digest()
        await trees.ignored_digest()
        watching.clear()
        for slot in trees.slots:  # what a candidate has done
            (slot.path / "README").write_text("changed")
            (slot.path / "pkg/words.py").unlink()
            (slot.path / "new").mkdir()
            (slot.path / "new/file").write_text("x")
        watching.append("reset")
        await asyncio.gather(*(slot.reset() for slot in trees.slots))
        watching.append("close")
    watching.clear()

sys.addaudithook(watch)
asyncio.run(main())
print(json.dumps(touched))
"""


def test_no_file_is_touched_in_the_thread_of_the_loop(repository, cache):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, repository, cache],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    touched = json.loads(done.stdout)
    seen = {one.partition(":")[0] for one in touched["others"]}
    assert seen >= {"open", "reset", "close"}  # it was watched
    assert touched["the loop"] == []
