"""Unusual inputs: wrong candidates that only they show, and right ones that pass."""

import sys

import pytest

from abreast.jobs.candidates.behaviour.traced_run import Tests, watch
from abreast.jobs.candidates.inputs.generate import generate
from abreast.jobs.candidates.inputs.probe import prepare
from abreast.jobs.candidates.inputs.unusual import MAX_UNUSUAL_CALLS, PREFIX
from abreast.jobs.candidates.rules import STRICT
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.invocation import observe
from abreast.worktrees.confinement import ResourceLimits
from tests.jobs.candidates.traced_here import input_runner
from tests.jobs.candidates.watched import open_project, use_cache

LIMITS = ResourceLimits(seconds=60, memory=1 << 30, processes=40)

# By name: the original, the calls in its tests, a wrong candidate that passes these tests, and a
# right one.
CASES = {
    "half": ("def half(n: int) -> int:\n    return n // 2", [(7,), (8,)], "int(n / 2)", "n >> 1"),
    "rest": (
        "def rest(n: int) -> int:\n    return n % 8",
        [(7,), (19,)],
        "n - int(n / 8) * 8",
        "n & 7",
    ),
    "sign": (
        "def sign(n: int) -> int:\n    return (n > 0) - (n < 0)",
        [(3,), (5,)],
        "1 if n else 0",
        "int(n > 0) - int(n < 0)",
    ),
    "square": (
        "def square(n: int) -> int:\n    return n * n",
        [(3,), (12,)],
        "int(float(n) ** 2)",
        "n**2",
    ),
    "largest": (
        "def largest(items: list[int]) -> int:\n    return sorted(items)[-1] if items else 0",
        [([1, 3, 2],), ([5],), ([],)],
        "max([0, *items])",
        "max(items, default=0)",
    ),
    "spread": (
        "def spread(items: list[int]) -> int:\n    return len(set(items))",
        [([1, 3, 2],), ([5, 5],), ([],)],
        "len(set(map(float, items)))",
        "len(dict.fromkeys(items))",
    ),
    "spellings": (
        "def spellings(names: list[str]) -> int:\n    return len(set(names))",
        [(["a", "c", "b"],), (["e", "e"],), ([],)],
        "len({__import__('unicodedata').normalize('NFC', one) for one in names})",
        "len(dict.fromkeys(names))",
    ),
    "absolute": (
        "def absolute(x: float) -> float:\n    return abs(x)",
        [(1.5,), (2.0,)],
        "x",
        "abs(+x)",
    ),
    "smaller": (
        "def smaller(x: float, y: float) -> float:\n    return x if x < y else y",
        [(1.5, 2.0), (3.0, 2.5)],
        "min(x, y)",
        "y if not x < y else x",
    ),
    "rounded": (
        "def rounded(x: float) -> float:\n    return round(x) / 1",
        [(1.4,), (2.6,)],
        "int(x + 0.5) / 1",
        "float(round(x))",
    ),
    "loud": (
        "def loud(text: str) -> str:\n    return ''.join(c.upper() for c in text)",
        [("ab",), ("Cd e",)],
        "''.join(chr(ord(c) - 32) if 'a' <= c <= 'z' else c for c in text)",
        "''.join(map(str.upper, text))",
    ),
    "same_letters": (
        "def same_letters(a: str, b: str) -> bool:\n    return a.casefold() == b.casefold()",
        [("ab", "AB"), ("a", "b")],
        "a.lower() == b.lower()",
        "b.casefold() == a.casefold()",
    ),
    "words": (
        "def words(text: str) -> list[str]:\n    return text.split()",
        [("a b",), ("c",), ("",)],
        "[w for w in text.replace('\\n', ' ').replace('\\t', ' ').split(' ') if w]",
        "[*text.split()]",
    ),
    "lines": (
        "def lines(text: str) -> list[str]:\n    return text.splitlines()",
        [("a\nb",), ("c",)],
        "text.removesuffix('\\n').split('\\n') if text else []",
        "[*text.splitlines()]",
    ),
    "digits": (
        "def digits(text: str) -> int:\n    return sum(c.isdigit() for c in text)",
        [("a1b2",), ("x",)],
        "sum('0' <= c <= '9' for c in text)",
        "sum(map(str.isdigit, text))",
    ),
    "trimmed": (
        "def trimmed(text: str) -> str:\n    return text.strip()",
        [(" a ",), ("b",)],
        "text.strip(' \\t\\r\\n')",
        "text.lstrip().rstrip()",
    ),
    "weekday": (
        (
            "from datetime import date\n\n\n"
            "def weekday(day: date) -> int:\n    return day.isoweekday()"
        ),
        "[(date(2026, 3, 2),), (date(2026, 3, 4),)]",
        "(day.toordinal() - 1) % 7 + 1 if day.year < 9999 else 7",
        "day.weekday() + 1",
    ),
    "known": (
        "def known(code: int) -> str:\n    return f'{code:03}'",
        [(4,), (11,), (202,)],
        "{4: '004', 11: '011', 202: '202'}.get(code) or str(code)",
        "str(code).zfill(3)",
    ),
    "leaves": (
        "def leaves(x):\n    return [x] if type(x) is int else [y for z in x for y in leaves(z)]",
        [([1, (2, {3}), [4]],), ([5],)],
        "[y for z in x for y in leaves(z)] if type(x) in (list, tuple, set) else [x]",
        "[x] if isinstance(x, int) else sum(map(leaves, x), [])",
    ),
    "greeting": (
        "def greeting(name: str | None) -> str:\n    return f'Hello {name}' if name else 'Hello'",
        [("A",), ("B",)],
        "'Hello ' + name",
        "'Hello ' + name if name else 'Hello'",
    ),
    "total": (
        "from decimal import Decimal\n\n\ndef total(x: Decimal) -> Decimal:\n    return x + 0",
        "[(Decimal('1.5'),), (Decimal('2'),)]",
        "x",
        "x + Decimal(0)",
    ),
}


def with_result(source, expression):
    """The source with another expression in the place of its own."""
    return f"{source[: source.index('    ', source.index('def '))]}    return {expression}\n"


def answers(name, text, calls):
    held = {}
    exec(text, held)
    return [held[name](*args) for args in (eval(calls, held) if isinstance(calls, str) else calls)]


@pytest.mark.parametrize("name", CASES)
async def test_a_wrong_candidate_that_only_unusual_inputs_show_is_caught_and_a_right_one_passes(
    name,
):
    source, calls, *expressions = CASES[name]
    texts = [with_result(source, expression) for expression in expressions]
    for text in texts:  # the tests see no difference
        assert answers(name, text, calls) == answers(name, source, calls)
    held = {}
    exec(source, held)
    given = eval(calls, held) if isinstance(calls, str) else calls
    original = input_runner(name, source)
    seen = [observe(f"test#{at}", held[name], *args) for at, args in enumerate(given)]
    probe = await prepare(original, seen, source, Target(f"{name}.py", name), count=10)
    wrong, right = [await probe.check(input_runner(name, text), original, STRICT) for text in texts]
    assert wrong.verdict == "wrong", wrong
    assert right.verdict == "same", right


IN_PLACE = """
def in_place(items):
    for at, one in enumerate(items):
        if int(one) != one:
            raise ValueError(one)
        items[at] = int(one)
    return items
"""
AT_ONCE = """
def in_place(items):
    for one in items:
        if int(one) != one:
            raise ValueError(one)
    items[:] = map(int, items)
    return items
"""


async def test_what_is_done_to_a_list_before_a_member_is_rejected_counts():
    held = {}
    exec(IN_PLACE, held)
    original = input_runner("in_place", IN_PLACE)
    seen = [
        observe(f"test#{at}", held["in_place"], items)
        for at, items in enumerate(([1, 2.0], ["no"], [3, 4]))
    ]
    target = Target("in_place.py", "in_place")
    probe = await prepare(original, seen, IN_PLACE, target, count=10)
    wrong = await probe.check(input_runner("in_place", AT_ONCE), original, STRICT)
    assert wrong.verdict == "wrong", wrong
    same = await probe.check(input_runner("in_place", IN_PLACE.lstrip()), original, STRICT)
    assert same.verdict == "same", same


@pytest.mark.parametrize("error", ["MemoryError", "LookupError"])
async def test_an_error_that_no_test_shows_does_not_count_inside_of_a_generator_either(error):
    source = f"""
def halves(n):
    yield n // 2
    if n > 10:
        raise {error}
"""
    held = {}
    exec(source, held)
    original = input_runner("halves", source)
    seen = [observe(f"test#{n}", held["halves"], n) for n in (4, 8)]
    probe = await prepare(original, seen, source, Target("halves.py", "halves"), count=20)
    assert not any("raise" in str(one.after) for one in probe.expected.invocations)
    other = source.replace(f"raise {error}", "raise KeyError")
    found = await probe.check(input_runner("halves", other), original, STRICT)
    assert found.verdict == "same", found


async def judged(place, name, source, calls, texts):
    """Return the verdict of the generated inputs on each text, and dropped inputs by reason.

    In real processes, from what the tests of a project record.
    """
    test = f"from {name} import {name}\n\n\n"
    test += f"def test_it():\n    for args in {calls}:\n        {name}(*args)\n"
    files = {f"{name}.py": f"{source}\n", f"test_{name}.py": test}
    async with open_project(place, files, f"{name}.py::{name}", (f"test_{name}.py",)) as project:
        original = await project.watch()
        assert original.failure is None, original.reason

        def run(text):
            async def ask(inputs):
                project.slot.write_candidate(project.target.file, text)
                nothing = Tests((), python=sys.executable)
                return await watch(
                    project.slot, project.target, nothing, limits=LIMITS, inputs=inputs
                )

            return ask

        probe = await prepare(run(source), original.invocations, source, project.target)
        return [await probe.check(run(text), run(source), STRICT) for text in texts], dict(
            probe.dropped
        )


async def test_what_the_original_raises_on_or_a_hint_forbids_is_respected_and_said(
    tmp_path, monkeypatch
):
    use_cache(monkeypatch, tmp_path)
    source = (
        "from typing import Literal\n\n\n"
        "def root(n: int, mode: Literal['up', 'down'] = 'up') -> int:\n"
        "    if n < 0:\n        raise ValueError(n)\n    return int(n**0.5) + (mode != 'down')"
    )
    other = source.replace("raise ValueError(n)", "return -1").replace(
        "mode != 'down'", "mode == 'up'"
    )
    calls = [(4, "up"), (9, "down")]
    wrong = source.replace("n**0.5", "(n + 1) ** 0.5")
    (found, differs), dropped = await judged(
        tmp_path / "root", "root", source, calls, [other, wrong]
    )
    assert found.verdict == "same", found
    assert differs.verdict == "wrong", differs
    assert dropped["the original raises ValueError on an unusual value"] > 0
    assert dropped["the type hint forbids the unusual value"] > 0


def recorded(*calls):
    return [observe(f"test#{at}", lambda *a, **k: None, *args) for at, args in enumerate(calls)]


def unusual(source, *calls):
    found = generate(recorded(*calls), source, Target("f.py", "f"))
    return [call for call in found.calls if call.name.startswith(PREFIX)]


def test_unusual_values_are_the_same_each_time_bounded_and_keep_what_holds_for_the_whole():
    source = "def f(items, text, n): ..."
    calls = ([1, 2, 3], "ab", 4), ([2, 5], "c", 1)
    found = unusual(source, *calls)
    assert [str(one.whole) for one in found] == [str(one.whole) for one in unusual(source, *calls)]
    assert 100 < len(found) <= MAX_UNUSUAL_CALLS
    rows = [one.whole.items[1].items[0] for one in found]
    assert all(list(row.items) == sorted(row.items, key=type(row).order) for row in rows)
    numbers = {
        int(one.whole.items[1].items[2].text, 16)
        for one in found
        if one.whole.items[1].items[2].kind == "int"
    }
    assert min(numbers) < 0
    texts = {one.whole.items[1].items[1].text for one in found}
    assert any("ß" in text for text in texts)
    assert any("\x00" in text for text in texts)


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("def f(x: int): ...", False),
        ("def f(x): ...", False),
        ("def f(x: int = None): ...", True),
        ("def f(x: int | None): ...", True),
        ("def f(x: 'Optional[int]'): ...", True),
        ("def f(x: list[int | None]): ...", False),
    ],
)
def test_none_comes_only_where_a_hint_or_a_default_allows_it(source, allowed):
    found = generate(recorded((1,), (2,)), source, Target("f.py", "f"), count=10).calls
    assert any(one.whole.items[1].items[0].kind == "none" for one in found) == allowed


@pytest.mark.parametrize(
    ("source", "given", "there"),
    [
        ("def f(x): ...", [1, (2, {3}), [4]], True),
        ("def f(x): ...", [1, {"a": [4]}], False),  # as JSON has it
        ("def f(x: list): ...", [1, (2, {3}), [4]], False),
    ],
)
def test_other_containers_come_where_three_kinds_are_and_no_hint_is(source, given, there):
    kinds = {part.kind for one in unusual(source, (given,)) for _, part in one.whole.walk()}
    assert kinds & {"bytes", "frozenset"} == ({"bytes", "frozenset"} if there else set())
