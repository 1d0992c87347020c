"""The ownership log, also after a crash at any byte."""

import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

from abreast.worktrees import ownership_log as module
from abreast.worktrees.background import StopRequest
from abreast.worktrees.errors import Interrupted, WorktreesUnavailable
from abreast.worktrees.ownership_log import (
    OwnershipEntry,
    OwnershipLog,
    owner_is_alive,
    process_start,
    repository_lock,
)


def entry(number, **changes):
    facts = {
        "name": f"n{number}",
        "path": f"/p/n{number}",
        "slot": number,
        "pool": 7,
        "repository": "/r",
        "head": None,
    }
    return OwnershipEntry(
        **{**facts, "pid": os.getpid(), "started": process_start(os.getpid()), **changes}
    )


@pytest.fixture
def ledger(tmp_path):
    return OwnershipLog(tmp_path / "ledger.jsonl")


def test_what_is_added_is_there_until_it_is_dropped(ledger, tmp_path):
    assert ledger.entries() == {}
    ledger.add([entry(0), entry(1)])
    assert OwnershipLog(tmp_path / "ledger.jsonl").entries() == {"n0": entry(0), "n1": entry(1)}
    ledger.drop(["n0"])
    assert ledger.entries() == {"n1": entry(1)}
    ledger.drop(["n1", "unheard of"])
    assert ledger.entries() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_line_is_on_the_disk_before_the_call_returns(ledger, tmp_path, monkeypatch):
    synced = []
    sync = os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: (synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())), sync(fd)),
    )
    ledger.add([entry(0)])
    assert synced == [str(tmp_path / "ledger.jsonl"), str(tmp_path)]


def test_a_ledger_cut_at_any_byte_has_the_whole_lines_and_takes_more(ledger, tmp_path):
    file = tmp_path / "ledger.jsonl"
    ledger.add([entry(0)])
    first = file.stat().st_size
    ledger.add([entry(1)])
    whole = file.read_bytes()
    for cut in range(first, len(whole) - 1):
        file.write_bytes(whole[:cut])
        assert ledger.entries().keys() == {"n0"}
        ledger.add([entry(2)])
        assert ledger.entries().keys() == {"n0", "n2"}


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[]",
        b"1",
        b"{}",
        b'{"event": "made", "name": "x"}',
        json.dumps({"event": "gone"}).encode(),
    ],
)
def test_what_cannot_be_read_proves_nothing(ledger, tmp_path, line):
    (tmp_path / "ledger.jsonl").write_bytes(line + b"\n")
    ledger.add([entry(0)])
    assert ledger.entries() == {"n0": entry(0)}


def test_an_owner_is_its_number_and_its_start():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    theirs = entry(0, pid=child.pid, started=process_start(child.pid))
    assert owner_is_alive(theirs)
    assert not owner_is_alive(entry(0, pid=child.pid, started="another boot:1"))
    child.communicate()
    assert not owner_is_alive(theirs)
    assert process_start(child.pid) is None


def test_where_there_is_no_proc_ps_tells_the_start(monkeypatch):
    def refuse(self):
        raise FileNotFoundError(str(self))

    monkeypatch.setattr(module.Path, "read_bytes", refuse)
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    subprocess_run = subprocess.run
    told = []

    def run(words, **options):
        told.append(words)
        return subprocess_run(["echo", "Sun Nov 15"], **options)

    monkeypatch.setattr(module.subprocess, "run", run)
    assert process_start(5) == "Sun Nov 15"
    assert told == [["ps", "-o", "lstart=", "-p", "5"]]


def test_the_lock_is_one_for_all_and_makes_no_file(tmp_path):
    with repository_lock(tmp_path, StopRequest(), 1) as opened:
        assert os.path.samestat(os.fstat(opened), tmp_path.stat())
        with (
            pytest.raises(WorktreesUnavailable, match="locked for 0 s"),
            repository_lock(tmp_path, StopRequest(), 0),
        ):
            pytest.fail("two have it")
        stop = StopRequest()
        stop.ask()
        with pytest.raises(Interrupted), repository_lock(tmp_path, stop, 60):
            pytest.fail("two have it")
    with repository_lock(tmp_path, StopRequest(), 0):
        assert list(tmp_path.iterdir()) == []


def test_the_lock_ends_with_the_block_even_if_a_child_holds_its_file(tmp_path):
    with repository_lock(tmp_path, StopRequest(), 0) as opened:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[opened])
    probe = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(probe)
    child.communicate()
