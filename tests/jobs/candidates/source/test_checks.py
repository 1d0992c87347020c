"""Candidates that cheat: refused for their text or for what they do when run, with the reason."""

import json

import pytest

from abreast.jobs.candidates.behaviour import trace
from abreast.jobs.candidates.behaviour.traced_run import judge_behaviour
from abreast.jobs.candidates.rules import STRICT
from abreast.jobs.candidates.source.checks import check_text
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.confinement import ResourceLimits
from tests.jobs.candidates.watched import open_project, use_cache

ORIGINAL = """
from functools import lru_cache

LIMIT = 3

def keys(text, *, least=1):
    found = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    return {word: count for word, count in found.items() if count >= least}

@lru_cache
def helper(number):
    return number * 2
"""
TEST = """
import pytest
from words import keys

@pytest.fixture
def text():
    return "a b a"

def test_keys(text):
    assert keys(text) == {"a": 2, "b": 1}

def test_least(text):
    assert keys(text, least=2) == {"a": 2}
"""
GOOD = """
from collections import Counter

LIMIT = 3

def keys(text, *, least=1):
    return {word: count for word, count in Counter(text.split()).items() if count >= least}
"""
# Every cheat returns the right answer where it can: it is refused for how it gets it.
ANSWER = GOOD.partition("    return ")[2]
HEAD = "from collections import Counter\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    use_cache(monkeypatch, tmp_path)


def candidate(inside="", *, top="", default=""):
    body = "".join(f"    {line}\n" for line in inside.splitlines())
    return f"{HEAD}{top}\ndef keys(text, *, least=1{default}):\n{body}    return {ANSWER}"


def in_text(text):
    return check_text(ORIGINAL, text, Target("words.py", "keys"))


# --- in the text


def test_an_honest_candidate_and_the_original_itself_pass():
    assert in_text(GOOD) is None
    assert in_text(ORIGINAL) is None


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        ("def keys(:\n", "error", "not Python"),
        ("x = 1\n", "error", "no function keys"),
        ("class keys:\n    pass\n", "error", "class"),
        ("def keys(text):\n    pass\n", "refused", "least is missing"),
        ("def keys(words, *, least=1):\n    pass\n", "refused", "text became words"),
        ("def keys(text, /, *, least=1):\n    pass\n", "refused", "can no longer be given by name"),
        (
            "def keys(text, more, *, least=1):\n    pass\n",
            "refused",
            "more is new and must be given",
        ),
        ("def keys(text, *, least):\n    pass\n", "refused", "least must be given now"),
        (
            "def keys(text, *, least=2):\n    pass\n",
            "refused",
            "the default of least was 1, and is 2",
        ),
        ("def keys(*, least=1):\n    pass\n", "refused", "text is missing"),
        ("async def keys(text, *, least=1):\n    pass\n", "refused", "async"),
    ],
)
def test_what_does_not_fit_is_reported(text, verdict, reason):
    behaviour = in_text(text)
    assert behaviour.verdict == verdict
    assert reason in behaviour.reason


def test_what_takes_the_rest_must_go_on_taking_it():
    for old, new, reason in [
        ("def f(*a):\n    pass\n", "def f(b, *a):\n    pass\n", "b takes what was among the rest"),
        ("def f(*a, **k):\n    pass\n", "def f(*a):\n    pass\n", "no further arguments"),
        ("def f(a):\n    pass\n", "def f(a, b=1, *c, d=2, **e):\n    pass\n", None),
    ]:
        behaviour = check_text(old, new, Target("f.py", "f"))
        assert behaviour is None if reason is None else reason in behaviour.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (candidate(top="import time\ntime.perf_counter = lambda: 0"), "changes time.perf_counter"),
        (candidate("import time\nsetattr(time, 'time', None)"), "changes time"),
        (candidate("import pytest"), "imports pytest"),
        (candidate("from _pytest import runner"), "imports _pytest"),
        (candidate("from unittest import mock"), "imports unittest"),
        (candidate("import os\nos._exit(0)"), "ends the program: os._exit"),
        (candidate("from os import _exit\n_exit(0)"), "ends the program: os._exit"),
        (candidate("import sys as s\ns.exit(0)"), "ends the program: sys.exit"),
        (candidate("import os\nkey = os.environ.get('KEY')"), "the environment: os.environ"),
        (candidate("import socket"), "imports socket"),
        (candidate("import ctypes.util"), "imports ctypes"),
        (candidate("open('/tmp/x', 'w')"), "opens a file"),
        (candidate("eval('1')"), "runs code made from text"),
        (
            candidate("import sys\nsys.modules['time'] = None"),
            "changes what is imported: sys.modules",
        ),
        (candidate("import sys\nsys._getframe()"), "looks at its callers"),
        (candidate(top="from contextvars import ContextVar"), "imports contextvars"),
    ],
)
def test_what_an_optimisation_has_no_use_for_is_refused_with_its_line(text, reason):
    behaviour = in_text(text)
    assert behaviour.verdict == "refused"
    assert reason in behaviour.reason
    assert "(line " in behaviour.reason


def test_what_the_original_does_too_is_no_cheat():
    old = "import os\n\ndef f():\n    return os.environ.get('A')\n"
    assert check_text(old, old.replace("return", "x ="), Target("f.py", "f")) is None


# --- when it runs

HOLD = (
    "def hold():\n    held = []\n    while True:\n        held.append((yield))\n\n"
    "HELD = hold()\nnext(HELD)"
)
CHEATS = {
    "patches a clock when imported": (
        candidate(top="import time\ntime.perf_counter = lambda: 0"),
        "patches time.perf_counter",
    ),
    "patches a clock when called": (
        candidate("import time\ntime.monotonic = lambda: 0"),
        "patches time.monotonic",
    ),
    "patches pytest": (candidate("import pytest\npytest.raises = None"), "patches pytest.raises"),
    "patches a built-in": (
        candidate("import builtins\nbuiltins.sum = max"),
        "patches builtins.sum",
    ),
    "changes a test": (
        candidate(
            "import test_words\ntest_words.test_least.__code__ = (lambda text: None).__code__"
        ),
        "changes code that is not its own: test_words.test_least",
    ),
    "replaces a test": (
        candidate("import test_words\ntest_words.test_least = print"),
        "changes code that is not its own: test_words.test_least",
    ),
    "changes conftest": (
        candidate("import conftest\nconftest.pytest_configure = lambda: 1"),
        "changes code that is not its own: conftest.pytest_configure",
    ),
    "writes a file": (candidate("open('conftest.py', 'a').write('#')"), "writes conftest.py"),
    "writes outside": (
        candidate("try:\n    open('/etc/abreast-was-here', 'w')\nexcept OSError:\n    pass"),
        "writes /etc/abreast-was-here",
    ),
    "makes a link": (
        candidate("import os\nos.symlink('words.py', 'more.py')"),
        "touches other files: more.py",
    ),
    "reads the tests": (candidate("open('test_words.py').read()"), "reads test_words.py"),
    "leaves when imported": (
        candidate(top="import os\nos._exit(0)"),
        "left with success before the tests had ended, before its first test",
    ),
    "leaves when called": (
        candidate("import os\nos._exit(0)"),
        "left with success before the tests had ended, in test_words.py::test_keys",
    ),
    "exits when imported": (
        candidate(top="import sys\nsys.exit(0)"),
        "ends the program when it is imported",
    ),
    "keeps a dict": (
        candidate(
            "if text in SEEN: return dict(SEEN[text])\nSEEN[text] = {'a': 2}", top="SEEN = {}"
        ),
        "keeps something from one call to the next: words.SEEN went from 1 to",
    ),
    "keeps a dict that hides it": (
        candidate(
            "SEEN[text] = least",
            top="class Hidden(dict):\n    def items(self): return []\n"
            "    def __iter__(self): return iter(())\n"
            "    def __len__(self): return 0\n\nSEEN = Hidden()",
        ),
        "words.SEEN went from",
    ),
    "keeps a default": (
        candidate("_seen[text] = least", default=", _seen={}"),
        "words.keys went from",
    ),
    "keeps an attribute": (candidate("keys.seen = text"), "words.keys went from"),
    "keeps a new global": (candidate("global SEEN\nSEEN = [text]"), "words.SEEN went from 0 to"),
    "keeps it in a class": (
        candidate("Held.text = text", top="class Held:\n    text = 0"),
        "words.Held.text went from",
    ),
    "keeps it in a closure": (
        HEAD
        + "def made():\n    seen = {}\n    def keys(text, *, least=1):\n"
        + "        seen[text] = 1\n        return "
        + ANSWER
        + "    return keys\n\nkeys = made()\n",
        "words.keys went from",
    ),
    "keeps it in functools": (
        HEAD
        + "from functools import lru_cache\n@lru_cache\n"
        + "def split(text):\n    return text.split()\n\n"
        + candidate("split(text)").removeprefix(HEAD),
        "the cache of split went from 0 to 1",
    ),
    "keeps it elsewhere": (candidate("import math\nmath.seen = text"), "patches math.seen"),
    "keeps it in sys": (candidate("import sys\nsys.seen = text"), "patches sys.seen"),
    "keeps a generator": (candidate("HELD.send(text)", top=HOLD), "words.HELD went from"),
    "keeps a context": (
        candidate(
            "HELD.get()[text] = 1",
            top="from contextvars import ContextVar\nHELD = ContextVar('held', default={})",
        ),
        "words.HELD went from",
    ),
    "keeps a thread's own": (
        candidate("HELD.text = text", top="import threading\nHELD = threading.local()"),
        "words.HELD went",
    ),
    "keeps a count": (
        candidate("next(HELD)", top="from itertools import count\nHELD = count()"),
        "words.HELD went",
    ),
    "asks the network": (
        candidate(
            "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\n"
            "except OSError:\n    pass"
        ),
        "opens a socket",
    ),
    "starts a process": (
        candidate("import subprocess\nsubprocess.run(['true'])"),
        "starts a process",
    ),
    "allocates without end": (
        candidate("x = bytearray(10 << 30)"),
        "asks for more memory than it may have",
    ),
    "dies": (
        candidate("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
        "was ended by signal 9",
    ),
    "forges its record": (
        candidate(
            "import glob, os\nplace = os.path.dirname(os.path.dirname(os.environ['TMPDIR']))\n"
            "for name in glob.glob(place + '/watch-*/said'):\n    open(name, 'a').write('[]\\n')"
        ),
        "",
    ),
}


# These try what the sandbox prevents, or depend on its directories.
CONFINED = (
    *("writes outside", "asks the network", "starts a process"),
    *("allocates without end", "dies", "forges its record"),
)


async def judge_cheats(place, names):
    """All share one project, so that the original is traced once."""
    files = {
        "words.py": ORIGINAL,
        "test_words.py": TEST,
        "conftest.py": "def pytest_configure():\n    pass\n",
    }
    async with open_project(place, files, "words.py::keys", ("test_words.py",)) as project:
        for name in names:
            text, reason = CHEATS[name]
            behaviour = await project.judge(text)
            assert behaviour.verdict == "refused", (name, behaviour)
            assert reason in behaviour.reason, name


@pytest.mark.usefixtures("unconfined")
async def test_a_cheat_is_refused_with_the_reason(tmp_path):
    await judge_cheats(tmp_path / "p", [name for name in CHEATS if name not in CONFINED])


async def test_a_cheat_that_the_sandbox_prevents_is_refused_with_the_reason(tmp_path):
    await judge_cheats(tmp_path / "p", CONFINED)


@pytest.mark.usefixtures("unconfined")
async def test_an_honest_candidate_is_the_same(tmp_path):
    """Among them one with a cache inside of its call, and one that imports when it is called."""
    inner = (
        "from functools import cache\n@cache\ndef size(word):\n"
        "    return size(word[1:]) + 1 if word else 0\nsize(text)"
    )
    lazy = "import heapq, random, zoneinfo\nrandom.Random(text), zoneinfo.ZoneInfo('UTC')"
    table = GOOD + "\nTABLE = {'keys': keys}\nALL = [keys]\n"
    honest = [GOOD, candidate(inner), candidate(lazy), table, ORIGINAL]
    files = {"words.py": ORIGINAL, "test_words.py": TEST}
    async with open_project(tmp_path / "p", files, "words.py::keys", ("test_words.py",)) as project:
        original = await project.watch()
        for text in honest:
            behaviour = judge_behaviour(original, await project.watch(text), STRICT)
            assert (behaviour.verdict, behaviour.reason) == ("same", "")


@pytest.mark.parametrize(
    ("inside", "verdict", "reason"),
    [
        (
            "while True:\n    pass",
            "timeout",
            "it did not end within 2 s of CPU, in test_words.py::test_keys",
        ),
        ("import os\nwhile True:\n    os.fork()", "refused", "starts a process"),
    ],
)
async def test_what_does_not_end_is_ended_and_reported(tmp_path, inside, verdict, reason):
    files = {"words.py": ORIGINAL, "test_words.py": TEST}
    async with open_project(tmp_path / "p", files, "words.py::keys", ("test_words.py",)) as project:
        # CPU time: on a busy machine, pytest alone may take seconds to start.
        limits = ResourceLimits(seconds=60, cpu=2, processes=30)
        behaviour = await project.judge(candidate(inside), limits=limits)
        assert behaviour.verdict == verdict
        assert reason in behaviour.reason


async def test_no_key_is_found_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    files = {"words.py": ORIGINAL, "test_words.py": TEST}
    async with open_project(tmp_path / "p", files, "words.py::keys", ("test_words.py",)) as project:
        watched = await project.watch(
            candidate("import os\nprint(sorted(os.environ), 'sk-secret' in str(os.environ))")
        )
        assert "OPENAI_API_KEY" not in watched.invocations[0].stdout
        assert "False" in watched.invocations[0].stdout


# --- the trace of the child process


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '["unknown", 1]',
        '["call", "[{}]"]',
        '["test", ["a", "excellent", ""]]',
        '["test", [1, "passed", ""]]',
        '["left", 1]',
        '["cut", "a"]',
        '["cut", [1, 1]]',
        '["cut", ["a", "many"]]',
        '["end", {}]',
        json.dumps(
            [
                "end",
                {
                    "exit": 0,
                    "found": [],
                    "elsewhere": [],
                    "broken": [],
                    "codes": {},
                    "grown": {"a": [1]},
                },
            ]
        ),
    ],
)
def test_a_line_that_the_child_did_not_write_is_no_testimony(line):
    with pytest.raises(ValueError):  # noqa: PT011 - the message is for the report
        trace.Trace(line.encode() + b"\n")


def test_it_can_end_only_once_and_half_a_line_is_left_out():
    end = json.dumps(
        ["end", {"exit": 0, "found": [], "elsewhere": [], "broken": [], "codes": {}, "grown": {}}]
    ).encode()
    assert trace.Trace(end + b"\n").end["exit"] == 0
    assert trace.Trace(b'["did", "sings"]\n' + end[:20]).did == ["sings"]
    with pytest.raises(ValueError, match="ended twice"):
        trace.Trace(end + b"\n" + end + b"\n")
