"""A store that can't be written is listed, shown and exported.

What would write says one sentence, and exits with 2.
"""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest

from tests.cli.shell import ABREAST
from tests.fixtures.recorded.load import load

READS = (
    ("runs", "--json"),
    ("show", "job", "--json"),
    ("show", "job", "0001", "--json"),
    ("export", "job"),
)


def read_only(folder, *arguments):
    """Run abreast where `folder` is mounted read-only, in a mount namespace of its own."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        script,
        str(folder),
        *ABREAST,
        *map(str, arguments),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def mounted(tmp_path):
    """A folder that can be mounted read-only; skipped where that can't be."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("only root can mount a folder read-only")
    tried = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"',
            str(folder),
        ],
        capture_output=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"no folder can be mounted read-only here: {tried.stderr.decode()}")
    return folder


def answers(abreast, store):
    return [abreast(*arguments, "--store", store).out for arguments in READS]


def one_run(abreast, store):
    assert abreast("map", "--name", "job", "--store", store, "--", "echo", given="a\nb\n").code == 0


def test_a_store_on_a_read_only_mount_is_listed_shown_and_exported(abreast, mounted):
    store = mounted / "runs.db"
    one_run(abreast, store)
    expected = answers(abreast, store)
    before = sorted(path.name for path in mounted.iterdir())
    found = [read_only(mounted, *arguments, "--store", store) for arguments in READS]
    assert [said.stdout for said in found] == expected
    assert [(said.returncode, said.stderr) for said in found] == [(0, "")] * len(READS)
    assert sorted(path.name for path in mounted.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("map", "--name", "job", "--", "true"),
        ("rm", "job-1"),
        ("retry", "job"),
        ("resume", "job-1"),
    ],
)
def test_what_would_write_says_one_sentence_and_exits_with_2(abreast, mounted, arguments):
    store = mounted / "runs.db"
    one_run(abreast, store)
    first, rest = arguments[0], arguments[1:]
    said = read_only(mounted, first, "--store", store, *rest)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1), said
    assert f"{store} can't be written" in said.stderr


def test_a_copy_with_a_log_beside_it_shows_what_is_only_in_the_log(abreast, mounted, tmp_path):
    store = tmp_path / "runs.db"
    with closing(sqlite3.connect(store)) as holder:  # as long as it is open, the log stays
        one_run(abreast, store)
        holder.execute("SELECT count(*) FROM runs").fetchall()
        one_run(abreast, store)
        expected = answers(abreast, store)
        for name in ("runs.db", "runs.db-wal"):
            shutil.copyfile(tmp_path / name, mounted / name)
    assert (mounted / "runs.db-wal").stat().st_size
    found = [
        read_only(mounted, *arguments, "--store", mounted / "runs.db").stdout for arguments in READS
    ]
    assert found == expected


def test_what_a_killed_driver_of_before_had_only_noted_is_shown(abreast, mounted):
    store = load(mounted, "http://127.0.0.1:9")
    before = {path: path.stat().st_size for path in mounted.rglob("*") if path.is_file()}
    noted = read_only(mounted, "export", "map-3", "--store", store)
    assert (noted.returncode, noted.stderr) == (0, "")
    assert '"state":"crashed"' in read_only(mounted, "runs", "--json", "--store", store).stdout
    assert {path: path.stat().st_size for path in mounted.rglob("*") if path.is_file()} == before
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        (committed,) = db.execute(
            "SELECT count(*) FROM events WHERE kind = 'item-settled'"
            " AND run = (SELECT rowid FROM runs WHERE id = 'map-3')"
        ).fetchone()
    assert noted.stdout.count('"state":"done"') > committed
    # This commits them.
    assert noted.stdout == abreast("export", "map-3", "--store", store).out
