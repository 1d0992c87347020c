"""Traced runs: every kind of function, every way to reach it, every part of a call."""

import json
from dataclasses import replace
from shutil import which

import pytest

from abreast.jobs.candidates.behaviour import trace, traced_run
from abreast.jobs.candidates.behaviour.traced_run import Watched, judge_behaviour
from abreast.jobs.candidates.rules import STRICT
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees import confinement
from tests.jobs.candidates.traced_here import trace_tests
from tests.jobs.candidates.watched import open_project, use_cache
from tests.worktrees.jails import refuse

NOTHING = Watched(0, 0, (), (), "", "", None, "", ())
WORDS = """
def count(text):
    found = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    return found
"""
TEST_WORDS = """
import pytest
import words
from words import count

@pytest.mark.parametrize("text", ["", "a", "a b a"])
def test_sum(text):
    assert sum(count(text).values()) == len(text.split())

class TestAll:
    def test_both_ways(self):
        assert words.count("b a") == count("b a")
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    use_cache(monkeypatch, tmp_path)


@pytest.fixture
async def words(tmp_path):
    async with open_project(
        tmp_path / "words", {"words.py": WORDS, "test_words.py": TEST_WORDS}
    ) as project:
        yield project


async def test_every_call_has_the_name_of_its_test_and_its_number_and_can_be_read_again(words):
    watched = await words.watch()
    assert (watched.failure, watched.tests, watched.passed) == (None, 4, 4)
    assert [one.name for one in watched.invocations] == [
        "test_words.py::test_sum[]#0",
        "test_words.py::test_sum[a]#0",
        "test_words.py::test_sum[a b a]#0",
        "test_words.py::TestAll::test_both_ways#0",
        "test_words.py::TestAll::test_both_ways#1",
    ]
    assert (
        str(watched.invocations[2].after)
        == "{'arguments': ('a b a'), 'keywords': {}, 'returned': {'a': 2, 'b': 1}}"
    )
    assert "environment" in watched.confinement
    assert "4 passed" in watched.stdout
    again = Watched.from_plain(json.loads(json.dumps(watched.to_plain())))
    assert again == watched
    assert judge_behaviour(again, watched, STRICT).verdict == "same"
    with pytest.raises(ValueError, match="not what was watched"):
        Watched.from_plain({"tests": 1})
    # A call that is missing, or one too many, is a difference.
    fewer = replace(watched, invocations=watched.invocations[:-1])
    missing = judge_behaviour(watched, fewer, STRICT)
    extra = judge_behaviour(fewer, watched, STRICT)
    assert [(one.verdict, one.findings[0].part) for one in (missing, extra)] == [
        ("wrong", "missing"),
        ("wrong", "extra"),
    ]


@pytest.mark.usefixtures("unconfined")
async def test_another_way_is_the_same_and_another_answer_is_wrong(words):
    other = (
        "from collections import Counter\n\n"
        "def count(text):\n    return dict(Counter(text.split()))\n"
    )
    assert (await words.judge(other)).verdict == "same"
    behaviour = await words.judge(
        "def count(text):\n    words = text.split()\n"
        "    return {w: words.count(w) for w in sorted(set(words))}\n"
    )
    assert behaviour.verdict == "wrong"
    assert [one.name for one in behaviour.findings] == [
        "test_words.py::TestAll::test_both_ways#0",
        "test_words.py::TestAll::test_both_ways#1",
    ]
    assert "another order" in behaviour.reason


@pytest.mark.usefixtures("unconfined")
async def test_a_test_that_failed_before_may_fail_and_one_that_passed_may_not(tmp_path):
    tests = """
        from words import count

        def test_good():
            assert count("a") == {"a": 1}

        def test_bad():
            assert count("b") == 3
    """
    async with open_project(
        tmp_path / "words", {"words.py": WORDS, "test_words.py": tests}
    ) as project:
        original = project.original = await project.watch()
        assert dict(original.outcomes) == {
            "test_words.py::test_good": "passed",
            "test_words.py::test_bad": "failed",
        }
        assert original.passed == 1
        assert (await project.judge(WORDS + "\n# the same\n")).verdict == "same"
        broken = await project.watch("def count(text):\n    raise KeyError(text)\n")
        behaviour = judge_behaviour(original, broken, STRICT)
        assert behaviour.verdict == "wrong"
        assert behaviour.reason.startswith("test_words.py::test_good#0: returned")
        failing = [one for one in behaviour.findings if one.part == "test"]
        assert [one.name for one in failing] == ["test_words.py::test_good"]
        assert "KeyError" in failing[0].verdict.reason


KINDS = """
import asyncio
from functools import lru_cache

def plain(items, *, by=1):
    items.append(by)
    print("plain", by)
    return items

def raising(key):
    raise KeyError(key)

def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

def generator(n):
    got = yield 0
    for at in range(n):
        got = yield at if got is None else got
    return n

def endless():
    at = 0
    while True:
        yield at
        at += 1

def lazy(items):
    return map(str, items)

def nested():
    return [iter([1]), 2]

async def later(n):
    await asyncio.sleep(0)
    return n + 1

async def stream(n):
    for at in range(n):
        await asyncio.sleep(0)
        yield [at]

class Account:
    made = 0

    def __init__(self, held):
        self.held = held

    def pay(self, amount):
        self.held -= amount
        return self

    @classmethod
    def empty(cls, kind=0):
        return cls(kind)

    @staticmethod
    def round(amount):
        return int(amount)

    @property
    def rich(self):
        return self.held > 3

TABLE = {"plain": plain}
ALL = [plain]
also = plain
"""
TEST_KINDS = """
import asyncio
import itertools
import pytest
import kinds
from kinds import Account, plain, generator, endless, fibonacci
from kinds import lazy, later, nested, raising, stream

def test_plain(capsys):
    assert plain([1], by=2) == [1, 2]
    assert capsys.readouterr().out == "plain 2\\n"

def test_registered():
    assert kinds.TABLE["plain"] is kinds.ALL[0] is kinds.also is kinds.plain
    kinds.TABLE["plain"]([5])

def test_raising():
    with pytest.raises(KeyError):
        raising("x")

def test_fibonacci():
    assert fibonacci(5) == 5

def test_generator():
    assert list(generator(2)) == [0, 0, 1]
    values = generator(3)
    next(values)
    assert values.send("x") == "x"
    values.close()

def test_endless():
    assert list(itertools.islice(endless(), 3)) == [0, 1, 2]

def test_lazy():
    assert next(lazy([1, 2])) == "1"

def test_nested():
    assert nested()[1] == 2

def test_later():
    async def both():
        return await asyncio.gather(later(1), later(2))
    assert asyncio.run(both()) == [2, 3]

def test_stream():
    async def all_of():
        return [one async for one in stream(2)]
    assert asyncio.run(all_of()) == [[0], [1]]

def test_account():
    account = Account.empty(5)
    assert account.rich
    assert account.pay(Account.round(2.5)).held == 3
"""
SEEN = {
    "plain": [
        "{'arguments': ([1, 2]), 'keywords': {'by': 2}, 'returned': [1, 2]}",
        "{'arguments': ([5, 1]), 'keywords': {}, 'returned': [5, 1]}",
    ],
    "raising": ["{'arguments': ('x'), 'keywords': {}, 'raised': KeyError"],
    "fibonacci": ["{'arguments': (5), 'keywords': {}, 'returned': 5}"],
    "generator": [
        "{'arguments': (2), 'keywords': {}, 'returned': 2, 'yielded': generator(0, 0, 1)}",
        "{'arguments': (3), 'keywords': {}, 'yielded': generator(0, 'x')}",
    ],
    "endless": ["{'arguments': (), 'keywords': {}, 'yielded': generator(0, 1, 2)}"],
    "lazy": ["{'arguments': ([1, 2]), 'keywords': {}, 'yielded': builtins.map('1')}"],
    "nested": ["{'arguments': (), 'keywords': {}, 'returned': [<builtins.list_iterator>, 2]}"],
    "later": [
        "{'arguments': (1), 'keywords': {}, 'returned': 2}",
        "{'arguments': (2), 'keywords': {}, 'returned': 3}",
    ],
    "stream": ["{'arguments': (2), 'keywords': {}, 'yielded': builtins.async_generator([0], [1])}"],
    "Account.pay": [
        (
            "{'self': kinds.Account(held=3), 'arguments': (2), 'keywords': {}, "
            "'returned': kinds.Account(held=3)"
        )
    ],
    "Account.empty": [
        (
            "{'self': type('kinds.Account'), 'arguments': (5), 'keywords': {}, "
            "'returned': kinds.Account(held=5)}"
        )
    ],
    "Account.round": ["{'arguments': (2.5), 'keywords': {}, 'returned': 2}"],
    "Account.rich": [
        "{'self': kinds.Account(held=5), 'arguments': (), 'keywords': {}, 'returned': True}"
    ],
}


DIFFERENCES = {
    "plain": [
        ("items.append(by)", "items = [*items, by]", "arguments"),
        ('print("plain", by)', 'print("plain ", by)', "stdout"),
    ],
    "raising": [("KeyError(key)", "KeyError(key, 1)", "raised")],
    "generator": [("got = yield 0", "got = yield 1", "yielded")],
    "stream": [("yield [at]", "yield [at, at]", "yielded")],
    "Account.pay": [
        ("self.held -= amount", "self.held -= amount; self.memory = amount", "self"),
    ],
    "later": [("return n + 1", "return n + 1.0", "returned")],
}


def test_every_kind_of_function_is_seen_and_a_difference_in_any_part_is_found(monkeypatch, capsys):
    for qualname, expected in SEEN.items():

        def trace_kind(text, target=f"kinds.py::{qualname}"):
            capsys.readouterr()  # what the tests before this printed
            return trace_tests(monkeypatch, target, text, TEST_KINDS, capsys=capsys)

        original = trace_kind(KINDS)
        assert original.messages == {}, qualname
        assert original.passed == 11
        shown = [str(one.after) for one in original.invocations]
        assert len(shown) == len(expected)
        for text, start in zip(shown, expected, strict=True):
            assert text.startswith(start[:99])
        if qualname == "plain":
            assert original.invocations[0].stdout == "plain 2\n"
            assert str(original.invocations[0].before).startswith("{'arguments': ([1])")
        for old, new, differing in DIFFERENCES.get(qualname, ()):
            behaviour = judge_behaviour(original, trace_kind(KINDS.replace(old, new)), STRICT)
            assert behaviour.verdict == "wrong", (qualname, behaviour)
            assert differing in {one.part for one in behaviour.findings}, behaviour.findings


async def test_recursion_may_become_a_loop_and_what_cannot_be_compared_is_said(tmp_path):
    """In real processes, where functions of all those kinds are called beside the target."""
    files = {"kinds.py": KINDS, "test_kinds.py": TEST_KINDS}
    loop = (
        "def fibonacci(n):\n    a, b = 0, 1\n"
        "    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
    )
    recursive = KINDS[KINDS.index("def fibonacci") : KINDS.index("def generator")]
    async with open_project(
        tmp_path / "kinds", files, "kinds.py::fibonacci", ("test_kinds.py",)
    ) as project:
        assert (await project.judge(KINDS.replace(recursive, loop))).verdict == "same"
        project.target = Target("kinds.py", "nested")
        watched = await project.watch()
        assert (watched.failure, watched.messages) == (None, {})
        behaviour = judge_behaviour(watched, watched, STRICT)
        assert behaviour.verdict == "undecided"
        assert "can't be compared" in behaviour.reason
        assert "an iterator inside" in behaviour.reason


@pytest.mark.usefixtures("unconfined")
async def test_too_many_calls_are_counted_and_said_in_one_line(tmp_path, monkeypatch):
    said = []
    tests = """
        from words import count

        def test_many():
            for at in range(2_000):
                count("a " * min(at, 450))

        def test_one():
            count("b")
    """
    monkeypatch.setattr(traced_run, "Trace", lambda data: said.append(data) or trace.Trace(data))
    async with open_project(
        tmp_path / "words", {"words.py": WORDS, "test_words.py": tests}
    ) as project:
        watched = await project.watch()
    assert len(watched.invocations) == 401
    assert (watched.left_out, watched.cut) == ((), {"test_words.py::test_many": 400})
    lines = said[0].splitlines()
    assert sum(line.startswith(b'["cut"') for line in lines) == 1
    assert len(lines) < 500
    assert judge_behaviour(watched, watched, STRICT).verdict == "same"
    assert Watched.from_plain(watched.to_plain()) == watched
    # Calls of the candidate beyond those recorded of the original are not compared; all calls
    # before them are.
    sooner = replace(
        watched, cut={"test_words.py::test_many": 300}, invocations=_first(watched, 300)
    )
    assert judge_behaviour(sooner, watched, STRICT).verdict == "same"
    assert judge_behaviour(watched, sooner, STRICT).verdict == "wrong"


def _first(watched, count):
    many = [one for one in watched.invocations if "test_many" in one.name]
    return tuple(one for one in watched.invocations if one not in many[count:])


def test_a_run_that_reached_its_time_limit_names_the_test_it_was_in():
    ran = confinement.ConfinedResult(
        *(None, 9, "timeout", b"", b"", 0, 0), 4.0, 0.1, None, confinement.Confinement(())
    )
    limits = confinement.ResourceLimits(seconds=4)
    for said, where in (b'["trying","t.py::a"]\n', "in t.py::a"), (b"", "before its first test"):
        watched = traced_run._watched_from(ran, limits, said, ())
        assert watched.failure == "timeout"
        assert watched.reason == f"it did not end within 4 s, {where}"


@pytest.mark.parametrize("name", ["test#400", "test#9999999"])
def test_what_comes_after_the_cut_is_not_known(name):
    assert not replace(NOTHING, cut={"test": 400}).knows(name)


@pytest.mark.parametrize(
    "name",
    [
        "test#399",
        "test#0",
        "other#400",
        "test",
        "#",
        "",
        "test#",
        "test#-1",
        "test#x",
        f"test#{'9' * 5000}",
    ],
)
def test_what_comes_before_it_is_and_so_is_what_no_child_of_ours_would_say(name):
    assert replace(NOTHING, cut={"test": 400}).knows(name)


HANDLERS = """
class Till:
    def __init__(self):
        self.held = 0
        self.handlers = {"pay": self.pay}

    def pay(self, amount):
        for _ in range(amount):
            self.held += 1
        return self
"""


def test_an_object_that_holds_the_target_is_the_same_with_other_code_behind_it(monkeypatch):
    tests = """
        import inspect
        from till import Till

        def test_pay():
            till = Till()
            assert till.handlers["pay"](3).held == 3
            assert str(inspect.signature(till.pay)) == "(amount)"
    """
    faster = HANDLERS.replace(
        "        for _ in range(amount):\n            self.held += 1",
        "        self.held += amount",
    )
    assert faster != HANDLERS
    original, same, wrong = (
        trace_tests(monkeypatch, "till.py::Till.pay", text, tests)
        for text in (HANDLERS, faster, faster.replace("+=", "-="))
    )
    assert original.messages == {}
    assert len(original.invocations) == 1
    behaviour = judge_behaviour(original, same, STRICT)
    assert (behaviour.verdict, behaviour.reason) == ("same", "")
    assert judge_behaviour(original, wrong, STRICT).verdict == "wrong"


async def test_the_walls_that_the_system_refuses_are_told_with_the_reason(tmp_path, monkeypatch):
    refuse(monkeypatch, tmp_path, "unshare")
    monkeypatch.setattr(
        confinement.shutil, "which", lambda name: None if name == "bwrap" else which(name)
    )
    async with open_project(
        tmp_path / "p", {"words.py": WORDS, "test_words.py": TEST_WORDS}
    ) as project:
        watched = await project.watch()
    assert watched.failure is None
    assert watched.unconfined["user namespace"] == "Operation not permitted"
    assert "memory" in watched.confinement
    assert (
        Watched.from_plain(json.loads(json.dumps(watched.to_plain()))).unconfined
        == watched.unconfined
    )
