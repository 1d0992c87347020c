"""Records of invocations, observed, encoded and judged, and forged ones, which must not pass."""

import asyncio
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.candidates.rules import LOOSE, STRICT
from abreast.jobs.candidates.values.compare import compare_snapshots
from abreast.jobs.candidates.values.invocation import (
    Invocation,
    RecordInvalid,
    decode,
    encode,
    judge,
    observe,
    observe_async,
)
from abreast.jobs.candidates.values.snapshot import SnapshotInvalid, from_plain, pack, show
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from tests.jobs.candidates.snapshots import unpack
from tests.jobs.candidates.things import Plain


def parts(original, candidate, make=tuple, **options):
    """In which parts two functions differ, called with the same arguments."""
    one, other = (observe("call", function, *make()) for function in (original, candidate))
    return [finding.part for finding in judge([one], decode(encode([other])), **options)]


def append(items):
    items.append(1)
    return items


def test_what_is_the_same_has_no_findings():
    assert parts(append, append, lambda: ([],)) == []


@pytest.mark.parametrize(
    ("original", "candidate", "part"),
    [
        (append, lambda items: [*items, 1], "arguments"),
        (append, lambda items: [items.append(1), [1]][1], "returned"),
        (lambda items: 1, lambda items: items.append(1) or 1, "arguments"),
        (lambda items: 1, lambda items: True, "returned"),
        (lambda items: 1 / 0, lambda items: None, "raised"),
        (lambda items: 1 / 0, lambda items: {}["a"], "raised"),
        (lambda items: sys.exit(1), lambda items: sys.exit(2), "raised"),
        (lambda items: sys.stdout.write("a"), lambda items: sys.stdout.write("b"), "stdout"),
        (lambda items: (i for i in range(3)), lambda items: (i for i in range(4)), "returned"),
        (
            lambda items: (sys.stdout.write("a") for i in range(3)),
            lambda items: (1 for i in range(3)),
            "stdout",
        ),
    ],
    ids=range(10),
)
def test_each_thing_that_an_invocation_does_is_compared(original, candidate, part):
    assert part in parts(original, candidate, lambda: ([],))
    assert parts(candidate, original, lambda: ([],))
    assert parts(original, original, lambda: ([],)) == []


def test_a_result_that_is_the_argument_differs_from_one_that_is_like_it():
    assert parts(append, lambda items: [*append(items)], lambda: ([],)) == ["returned"]
    assert parts(append, lambda items: [*append(items)], lambda: ([],), rules=LOOSE) == []


def test_a_record_without_an_end_is_different_from_every_other():
    one = observe("f", len, [])
    empty = Invocation("f", one.before, take_snapshot(0))
    assert [finding.part for finding in judge([one], [empty])] == ["returned"]


def test_the_path_starts_at_what_differs():
    (finding,) = judge([observe("f", lambda: {"a": [1]})], [observe("f", lambda: {"a": [2]})])
    assert (finding.name, finding.part, finding.verdict.path) == ("f", "returned", '$["a"][0]')


def test_the_state_of_an_instance_is_compared():
    class Counter:
        def __init__(self):
            self.count = 0

        def one(self):
            self.count += 1

        def two(self):
            self.count += 2

    one, other = (observe("call", getattr(Counter(), name)) for name in ("one", "two"))
    (finding,) = judge([one], [other])
    assert (finding.part, finding.verdict.path) == ("self", "$.count")
    assert judge([one], [observe("call", Counter().one)]) == []


def test_arguments_that_are_iterators_reach_the_function_unread():
    record = observe("sum", sum, iter([1, 2, 3]))
    assert judge([record], [observe("sum", sum, iter([1, 2, 3]))]) == []
    assert show(record.after, record.after.nodes[0].items[-1]) == "6"
    lazy = [observe("first", next, iter([1, second])) for second in (2, 3)]
    assert [finding.part for finding in judge(lazy[:1], lazy[1:])] == ["arguments"]


def test_other_arguments_are_another_invocation():
    one, other = observe("f", lambda x: 1, 1), observe("f", lambda x: 1, 2)
    assert [finding.part for finding in judge([one], [other])] == ["before", "arguments"]


def test_an_interrupt_is_not_what_the_function_did():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        observe("f", interrupted)


def test_what_cannot_be_compared_is_a_finding_even_against_itself():
    import threading

    one, other = (observe("f", threading.local) for _ in range(2))
    (finding,) = judge([one], [other])
    assert finding.verdict.outcome == "cannot_compare"


def test_keyword_arguments_and_their_changes_are_seen():
    one, other = (
        observe("f", function, items=[])
        for function in (lambda items: None, lambda items: items.append(1))
    )
    assert [finding.part for finding in judge([one], [other])] == ["keywords"]


# --- async


async def test_async_functions_and_generators():
    async def value(x):
        await asyncio.sleep(0)
        return x

    async def steps(*states):
        held = []
        for state in states:
            held[:] = state
            yield held

    async def failing():
        raise ValueError("a")

    async def differ(one, other):
        return {finding.part for finding in judge([one], decode(encode([other])))}

    assert (
        await differ(await observe_async("f", value, 1), await observe_async("f", value, 1))
        == set()
    )
    assert "arguments" in await differ(
        await observe_async("f", value, 1), await observe_async("f", value, 2)
    )
    assert (
        await differ(await observe_async("f", failing), await observe_async("f", failing)) == set()
    )
    assert (
        await differ(await observe_async("f", len, []), await observe_async("f", len, [])) == set()
    )
    one, two = await observe_async("f", steps, [1], [2]), await observe_async("f", steps, [2], [2])
    assert "step 0" in await differ(one, two)
    assert "yielded" in await differ(one, await observe_async("f", steps, [1], [2], [2]))
    assert await differ(one, await observe_async("f", steps, [1], [2])) == set()


async def test_an_async_generator_without_an_end_is_beyond_comparison():
    async def forever():
        while True:
            yield 1

    one, other = [await observe_async("f", forever, bound=5) for _ in range(2)]
    (finding,) = judge([one], [other])
    assert (finding.part, finding.verdict.outcome) == ("yielded", "cannot_compare")


async def test_being_cancelled_is_not_what_the_function_did():
    async def cancelled():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await observe_async("f", cancelled)


# --- which invocations there are


def test_an_invocation_that_is_missing_doubled_or_extra_is_a_finding():
    a, b = observe("a", len, []), observe("b", len, [])
    assert [(one.name, one.part) for one in judge([a, b], [a])] == [("b", "missing")]
    assert [(one.name, one.part) for one in judge([a, b], [])] == [
        ("a", "missing"),
        ("b", "missing"),
    ]
    assert [(one.name, one.part) for one in judge([a], [a, a])] == [("a", "doubled")]
    assert [(one.name, one.part) for one in judge([a], [a, b])] == [("b", "extra")]
    assert judge([a, b], [b, a]) == []
    with pytest.raises(ValueError, match="same name"):
        judge([a, a], [a])


# --- forged records


class Payload:
    def __reduce__(self):
        return (sys.exit, ("it ran",))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"{}",
        b"[1]",
        b'"same"',
        b"\x80\x04",
        pickle.dumps(Payload()),
        b"[" * 100_000,
        b'[{"name": "a"}]',
        b'[{"name": 1, "before": [], "after": [], "stdout": "", "steps": []}]',
        b'[{"name": "a", "before": [], "after": [], "stdout": "", "steps": []}]',
        b'[{"name": "a", "before": [], "after": [], "stdout": "\\u20ac", "steps": []}]',
        b'[{"name": "a", "before": [], "after": [], "stdout": "", "steps": {}}]',
        b"1" * 10_000,
    ],
)
def test_what_is_no_record_is_refused_and_nothing_in_it_runs(data):
    with pytest.raises(RecordInvalid):
        decode(data)


GOOD = ["int", "int", "5", [], [], [], False]


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        {},
        [GOOD[:-1]],
        [["int", 5, "5", [], [], [], False]],
        [["int", "int", 5, [], [], [], False]],
        [["int", "int", "zz", [], [], [], False]],
        [["int", "int", None, [], [], [], False]],
        [["float", "float", "one", [], [], [], False]],
        [["float", "float", "0x1p99999999", [], [], [], False]],
        [["items", "list", None, [1], [], [], True]],
        [["items", "list", None, [-1], [], [], True]],
        [["items", "list", None, [True], [], [], True]],
        [["items", "list", None, [0.0], [], [], True]],
        [["map", "dict", None, [0], [], [], True]],
        [["object", "a.B", None, [], ["a"], [], True]],
        [["object", "a.B", None, [], ["a", "a"], [0, 0], True]],
        [["object", "a.B", None, [], [1], [0], True]],
        [["object", "a.B", None, [], [], [], 1]],
        [["block:<d", "array", "123", [], [], [], True]],
        [["block:", "array", "123", [], [], [], True]],
        [["block:?!", "array", "123", [], [], [], True]],
        [["block:1s", "array", "\u20ac", [], [], [], True]],
    ],
)
def test_a_forged_snapshot_is_refused_if_anything_in_it_is_wrong(nodes):
    with pytest.raises(SnapshotInvalid):
        from_plain(nodes)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.text(max_size=3)
    | st.sampled_from(["map", "set", "float", "unknown"]),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=30,
)
places = st.lists(st.integers(0, 2), max_size=4)
kinds = st.sampled_from(
    [
        "int",
        "float",
        "str",
        "items",
        "set",
        "map",
        "object",
        "exception",
        "iterator",
        "unknown",
        "block:<d",
        "class",
        "function",
    ]
)
texts = st.sampled_from([None, "", "5", "0x1p0", "nan", "\x00" * 8, "ordered"])
made_up = st.lists(
    st.tuples(
        kinds,
        st.sampled_from(["int", "list", "too large"]),
        texts,
        places,
        st.just([]),
        st.just([]),
        st.booleans(),
    ),
    min_size=3,
    max_size=3,
)


@given(json_values | made_up, made_up)
def test_no_forged_snapshot_can_break_the_judge(one, other):
    found = []
    for nodes in (one, other):
        try:
            found.append(from_plain(nodes))
        except SnapshotInvalid:
            return
    for rules in (STRICT, LOOSE):
        assert compare_snapshots(*found, rules=rules).outcome in (
            "same",
            "different",
            "cannot_compare",
        )


def test_what_is_no_json_is_no_record():
    with pytest.raises(RecordInvalid):
        decode(b"[" * 100_000)
    assert str(unpack(pack(take_snapshot([1, 2.5])))) == "[1, 2.5]"


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_record_that_is_read_again_is_the_same_and_can_be_changed_by_no_reader(size):
    data = encode([observe("call", str, "x" * size)])
    first = decode(data)
    expected = list(first)
    first.clear()
    assert decode(data) == expected != []


def test_a_claim_of_being_beyond_comparison_is_never_the_same():
    for label in ("too large", "list", "abreast.jobs.candidates.values.object_layout.Beyond"):
        claim = from_plain([["unknown", label, "", [], [], [], False]])
        assert compare_snapshots(take_snapshot([1]), claim).outcome == "cannot_compare"
        assert compare_snapshots(claim, claim).outcome == "cannot_compare"


def test_text_that_is_no_text_survives_the_journey():
    for text in ("\ud83d\ude00", "\U0001f600", "\udcff", "a\x00b"):
        assert (
            compare_snapshots(unpack(pack(take_snapshot(text))), take_snapshot(text)).outcome
            == "same"
        )
        record = observe("f", print, text)
        assert decode(encode([record]))[0].stdout == f"{text}\n"


CHILD = """
import sys
from abreast.jobs.candidates.values import compare, graph_match, invocation
from abreast.jobs.candidates.values.invocation import encode, observe

graph_match.GraphMatch.run = lambda *args: None  # always the same
compare.compare_snapshots = invocation.judge = lambda *args, **kwargs: []

class Yes:
    def __eq__(self, other): return True
    __hash__ = None

sys.stdout.buffer.write(encode([observe("f", lambda: {answer})]))
"""


@pytest.mark.parametrize(
    ("answer", "same"),
    [("[1, 2]", True), ("[1, 3]", False), ("Yes()", False), ("[1, Yes()]", False)],
)
def test_a_process_that_patches_the_judge_in_itself_patches_nothing(answer, same):
    code = CHILD.replace("{answer}", answer)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    findings = judge([observe("f", lambda: [1, 2])], decode(done.stdout))
    assert (findings == []) is same


def test_classes_from_two_processes_are_the_same_by_name():
    code = "import sys\nfrom tests.jobs.candidates.things import Plain\n"
    code += "from abreast.jobs.candidates.values.invocation import *\n"
    code += "sys.stdout.buffer.write(encode([observe('f', lambda: Plain(a=[1]))]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert judge([observe("f", lambda: Plain(a=[1]))], decode(done.stdout)) == []
