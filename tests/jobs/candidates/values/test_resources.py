"""Locks, open files, random generators and other resources: compared by state, or refused."""

import asyncio
import os
import queue
import socket
import sys
import threading
from random import Random
from textwrap import dedent

import numpy as np
import pytest

from abreast.jobs.candidates.behaviour.traced_run import Tests
from abreast.jobs.candidates.evaluator import Bounds, Evaluator
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.compare import compare
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.pool import open_worktrees
from tests.jobs.candidates.projects import quick
from tests.jobs.candidates.watched import open_project, use_cache
from tests.worktrees.repositories import make_repository


class Held:
    def __init__(self, **parts):
        self.__dict__.update(parts)


def held_lock():
    lock = threading.Lock()
    lock.acquire()
    return lock


def held_twice():
    lock = threading.RLock()
    lock.acquire()
    lock.acquire()
    return lock


def set_event():
    event = threading.Event()
    event.set()
    return event


def drawn(make):
    made = make()
    made.random()
    return made


@pytest.mark.parametrize(
    ("make", "other", "at"),
    [
        (threading.Lock, held_lock, "$.locked"),
        (threading.RLock, held_twice, "$.held"),
        (threading.Event, set_event, "$._flag"),
        (threading.Condition, lambda: threading.Condition(held_twice()), "$."),
        (lambda: threading.Semaphore(2), lambda: threading.Semaphore(1), "$._value"),
        (queue.Queue, lambda: queue.Queue(3), "$.maxsize"),
        (asyncio.Lock, Held, "$"),
        (lambda: Random(1), lambda: drawn(lambda: Random(1)), "$["),
        (
            lambda: np.random.default_rng(1),
            lambda: drawn(lambda: np.random.default_rng(1)),
            "$.bit_generator",
        ),
        (
            lambda: np.random.RandomState(1),
            lambda: drawn(lambda: np.random.RandomState(1)),
            "$.bit_generator",
        ),
        (lambda: np.random.SeedSequence(1), lambda: np.random.SeedSequence(2), "$.state"),
    ],
)
def test_what_has_a_state_is_compared_by_it(make, other, at):
    assert compare(make(), make()).outcome == "same"
    assert compare(Held(part=make()), Held(part=make())).outcome == "same"
    verdict = compare(make(), other())
    assert verdict.outcome == "different"
    assert verdict.path.startswith(at)


def test_two_generators_that_draw_from_the_same_bits_are_not_two_that_draw_from_their_own():
    bits = np.random.PCG64(1)
    shared = [np.random.Generator(bits), np.random.Generator(bits)]
    apart = [np.random.Generator(np.random.PCG64(1)), np.random.Generator(np.random.PCG64(1))]
    assert compare(shared, apart).outcome == "different"


def test_a_file_is_its_name_mode_and_position_wherever_its_directory_is(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("some text")
    (tmp_path / "b.txt").write_text("some text")
    here, there = tmp_path / "here" / "a.txt", tmp_path / "there" / "a.txt"
    for mode in ("r", "rb", "r+", "r+b"):
        with (
            here.open(mode) as one,
            there.open(mode) as two,
            (tmp_path / "b.txt").open(mode) as three,
        ):
            assert compare(one, two).outcome == "same"
            assert compare(one, three).path == "$.name"
            two.read(3)
            assert compare(one, two).path == "$.position"
            assert one.tell() == 0
        with here.open(mode) as one:
            assert compare(one, two).path == "$.closed"
    with here.open("rb") as one, here.open("rb", buffering=0) as two:
        assert compare(one, two).outcome == "different"


def test_a_file_whose_position_can_not_be_read_is_named():
    reading, writing = os.pipe()
    with os.fdopen(reading) as one, os.fdopen(writing, "w"):
        verdict = compare(one, one)
    assert (verdict.outcome, verdict.reason) == (
        "cannot_compare",
        "the position in an open file can't be read",
    )


def test_every_place_that_can_not_be_compared_is_named_and_all_else_is_compared():
    with socket.socket() as one, socket.socket() as two:
        ours = Held(a=1, thread=threading.Thread(), link=one, z=[1])
        same = Held(a=1, thread=threading.Thread(), link=two, z=[1])
        verdict = compare(ours, same)
        assert verdict.outcome == "cannot_compare"
        assert [(place.path, place.reason) for place in verdict.places] == [
            ("$.link", "a socket can't be compared"),
            ("$.thread", "a thread can't be compared"),
        ]
        same.z.append(2)
        verdict = compare(ours, same)
        assert (verdict.outcome, verdict.path) == ("different", "$.z[1]")


# --- in a project

COUNTER = """
import socket
import threading

import numpy as np


class Counter:
    def __init__(self, link=None):
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._draws = np.random.default_rng(7)
        self._link = link
        self.count = 0

    def add(self, number, feed=None):
        with self._lock:
            self.count += number
            self._draws.integers(10)
            return self.count
"""
TEST_COUNTER = """
from counter import Counter

async def feed():
    yield 1

def test_it():
    counter = Counter()
    assert counter.add(1) == 1
    assert counter.add(2, feed()) == 3
"""
TEST_LINK = """
import socket
from counter import Counter

def test_link():
    with socket.socket() as link:
        assert Counter(link).add(1) == 1
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    use_cache(monkeypatch, tmp_path)
    monkeypatch.setenv("ABREAST_LOCKS", str(tmp_path / "locks"))


@pytest.mark.usefixtures("cache", "unconfined")
async def test_an_object_with_a_lock_and_a_generator_is_compared_like_any_other(tmp_path):
    files = {"counter.py": COUNTER, "test_counter.py": TEST_COUNTER}
    async with open_project(
        tmp_path / "counter", files, "counter.py::Counter.add", ("test_counter.py",)
    ) as project:
        assert (await project.judge(COUNTER)).verdict == "same"
        undrawn = await project.judge(COUNTER.replace("            self._draws.integers(10)\n", ""))
        assert undrawn.verdict == "wrong"
        assert "bit_generator" in undrawn.reason
        held = await project.judge(
            COUNTER.replace("return self.count", "self._ready.set()\n            return self.count")
        )
        assert held.verdict == "wrong"
        assert "_ready._flag" in held.reason


@pytest.mark.usefixtures("cache", "unconfined")
async def test_what_can_not_be_compared_leaves_a_candidate_undecided_and_is_named(tmp_path):
    files = {"counter.py": COUNTER, "test_counter.py": TEST_LINK}
    make_repository(
        tmp_path / "counter", quick({name: dedent(text) for name, text in files.items()})
    )
    target = Target("counter.py", "Counter.add")
    bench = Evaluator(
        target,
        COUNTER,
        Tests(("test_counter.py",), sys.executable),
        Bounds(limits=ResourceLimits(seconds=60)),
    )
    async with open_worktrees(tmp_path / "counter", 2) as trees:
        slot, original = trees.slots
        bench.ready(await bench.begin(original), original)
        found = {}
        for name, text in {
            "right": COUNTER.replace("self.count += number", "self.count = self.count + number"),
            "wrong": COUNTER.replace("self.count += number", "self.count += number + 1 - 1.0"),
        }.items():
            await slot.reset()
            slot.write_candidate(target.file, text)
            found[name] = await bench.check(slot, text)
    assert found["right"].verdict == "undecided"
    assert (
        found["right"].reason
        == "some of it can't be compared: self._link: a socket can't be compared"
    )
    (diff,) = found["right"].diffs
    assert str(diff).startswith(
        "test_counter.py::test_link#0: self._link: a socket can't be compared (original"
    )
    assert found["wrong"].verdict == "wrong"
