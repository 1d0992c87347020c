"""Timing: which calls are timed, from which state, and that cheating candidates are refused."""

import asyncio
import math
import os
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.candidates.behaviour.traced_run import Tests
from abreast.jobs.candidates.child import timed as timed_child
from abreast.jobs.candidates.rules import STRICT
from abreast.jobs.candidates.source.target import Target, candidate_text
from abreast.jobs.candidates.timing.measure import MeasurePlan, measure, turns_of
from abreast.jobs.candidates.timing.race import Race, RaceOptions
from abreast.jobs.candidates.timing.timed_calls import TimedCall, TimedCalls, choose
from abreast.jobs.candidates.timing.timed_process import Made
from abreast.jobs.candidates.timing.timing import PASSES, line_profile, scout, time_candidate
from abreast.worktrees.pool import open_worktrees
from tests.jobs.candidates.noise import expect_faster
from tests.jobs.candidates.projects import FAST, SLOW, make_sums
from tests.jobs.candidates.timing.simulated import SIDES, simulate
from tests.worktrees.repositories import ENVIRONMENT, fingerprint

TARGET = Target("sums.py", "pairs")
TESTS = Tests(("test_sums.py",), sys.executable)
INPUTS = TimedCalls((TimedCall("test_sums.py::test_many#0", 0.002, copyable=True),), 3, 1)

# It takes over its process: returns at once while it is timed, and does the work when the trace is
# taken.
EARLY = """

import sys

LEFT = []


def pairs(numbers, wanted):
    holder = sys._getframe(2).f_locals.get("self")
    if type(holder).__name__ != "CallHolder":
        return count(numbers, wanted)
    if not LEFT:
        real = type(holder)._record

        def record(self, given, end):
            while LEFT:
                result = count(*LEFT.pop())
            return real(self, given, (count(*given[0]), None))

        type(holder)._record = record
    LEFT.append((numbers, wanted))
    return 0
"""

# This one works before the `go`, while its arguments are copied.
BEFORE = """

import sys

TIMED = next((module for name, module in sys.modules.items() if name.endswith("child.timed")), None)
KNOWN = {}
if TIMED is not None:
    real = TIMED.CallHolder._copy

    def _copy(self, *, needed):
        (args, kwargs) = given = real(self, needed=needed)
        KNOWN[id(args[0])] = count(*args)
        return given

    TIMED.CallHolder._copy = _copy


def pairs(numbers, wanted):
    return KNOWN[id(numbers)] if id(numbers) in KNOWN else count(numbers, wanted)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))


def options(*, first=6, most=6, **more):
    """Reuse processes for several blocks: starting them takes long, and noise does not matter."""
    plan = MeasurePlan(first=first, most=most)
    return RaceOptions(STRICT, plan, seed=7, block_start_seconds=1e-9, **more)


@pytest.fixture
def project(tmp_path):
    return make_sums(tmp_path / "project")


async def timed(project, text, *, most=6, inputs=INPUTS, target=TARGET, tests=TESTS, **more):
    """Time a candidate with a few blocks."""
    async with open_worktrees(project, 2) as trees:
        trees.slots[1].write_candidate(target.file, text)
        return await time_candidate(
            trees.slots, target, tests, inputs, options=options(most=most, **more)
        )


# --- which calls


def call(number, seconds, digest, copyable=True):
    return (f"t#{number}", seconds, digest, copyable)


def test_inputs_that_differ_and_take_longest_are_chosen_as_far_as_a_round_stays_short():
    found = choose(
        [
            call(0, 0.001, "a"),
            call(1, 0.002, "b"),
            call(2, 0.001, "a"),
            call(3, 9.0, "c"),
            call(4, 0.025, "d"),
        ]
    )
    # The longest is chosen in any case.
    assert [one.name for one in found.chosen] == ["t#3", "t#4", "t#1", "t#0"]
    assert (found.of, found.rounds) == (4, 1)
    assert found.notes == ("t#3 takes long, and was called once a turn",)
    assert [found.chunks_of(one) for one in found.chosen] == [0, 1, 1, 1]


def test_what_is_left_out_is_named_the_longest_first():
    found = choose([call(number, 0.05 - number / 1000, str(number)) for number in range(9)])
    assert [one.name for one in found.chosen] == ["t#0"]
    assert [one.name for one in found.left] == [f"t#{number}" for number in range(1, 9)]
    assert found.untimed == (
        "1 of 9 different inputs were timed, not t#1 (49 ms), t#2 (48 ms), t#3 (47 ms) and 5 more"
    )
    assert found.untimed in found.notes


@given(st.lists(st.floats(1e-6, 100), min_size=1, max_size=30))
def test_the_longest_call_is_always_timed_and_everything_else_is_timed_or_left_out(seconds):
    found = choose([call(number, took, str(number)) for number, took in enumerate(seconds)])
    assert found.chosen[0].seconds == max(seconds)
    assert len(found.chosen) <= 6
    assert sum(one.seconds for one in found.chosen[1:]) <= 0.03
    assert len(found.left) == min(20, len(seconds) - len(found.chosen))
    assert sum(found.chunks_of(one) for one in found.chosen if one.seconds > 0.3) == 0
    plan = found.fitted(MeasurePlan(most=56))
    assert 6 <= plan.most <= 56
    assert plan.most == 6 or plan.most * 3 * plan.laps * found.turn <= 300


def test_a_call_whose_arguments_were_not_looked_at_differs_from_all_others():
    found = choose(
        [call(0, 0.001, ""), call(1, 0.001, ""), call(2, 0.001, "a"), call(3, 0.001, "a")]
    )
    assert found.of == 3


def test_short_calls_are_repeated_and_that_is_said():
    found = choose([call(0, 0.00001, "a")])
    assert found.rounds == 100
    assert "100 times in a row" in found.notes[0]
    assert choose([call(0, 0.0005, "a")]).rounds == 2


@pytest.mark.parametrize(
    ("seconds", "laps"),
    [(0.00001, 12), (0.001, 12), (0.02, 6), (0.03, 6), (0.05, 4), (0.2, 2), (5.0, 1)],
)
def test_short_turns_go_there_and_back_more_often(seconds, laps):
    assert choose([call(0, seconds, "a")]).laps == laps


def test_where_all_calls_are_long_the_longest_is_timed_by_its_first_call():
    found = choose([call(0, 3.0, "a", copyable=False), call(1, 2.0, "b")])
    assert [one.name for one in found.chosen] == ["t#0"]
    assert found.chunks == 0
    assert any("can't be copied" in note for note in found.notes)


def test_no_calls_are_an_error():
    with pytest.raises(ValueError, match="no test calls"):
        choose([])


# --- which candidates are believed


def race(original, candidate, noise=0.0, seed=0):
    """A race with these milliseconds of either side: first calls, later calls, and around them.

    The noise is around the calls, and has bursts of any length.
    """
    found = Race(None, (None, None), TARGET, TESTS, INPUTS, options=RaceOptions())
    for which, (first, later, around) in {
        "original": original,
        "candidate": candidate,
        "control": original,
    }.items():
        arm = found.arms[which]
        arm.first, arm.by_input = {0: first / 1000}, {0: [later / 1000] * 12}
        arm.inside = [later * INPUTS.chunks / 1000] * 12
        random_ = random.Random(f"{seed}/{which}")
        arm.outside = [(around + noise * random_.paretovariate(1)) / 1000 for _ in range(12)]
    return found


def test_a_candidate_that_is_very_fast_is_believed_though_its_first_calls_pay_for_memory():
    assert race((2.7, 2.4, 60), (0.6, 0.04, 20)).first_calls() > 0.8


def test_a_busy_machine_makes_nobody_one_that_remembers():
    found = race((13.8, 11.6, 60), (3.2, 0.8, 20))
    for which, later in (("original", 11.6), ("candidate", 0.8)):
        # Nearly always disturbed by other load.
        times = [time * 3 / 1000 for time in (later, later, later / 3)]
        found.arms[which].by_input = {0: times}
    assert found.first_calls() > 0.9


def test_one_that_remembers_saves_nothing_the_first_time():
    assert race((2.7, 2.4, 60), (2.8, 0.01, 20)).first_calls() < 0.1


def test_where_memory_costs_more_than_the_call_nothing_can_be_told():
    assert math.isnan(race((0.4, 0.05, 9), (0.4, 0.01, 9)).first_calls())


def test_nor_of_a_call_that_is_made_once_a_turn_which_is_always_a_first_one():
    found = race((2.7, 2.4, 60), (0.6, 0.04, 20))
    found._inputs = TimedCalls((TimedCall("long", 3.0, copyable=True),), 1, 1)
    found.arms["control"].first = {0: 0.9}  # noise that would hide the saving
    assert math.isnan(found.first_calls())


def test_nor_where_little_is_saved():
    assert math.isnan(race((1.2, 1.0, 9), (1.2, 0.9, 9)).first_calls())  # a tenth


def test_where_first_calls_of_the_same_code_differ_more_would_have_to_be_seen():
    found = race((2.7, 2.4, 60), (2.8, 0.01, 20))
    found.arms["control"].first = {0: 0.0037}
    assert found.first_calls() is None


def test_inputs_for_which_it_is_slower_are_named_with_how_much():
    found = race((3, 2, 5), (3, 2, 5))
    found.arms["original"].by_input = {0: [0.002, 0.002, 0.009]}
    found.arms["candidate"].by_input = {0: [0.003, 0.003, 0.001]}
    assert found.regressions() == ("test_sums.py::test_many#0 takes 1.50 times as long",)
    found.arms["candidate"].by_input = {0: [0.0022, 0.002, 0.002]}
    assert found.regressions() == ()


def test_what_is_saved_must_be_saved_on_the_whole():
    calls = INPUTS.chunks
    assert race((3, 2, 5), (1, 0.1, 5)).works_elsewhere() is False
    assert race((3, 2, 5), (1, 0.1, 5), noise=0.1).works_elsewhere() is False
    for moved in (1.9, 1.4):
        assert race((3, 2, 5), (1, 0.1, 5 + moved * calls)).works_elsewhere() is True
    assert race((3, 2, 5), (1, 0.1, 5 + 1.9 * calls), noise=0.1).works_elsewhere() is True


def test_where_the_noise_is_more_than_what_is_saved_nobody_can_say_where_it_works():
    honest = [race((3, 2, 50), (1, 0.1, 50), 30, seed).works_elsewhere() for seed in range(100)]
    assert honest.count(None) > 50
    assert race((3, 2, 50), (3, 2.1, 50)).works_elsewhere() is None


def test_no_noise_makes_one_believed_that_moves_its_work_or_refused_that_does_not():
    moved = 5 + 1.9 * INPUTS.chunks
    for noise in (0.1, 1, 5, 25, 125):
        found = [race((3, 2, 5), (1, 0.1, moved), noise, seed) for seed in range(600)]
        assert not any(one.works_elsewhere() is False for one in found)
        honest = [race((3, 2, 5), (1, 0.1, 5), noise, seed) for seed in range(600)]
        assert not any(one.works_elsewhere() is True for one in honest)


class Starts:
    """Timed processes that answer at once, and record how often they are started."""

    def __init__(self):
        self.seeds = []
        self.cpus = []
        self.seconds = {}  # of a call by slot, if not a millisecond

    async def end(self):
        pass

    async def start(self, places):
        self.seeds.append({place.hash_seed for place in places})
        return [(Started(self, self.seconds.get(place.slot, 0.001)), {}) for place in places]


class Started:
    """One of them."""

    def __init__(self, starts, took):
        self.starts, self.took = starts, took

    async def make(self, number, chunks, seconds, known, cpu):
        self.starts.cpus.append(cpu)
        return Made((self.took,) * len(chunks), 0.1, "as before", None)


async def test_interpreters_are_fresh_for_every_block_and_one_order_of_sets_is_for_all_arms():
    processes = Starts()
    found = Race(processes, (None, None), TARGET, TESTS, INPUTS, options=RaceOptions())
    await measure(found.run_once, plan=MeasurePlan(first=6, most=6))
    assert len(processes.seeds) == 6
    assert all(len(seeds) == 1 for seeds in processes.seeds)
    assert len(set.union(*processes.seeds)) == 6


@pytest.mark.parametrize(("speed", "starts"), [(1.0, 6), (4.0, 2), (0.25, 2)])
async def test_where_the_ratio_is_large_they_are_used_for_four_blocks(speed, starts):
    processes = Starts()
    found = Race(processes, ("original", "other"), TARGET, TESTS, INPUTS, options=RaceOptions())
    processes.seconds = {"original": 0.001, "other": 0.001 / speed}
    for block in range(6):
        for turn in turns_of(block, 0):
            await found.run_once(turn)
    assert len(processes.seeds) == starts


async def test_a_call_that_is_a_small_part_of_a_round_is_made_once_a_block_and_always_counted():
    short = TimedCall("short", 0.00002, copyable=True)
    inputs = TimedCalls((TimedCall("long", 0.03, copyable=True), short), 2, 1)
    processes = Starts()
    found = Race(processes, ("original", "other"), TARGET, TESTS, inputs, options=RaceOptions())
    processes.seconds = {"original": 0.25, "other": 0.5}
    work = {turn: await found.run_once(turn) for turn in turns_of(0, 0, 4)}
    assert {turn.which: seconds for turn, seconds in work.items()} == {
        "original": 0.5,
        "candidate": 1.0,
        "control": 0.5,
    }
    assert all(seconds in {0.5, 1.0} for seconds in work.values())
    for arm in found.arms.values():
        assert [len(arm.by_input[number]) for number in range(2)] == [4, 1]
        assert len(arm.inside) == len(arm.outside) == 4
    await found.run_once(turns_of(1, 0, 4)[0])
    assert sum(len(arm.by_input[1]) for arm in found.arms.values()) == 4


@pytest.mark.parametrize(
    ("chunks", "seconds"), [((0.03, 0.02), 0.02), ((0.02, 0.05), 0.02), ((0.01, 0.03, 0.02), 0.02)]
)
async def test_of_two_calls_the_quicker_counts_and_of_more_none_that_was_the_first(chunks, seconds):
    long = TimedCall("long", 0.03 / (len(chunks) - 1), copyable=True)
    inputs = TimedCalls((long,), 1, 1)
    assert inputs.chunks_of(long) == len(chunks) - 1
    found = Race(Starts(), (None, None), TARGET, TESTS, inputs, options=RaceOptions())
    turn = turns_of(0, 0, 2)[0]
    await found.run_once(turn)  # starts the processes
    found.arms[turn.which].process = Chunks(chunks)
    assert await found.run_once(turn) == seconds


class Chunks:
    """A timed process whose chunks take these seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    async def make(self, number, chunks, seconds, known, cpu):
        assert len(chunks) == len(self.seconds)
        return Made(self.seconds, 0.1, "as before", None)


async def test_where_starting_takes_long_they_are_used_for_some_blocks():
    processes = Starts()
    found = Race(processes, (None, None), TARGET, TESTS, INPUTS, options=options())
    await measure(found.run_once, plan=MeasurePlan(first=12, most=12))
    assert len(processes.seeds) == 2


async def test_in_a_lap_all_arms_begin_on_one_cpu_and_in_the_next_on_another(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 3}, raising=False)
    processes = Starts()
    found = Race(processes, (None, None), TARGET, TESTS, INPUTS, options=options())
    await measure(found.run_once, plan=MeasurePlan(first=6, most=6, laps=4))
    # Calls that are not timed may run on any CPU.
    known = [cpu for cpu in processes.cpus if cpu is not None]
    first, second = [3, 3, 3, 5, 5, 5] * 2, [5, 5, 5, 3, 3, 3] * 2
    assert known == (first + second) * 3


def test_an_event_is_counted_or_it_is_said_why_it_is_not():
    """Not every machine counts instructions; a kernel clock is everywhere."""
    work = lambda: sum(range(100_000))  # noqa: E731 - short
    for event in (RaceOptions().counted_event, (1, 1)):
        found = timed_child.count_event([*event], work)
        assert found.get("count", 0) > 1_000 or (event == (0, 1) and found["uncounted"])


def test_it_begins_there_and_may_go_on_elsewhere(monkeypatch):
    cpu_sets = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda _, cpus: cpu_sets.append(cpus), raising=False
    )
    timed_child._begin_on(2)
    timed_child._begin_on(None)
    assert cpu_sets == [{2}, {0, 1, 2}]


# --- simulated processes: which calls decide, and what is said


WORK = {"long": 0.015, "short": 1e-4, "other": 8e-5}
SHORT_ROUND = 0.002  # seconds: the long call does not fit


async def simulated(*, first=6, most=20):
    """Choose calls and time a candidate; return the calls, and the verdict."""
    inputs = await scout(SIDES[0], TARGET, TESTS, 600, round_seconds=SHORT_ROUND)
    how = options(first=first, most=most)
    return inputs, await time_candidate(SIDES, TARGET, TESTS, inputs, options=how)


async def test_a_candidate_that_is_slower_in_the_one_long_call_is_never_faster(monkeypatch):
    simulate(monkeypatch, WORK, {"long": 0.3, "short": 1e-7, "other": 1e-7})
    inputs, found = await simulated()
    assert [one.name for one in inputs.chosen] == ["long", "short", "other"]
    assert found.verdict == "slower", found
    assert found.high < 0.5


@pytest.mark.parametrize("counter", ["", "this machine has no counter for them"])
async def test_a_candidate_that_is_much_faster_in_the_one_long_call_is_faster(monkeypatch, counter):
    processes = simulate(monkeypatch, WORK, WORK | {"long": 1e-5}, counter)
    inputs, found = await simulated()
    assert inputs.chosen[0].name == "long"
    assert found.verdict == "faster", found
    assert found.low > 1.0
    assert processes.started.count("candidate") == 1 + PASSES
    # Instructions are named where the machine counts them, else the reason why there are none.
    assert found.uncounted == counter
    assert ("x the instructions" in found.reason) == (not counter)
    assert (found.instruction_ratio is None) == bool(counter)
    assert counter or found.instruction_ratio < 0.5


async def test_a_call_that_was_not_to_be_timed_and_is_slower_leaves_no_faster(monkeypatch):
    """The second call does not fit into a short round beside the longest one."""
    second = {"second": 0.0149}
    simulate(
        monkeypatch, WORK | second, {"long": 1e-6, "short": 1e-6, "other": 1e-6, "second": 0.2}
    )
    inputs, found = await simulated()
    assert [one.name for one in inputs.left] == ["second"]
    assert found.verdict == "slower", found
    assert "timed because it seemed slower in the tests: second" in found.notes


@pytest.mark.parametrize("hidden", [3, 1000])
async def test_where_noise_hides_its_first_calls_it_is_measured_for_longer_and_not_accepted(
    monkeypatch, hidden
):
    asked = []

    def first_calls(race):
        asked.append(len(race.arms["candidate"].inside))
        return None if len(asked) <= hidden else 0.0

    monkeypatch.setattr(Race, "first_calls", first_calls)
    simulate(monkeypatch, WORK, WORK | {"long": 1e-5})
    _, found = await simulated(first=6, most=12)
    assert found.verdict == ("refused" if hidden == 3 else "undecided"), found
    assert "only when a call is repeated" in found.reason
    assert asked == sorted(set(asked))  # after each further block
    assert asked[1] - asked[0] == 2  # of which the first has two laps
    assert len(asked) == (4 if hidden == 3 else 1 + 12 - found.blocks)


# --- real processes


async def test_a_scout_finds_the_calls_of_the_tests(project):
    async with open_worktrees(project, 1) as trees:
        found = await scout(trees.slots[0], TARGET, TESTS, 60)
    assert "test_sums.py::test_many#0" in [one.name for one in found.chosen]
    assert found.of == 3
    assert all(one.copyable for one in found.chosen)


@pytest.mark.timeout(600)  # a busy machine measures for long, up to three times
async def test_a_candidate_that_is_much_faster_is_found_and_nothing_is_touched(project):
    before = fingerprint(project)
    text = candidate_text(SLOW, TARGET, FAST)
    # A kernel clock, which every machine has, in place of instructions.
    found = await expect_faster(lambda: timed(project, text, most=20, counted_event=(1, 1)))
    assert found.instruction_ratio < 0.5
    assert found.uncounted == ""
    assert found.low > 1.0
    assert found.ratio > 3
    assert found.memory_ratio > 0
    assert found.noise_floor > 0
    assert fingerprint(project) == before


@pytest.mark.parametrize(
    ("line", "verdict", "said"),
    [
        (
            "    if any('timed' in name for name in sys.modules): return 7\n",
            "refused",
            "it behaved otherwise",
        ),
        (
            "    if any('timed' in name for name in sys.modules): numbers.clear()\n",
            "refused",
            "it behaved otherwise",
        ),
        (
            "    if 'busy' in STATE: os._exit(0)\n    STATE.add('busy')\n",
            "refused",
            "ended|no answer|could not",
        ),
        (
            (
                "    while any('timed' in name for name in sys.modules) and STATE.add(1) "
                "or len(STATE) and LATE(): pass\n"
            ),
            "timeout",
            "did not end within",
        ),
    ],
)
async def test_what_behaves_otherwise_when_it_is_timed_is_refused(project, line, verdict, said):
    head = (
        "import os\nimport sys\nSTATE = set()\n"
        "LATE = lambda: sys._getframe(3).f_code.co_name == '_timed'\n\n\n"
    )
    text = head + SLOW.replace("    found = 0\n", line + "    found = 0\n", 1)
    found = await timed(project, text, min_answer_seconds=2.0)
    assert found.verdict == verdict, found
    assert any(word in found.reason for word in said.split("|")), found.reason


def one_that_remembers():
    return SLOW.replace("def pairs", "def count").replace("How many", "Count") + (
        "\n\nSEEN = {}\n\n\ndef pairs(numbers, wanted):\n    key = (tuple(numbers), wanted)\n"
        "    if key not in SEEN:\n        SEEN[key] = count(numbers, wanted)\n"
        "    return SEEN[key]\n"
    )


async def test_what_is_fast_only_the_second_time_is_refused(project):
    # On a busy machine, first calls can be so long that nothing can be concluded.
    for _ in range(5):
        found = await timed(project, one_that_remembers(), most=20)
        if found.verdict == "refused":
            assert found.reason.startswith("it is faster only when a call is repeated")
            break
    assert found.verdict in ("refused", "undecided"), found


@pytest.mark.timeout(600)  # a busy machine measures for long
@pytest.mark.parametrize("liar", [EARLY, BEFORE], ids=["after", "before"])
async def test_what_works_before_the_word_or_after_it_said_done_is_refused(project, liar):
    found = await timed(project, SLOW.replace("def pairs", "def count") + liar, most=20)
    if found.verdict == "undecided":  # a busy machine: nothing is accepted there
        assert "where it is timed" in found.reason
    else:
        assert found.verdict == "refused"
        assert found.reason.startswith("it works elsewhere than where it is timed")


async def test_the_time_of_a_generator_is_that_until_its_end_and_its_test_sees_all_of_it(tmp_path):
    source = "def each(size):\n    for one in range(size):\n        yield one\n"
    tests = (
        "from sums import each\n\n\n"
        "def test_few():\n    for _ in range(20):\n        assert len(list(each(2))) == 2\n\n\n"
        + "".join(
            f"def test_{n}():\n    assert sum(each({n})) == {n * (n - 1) // 2}\n\n\n"
            for n in (3, 4, 5, 6, 7, 8, 90_000)
        )
    )
    project = make_sums(tmp_path / "lazy", **{"sums.py": source, "test_sums.py": tests})
    async with open_worktrees(project, 1) as trees:
        inputs = await scout(trees.slots[0], Target("sums.py", "each"), TESTS, 600)
    seconds = {one.name: one.seconds for one in (*inputs.chosen, *inputs.left)}
    assert len(seconds) == inputs.of == 8
    assert seconds["test_sums.py::test_90000#0"] > 5 * min(seconds.values())


def test_a_lazy_result_is_exhausted_while_it_is_timed():
    async def later(size):
        return sum(range(size))

    async def steps(size):
        for one in range(size):
            yield one

    assert timed_child._call(later, ((3_000,), {})) == (4_498_500, None)
    assert timed_child._call(steps, ((), {"size": 3})) == ([0, 1, 2], None)
    assert timed_child._call(lambda: map(str, [1, 2]), ((), {})) == (["1", "2"], None)


async def test_methods_generators_and_coroutines_are_timed_to_their_end_and_inputs_are_fresh(
    tmp_path,
):
    """A function that empties its argument would return something else the second time."""
    source = (
        "class Bag:\n    def __init__(self, size):\n        self.size = size\n\n"
        "    def each(self):\n        for one in range(self.size):\n"
        "            yield sum(range(one))\n\n\n"
        "async def steps(size):\n    for one in range(size):\n        yield one\n\n\n"
        "def drain(numbers):\n    found = 0\n"
        "    while numbers:\n        found += numbers.pop()\n    return found\n"
    )
    tests = (
        "import asyncio\nfrom sums import Bag, drain, steps\n\n\n"
        "def test_each():\n    assert len(list(Bag(300).each())) == 300\n\n\n"
        "def test_steps():\n"
        "    async def listed():\n        return [one async for one in steps(500)]\n"
        "    assert len(asyncio.run(listed())) == 500\n\n\n"
        "def test_drain():\n    assert drain(list(range(900))) == 404550\n"
    )
    project = make_sums(tmp_path / "other", **{"sums.py": source, "test_sums.py": tests})
    async with open_worktrees(project, 2) as trees:
        for name, test in (
            ("Bag.each", "each"),
            ("steps", "steps"),
            ("drain", "drain"),
        ):
            target = Target("sums.py", name)
            call = f"test_sums.py::test_{test}#0"
            inputs = TimedCalls((TimedCall(call, 0.0005, copyable=True),), 1, 2)
            if name == "Bag.each":  # it returns at once and works later
                inputs = await scout(trees.slots[0], target, TESTS, 60)
                assert [one.name for one in inputs.chosen] == [call]
                assert inputs.chosen[0].seconds > 0.0002
            found = await time_candidate(trees.slots, target, TESTS, inputs, options=options())
            assert found.verdict not in {"refused", "error", "timeout"}, found


async def test_the_line_profile_counts_the_lines_of_the_target(project):
    before = fingerprint(project)
    async with open_worktrees(project, 1) as trees:
        found = await line_profile(trees.slots[0], TARGET, TESTS, INPUTS)
        assert (trees.slots[0].path / "sums.py").read_text() == SLOW  # it is not instrumented
    assert fingerprint(project) == before
    loop = SLOW.splitlines().index("        for other in numbers[at + 1 :]:") + 1
    assert found[loop + 1][0] == 240 * 239 // 2
    assert found[loop + 1][1] > 0


async def test_cancelled_while_it_is_timed_no_process_is_left(project):
    async with open_worktrees(project, 2) as trees:
        slow = TimedCalls((TimedCall("test_sums.py::test_many#0", 0.002, copyable=True),), 3, 50)
        task = asyncio.create_task(
            time_candidate(trees.slots, TARGET, TESTS, slow, options=options(most=112))
        )
        while not any(path.name.startswith("time-") for path in trees.slots[0].scratch.iterdir()):
            await asyncio.wait([task], timeout=0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert not any(path.name.startswith("time-") for path in trees.slots[0].scratch.iterdir())
