"""Values too large to be recorded: compared by digest, then slice by slice, never ignored."""

import math
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast.jobs.candidates.behaviour.traced_run import Tests
from abreast.jobs.candidates.evaluator import BaselineFailed, Bounds, Evaluator
from abreast.jobs.candidates.rules import LOOSE, STRICT, Rules
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values import large
from abreast.jobs.candidates.values.compare import compare, compare_snapshots
from abreast.jobs.candidates.values.invocation import decode, encode, judge, observe
from abreast.jobs.candidates.values.large import WantedSlices
from abreast.jobs.candidates.values.snapshot import SnapshotInvalid, from_plain, pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.pool import open_worktrees
from tests.jobs.candidates.projects import quick
from tests.jobs.candidates.snapshots import unpack
from tests.jobs.candidates.watched import use_cache
from tests.worktrees.repositories import make_repository

CLOSE = Rules(relative=1e-9)
NAN = float("nan")


@pytest.fixture
def tiny(monkeypatch):
    """Slices of a few members, so that small values are large."""
    for name, size in {
        "MAX_UNSLICED_ITEMS": 4,
        "MAX_UNSLICED_TEXT": 6,
        "ITEMS_PER_SLICE": 2,
        "TEXT_PER_SLICE": 3,
    }.items():
        monkeypatch.setattr(large, name, size)
    monkeypatch.setattr("abreast.jobs.candidates.values.take_snapshot.MAX_UNSLICED_TEXT", 6)


def digested(value, places=(), nodes=100_000):
    wanted = WantedSlices(frozenset(places))
    snapshot = unpack(pack(take_snapshot(value, consume=False, nodes=nodes, wanted=wanted)))
    return snapshot, {place: unpack(pack(content)) for place, content in wanted.found.items()}


def judged(one, other, rules=STRICT, nodes=100_000):
    """As the judge does it: by digests, then with what differs read again."""
    verdict = compare_snapshots(
        digested(one, nodes=nodes)[0], digested(other, nodes=nodes)[0], rules=rules
    )
    if not verdict.unread:
        return verdict
    left, mine = digested(one, {(node, at) for node, _, at in verdict.unread}, nodes)
    right, yours = digested(other, {(node, at) for _, node, at in verdict.unread}, nodes)
    return compare_snapshots(left, right, rules=rules, contents=(mine, yours))


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([2**70, -(2**70)])
    | st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-12, NAN, math.inf])
    | st.sampled_from(["", "1", "a\nb", "\ud800", "é"])
    | st.sampled_from([b"", b"1", ...])
)
HASHABLE = ATOMS
VALUES = st.recursive(
    ATOMS | st.text("ab1\ud800", max_size=12) | st.binary(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.lists(inner, max_size=8).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=8)
        | st.sets(HASHABLE, max_size=8)
        | st.frozensets(HASHABLE, max_size=8)
    ),
    max_leaves=25,
)


@pytest.mark.usefixtures("tiny")
@settings(deadline=None, max_examples=40)
@given(VALUES, VALUES, st.sampled_from([STRICT, CLOSE, LOOSE]), st.sampled_from([5, 100_000]))
def test_what_is_judged_by_digests_is_what_is_judged_by_values(one, other, rules, nodes):
    for left, right in ((one, other), (one, one), ([one, other], [one, one])):
        by_values, by_digests = (
            compare(left, right, rules=rules).outcome,
            judged(left, right, rules, nodes).outcome,
        )
        assert by_digests in (by_values, "cannot_compare")
    assert judged(one, one, rules, nodes).outcome == "same"


def json_copy(value):
    """The same with fresh containers, and members of sets in another order."""
    if isinstance(value, list | tuple):
        return type(value)(map(json_copy, value))
    if isinstance(value, dict):
        return {key: json_copy(held) for key, held in value.items()}
    return type(value)(reversed(list(value))) if isinstance(value, set | frozenset) else value


@pytest.mark.usefixtures("tiny")
@settings(deadline=None)
@given(st.lists(ATOMS, min_size=5, max_size=9), st.lists(ATOMS, min_size=5, max_size=9))
def test_digests_of_rows_are_the_same_just_if_the_rows_are(one, other):
    for left, right in ((one, other), (one, [*one]), (tuple(one), tuple(other))):
        same = digested(left)[0].nodes == digested(right)[0].nodes
        assert same == (compare(left, right).outcome == "same")
        assert judged(left, right).outcome == compare(left, right).outcome


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        ([1] * 9, [1] * 8 + [True], "different"),
        ([1] * 9, [1] * 8 + [1.0], "different"),
        ([0.0] * 9, [0.0] * 8 + [-0.0], "different"),
        ([NAN] * 9, [float("nan")] * 9, "same"),
        ([1] * 9, [1] * 10, "different"),
        ([1] * 9, (1,) * 9, "different"),
        (["1"] * 9, [1] * 9, "different"),
        ([10**5000, 255] * 9, [10**5000, 255.0] * 9, "different"),
        ([b"1"] * 9, ["1"] * 9, "different"),
        (["a\n1", *"bcdef"], ["a", "1", *"cdef"], "different"),
        ("abcdefghij", "abcdefghik", "different"),
        ("abcdefghij", b"abcdefghij", "different"),
        (bytearray(9), bytes(9), "different"),
        (set(range(9)), {*reversed(range(9))}, "same"),
        (set(range(9)), {*range(8), 9}, "different"),
        (dict.fromkeys(range(9), 1), dict.fromkeys(reversed(range(9)), 1), "different"),
        (dict.fromkeys(range(9), 1), {**dict.fromkeys(range(8), 1), 8: True}, "different"),
    ],
)
def test_a_slice_is_compared_by_the_ordinary_rules(one, other, outcome):
    assert compare(one, other).outcome == outcome
    assert judged(one, other).outcome == outcome
    assert judged(one, one).outcome == "same"
    assert (
        judged([one, one], [one, json_copy(one)]).outcome
        == compare([one, one], [one, json_copy(one)]).outcome
    )


@pytest.mark.usefixtures("tiny")
def test_by_its_digest_alone_nothing_is_wrong():
    near, far = [1.0 + 1e-12] * 9, [1.1] * 9
    for one, other in (
        ([1.0] * 9, near),
        ({*map(float, range(1, 9))}, {one + 1e-13 for one in range(1, 9)}),
    ):
        assert judged(one, other).outcome == "different"
        assert judged(one, other, CLOSE).outcome == "same"
    assert judged([1.0] * 9, far, CLOSE).outcome == "different"
    turned = dict.fromkeys(reversed(range(9)), 1)
    assert judged(dict.fromkeys(range(9), 1), turned, LOOSE).outcome == "cannot_compare"
    left, right = digested([1.0] * 9)[0], digested(near)[0]
    verdict = compare_snapshots(left, right, rules=CLOSE)
    assert verdict.outcome == "cannot_compare"
    assert "5 of its 5 slices differ" in verdict.reason


def test_arrays_are_sliced_between_their_numbers():
    import numpy as np

    one = np.arange(60_000, dtype="<f8")
    other = one.copy()
    assert judged(one, other).outcome == "same"
    other[59_000] += 1
    verdict = judged(one, other)
    assert verdict.outcome == "different"
    assert judged(one, one.astype("<f4")).outcome == "different"
    assert judged(one.reshape(2, -1), one.reshape(-1, 2)).outcome == "different"
    assert judged(one, one * (1 + 1e-13), CLOSE).outcome == "same"
    assert len(pack(digested(one)[0])) < 10_000


def test_a_graph_of_too_many_parts_is_the_same_if_every_part_is():
    def rows(last=1, shared=False):
        held = [1]
        return [
            *([number, [number]] for number in range(300)),
            [last, held],
            held if shared else [1],
        ]

    assert judged(rows(), rows(), nodes=50).outcome == "same"
    verdict = judged(rows(), rows(last=2), nodes=50)
    assert verdict.outcome == "cannot_compare"
    assert "its digests differ" in verdict.reason
    assert judged(rows(), rows(last=True), nodes=50).outcome == "cannot_compare"
    assert judged(rows(), rows(shared=True), nodes=50).outcome == "cannot_compare"
    assert judged([0, *rows()], [1, *rows()], nodes=50).outcome == "different"
    thread = __import__("threading").Thread()
    assert "a thread" in judged([*rows(), thread], [*rows(), thread], nodes=50).reason


@pytest.mark.usefixtures("tiny")
def test_large_members_of_sets_belong_to_their_equals():
    one, two, three = "a" * 9, "b" * 9, "c" * 9
    assert judged({one: 1, two: 2}, {two: 2, one: 1}, LOOSE).outcome == "same"
    assert judged({one, two}, {two, one}).outcome == "same"
    assert judged({one, two}, {one, three}).outcome == "different"
    rows = (1.0,) * 9, (2.0,) * 9
    near = (1.0 + 1e-12,) * 9, (2.0,) * 9
    assert judged({*rows}, {*reversed(rows)}).outcome == "same"
    assert judged({*rows}, {*near}, CLOSE).outcome == "cannot_compare"


@pytest.mark.usefixtures("tiny")
def test_what_is_read_again_must_be_what_was_digested():
    one, other = digested([1] * 9)[0], digested([2] * 9)[0]
    places = {(0, at) for at in range(5)}
    _, ours = digested([1] * 9, places)
    verdict = compare_snapshots(one, other, contents=(ours, ours))
    assert verdict.outcome == "cannot_compare"
    assert "not the same again" in verdict.reason


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "items",
        "items||9|2",
        "items||9|2 " + "a" * 32,
        "items||9|0" + 5 * (" " + "a" * 32),
        "items||2|2 A",
    ],
)
def test_slices_that_do_not_add_up_are_no_snapshot(value):
    with pytest.raises(SnapshotInvalid):
        from_plain([["sliced", "list", value, [], [], [], True]])


def test_a_record_in_one_digest_is_the_same_as_one_that_is_known():
    one, same, other = (observe("f", lambda value: [value, 1], given) for given in ("a", "a", "b"))
    (known,) = decode(encode([one.as_digests()]))
    assert judge([known], [same]) == []
    assert judge([same], [known]) == []
    assert {finding.verdict.outcome for finding in judge([known], [other])} == {"cannot_compare"}
    assert known.as_digests() == known
    printed = replace(one, stdout="a")
    assert [finding.part for finding in judge([known], [printed])] == ["stdout"]


# --- in a project

# A twentieth of the sizes where calls are traced, so that small values are large.
SMALLER = """
import sys

if "abreast.jobs.candidates.child.capture" in sys.modules:
    from abreast.jobs.candidates.child import capture
    from abreast.jobs.candidates.values import large

    capture.MOST_PARTS = 5_000
    large.MAX_UNSLICED_ITEMS = 1_000
    large.ITEMS_PER_SLICE = 50
"""
ORDER = """
def order(items):
    return sorted(items)
"""
TEST_ORDER = """
from order import order

def test_few():
    assert order(["b", "a"]) == ["a", "b"]

def test_many():
    items = [f"{number * 7919 % 1_511:09}" + 150 * "x" for number in range(1_500)]
    items[1] = items[0]
    assert order(items)[0] == min(items)
"""
PLACES = """
def places(items):
    return {*items}, [{"at": one, "half": one / 2} for one in items]
"""
TEST_PLACES = """
from places import places

def test_many():
    assert len(places(list(range(1_100)))[1]) == 1_100
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    use_cache(monkeypatch, tmp_path)
    monkeypatch.setenv("ABREAST_LOCKS", str(tmp_path / "locks"))


async def verdicts(place, name, source, test, candidates):
    files = {f"{name}.py": source, f"test_{name}.py": test, "conftest.py": SMALLER}
    make_repository(place, quick(files))
    target = Target(f"{name}.py", name)
    bounds = Bounds(STRICT, ResourceLimits(seconds=120, memory=2 << 30), generated=0)
    bench = Evaluator(target, source, Tests((f"test_{name}.py",), sys.executable), bounds)
    found = {}
    async with open_worktrees(place, 2) as trees:
        slot, original = trees.slots
        bench.ready(await bench.begin(original), original)
        for word, text in candidates.items():
            await slot.reset()
            slot.write_candidate(target.file, text)
            found[word] = await bench.check(slot, text)
    return found


@pytest.mark.usefixtures("cache", "unconfined")
async def test_a_large_result_is_compared_like_any_other(tmp_path):
    found = await verdicts(
        tmp_path / "order",
        "order",
        ORDER,
        TEST_ORDER,
        {
            "in place": "def order(items):\n    found = [*items]\n    found.sort()\n"
            "    return found\n",
            "each once": "def order(items):\n    return sorted(set(items))\n",
            "one changed": "def order(items):\n    found = sorted(items)\n    if items[2:]:\n"
            "        found[-3] += 'y'\n    return found\n",
            "changes its argument": "def order(items):\n    items.sort()\n    return [*items]\n",
        },
    )
    assert {word: one.verdict for word, one in found.items()} == {
        "in place": "same",
        "each once": "wrong",
        "one changed": "wrong",
        "changes its argument": "wrong",
    }
    assert "its size was 1500, and became 1499" in found["each once"].reason
    assert "at $[1450]" in found["one changed"].reason
    assert "at $[47]" in found["one changed"].reason


@pytest.mark.usefixtures("cache", "unconfined")
async def test_what_is_too_large_and_differs_late_is_undecided_and_named(tmp_path):
    late = PLACES.replace("one / 2", "one / 2 if one < 1_099 else 0.0")
    found = await verdicts(
        tmp_path / "places",
        "places",
        PLACES,
        TEST_PLACES,
        {
            "same": PLACES.replace("{*items}", "set(reversed(items))"),
            "late": late,
            "early": PLACES.replace("one / 2", "one / 2 if one > 5 else 0.0"),
        },
    )
    assert [one.verdict for one in found.values()] == ["same", "undecided", "wrong"]
    assert "too large to be recorded" in found["late"].reason


@pytest.mark.usefixtures("cache", "unconfined")
async def test_a_large_result_that_is_drawn_anew_each_time_is_not_the_same_twice(tmp_path):
    drawn = "import os\n\n\ndef draw(count):\n    return [*os.urandom(count)]\n"
    test = "from draw import draw\n\n\ndef test_many():\n    assert len(draw(2_500)) == 2_500\n"
    with pytest.raises(BaselineFailed, match="does not do the same twice"):
        await verdicts(tmp_path / "draw", "draw", drawn, test, {})
