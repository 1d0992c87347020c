"""The evaluator in a real project: several candidates side by side, each with its own results."""

import asyncio
import fcntl
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.candidates.behaviour.trace import KILLED, Watched
from abreast.jobs.candidates.behaviour.traced_run import Tests
from abreast.jobs.candidates.behaviour.verdict import Behaviour
from abreast.jobs.candidates.evaluator import BaselineFailed, Bounds, Evaluator, limits_for
from abreast.jobs.candidates.results import Timed
from abreast.jobs.candidates.source.target import Target, candidate_text
from abreast.jobs.candidates.timing.timed_calls import TimedCalls
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.pool import open_worktrees
from tests.jobs.candidates.projects import FAST, SLOW, WRONG, make_sums
from tests.worktrees.repositories import ENVIRONMENT, fingerprint

EVALUATOR = "abreast.jobs.candidates.evaluator"
TARGET = Target("sums.py", "pairs")
TESTS = Tests(("test_sums.py",), sys.executable)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    # A machine lock of its own, so that it does not wait while another test measures.
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv("ABREAST_LOCKS", str(tmp_path / "locks"))


@pytest.fixture
def project(tmp_path):
    return make_sums(tmp_path / "project")


def make_evaluator(**bounds):
    return Evaluator(TARGET, SLOW, TESTS, Bounds(limits=ResourceLimits(seconds=30), **bounds))


async def test_several_are_checked_at_once_and_what_each_did_is_its_own(project):
    before = fingerprint(project)
    evaluator = make_evaluator(generated=0)
    texts = [
        candidate_text(SLOW, TARGET, text)
        for text in (FAST, WRONG, FAST.replace("seen[one] += 1", "pass"))
    ]
    async with open_worktrees(project, 4) as trees:
        *slots, original = trees.slots
        evaluator.ready(await evaluator.begin(original), original)
        for slot, text in zip(slots, texts, strict=True):
            slot.write_candidate(TARGET.file, text)
        async with asyncio.TaskGroup() as group:
            pairs = zip(slots, texts, strict=True)
            tasks = [group.create_task(evaluator.check(slot, text)) for slot, text in pairs]
        found = [task.result() for task in tasks]
    assert [one.verdict for one in found] == ["same", "wrong", "wrong"]
    assert [one.passed for one in found] == [3, 1, 1]
    assert found[0].diffs == ()
    assert {diff.candidate for diff in found[1].diffs} != {
        diff.candidate for diff in found[2].diffs
    }
    assert all(one.layers for one in found)
    assert fingerprint(project) == before


async def test_a_run_that_was_killed_is_made_once_more_and_not_twice(project):
    class Killed(Evaluator):
        kills = 0

        async def _trace_candidate(self, slot, inputs=None, wanted=None):
            found = await super()._trace_candidate(slot, inputs, wanted)
            assert slot.path.joinpath(TARGET.file).read_text() == text
            if not self.kills:
                return found
            self.kills -= 1
            slot.write_candidate(TARGET.file, "what a killed run has left\n")
            return replace(found, failure="refused", reason=f"{KILLED}, in a test")

    text = candidate_text(SLOW, TARGET, FAST)
    evaluator = Killed(TARGET, SLOW, TESTS, Bounds(limits=ResourceLimits(seconds=30), generated=0))
    async with open_worktrees(project, 2) as trees:
        slot, original = trees.slots
        evaluator.ready(await evaluator.begin(original), original)
        for kills, verdict in ((1, "same"), (2, "refused")):
            await slot.reset()
            slot.write_candidate(TARGET.file, text)
            evaluator.kills = kills
            assert (await evaluator.check(slot, text)).verdict == verdict


async def test_the_machine_is_shared_while_checking_and_held_alone_while_measuring(
    project, tmp_path, monkeypatch
):
    held = []

    def may_be_had(how):
        with (tmp_path / "locks/abreast-room.lock").open() as room:
            try:
                fcntl.flock(room, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def replace_by(name, value):
        async def work(*_, **__):
            held.append((name, may_be_had(fcntl.LOCK_SH), may_be_had(fcntl.LOCK_EX)))
            return value

        monkeypatch.setattr(f"{EVALUATOR}.{name}", work)

    replace_by("watch", ran(1.0, 1.0))
    replace_by("scout", TimedCalls((), 0, 1))
    replace_by("time_candidate", Timed("same"))
    replace_by("line_profile", {})
    monkeypatch.setattr(f"{EVALUATOR}.check_baseline", lambda *_: None)
    monkeypatch.setattr(f"{EVALUATOR}.judge_behaviour", lambda *_: Behaviour("same", ""))
    evaluator = make_evaluator(generated=0)
    async with open_worktrees(project, 2) as trees:
        slot, original = trees.slots
        evaluator.ready(await evaluator.begin(original), original)
        await evaluator.check(slot, FAST)
        await evaluator.time(original, slot, FAST, 1)
        await evaluator.profile(slot)
    # Checks share the machine; a measurement holds it alone.
    shared, alone = (True, False), (False, False)
    assert held == [
        ("watch", *shared),
        ("watch", *shared),
        ("scout", *shared),
        ("watch", *shared),
        ("time_candidate", *alone),
        ("line_profile", *alone),
    ]


@pytest.mark.usefixtures("unconfined")
@pytest.mark.usefixtures("unconfined")
async def test_a_difference_that_no_test_shows_is_found_by_inputs_that_are_made_up(project):
    evaluator = make_evaluator(generated=150)
    late = SLOW.replace("    return found", "    return found if len(numbers) != 4 else 0")
    async with open_worktrees(project, 2) as (trees):
        slot, original = trees.slots
        evaluator.ready(await evaluator.begin(original), original)
        slot.write_candidate(TARGET.file, late)
        found = await evaluator.check(slot, late)
    assert found.verdict == "wrong"
    assert found.diffs[0].invocation.startswith("pairs([")


@pytest.mark.usefixtures("unconfined")
async def test_what_reaches_for_the_environment_is_refused_before_it_runs(project):
    evaluator = make_evaluator()
    text = "import os\n" + SLOW.replace("    found = 0", "    found = len(os.environ) * 0")
    async with open_worktrees(project, 2) as trees:
        slot, original = trees.slots
        evaluator.ready(await evaluator.begin(original), original)
        found = await evaluator.check(slot, text)
    assert found.verdict == "refused"
    assert found.tests == 0


async def test_without_a_test_that_calls_it_there_is_nothing_to_go_by(tmp_path):
    project = make_sums(
        tmp_path / "other", **{"test_sums.py": "import sums\n\n\ndef test_it():\n    assert sums\n"}
    )
    async with open_worktrees(project, 1) as trees:
        with pytest.raises(BaselineFailed, match="no test calls pairs"):
            await make_evaluator().begin(trees.slots[0])


def ran(seconds, cpu):
    return Watched(1, 1, (), (), "", "", None, "", (), seconds=seconds, cpu=cpu)


@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.floats(0.01, 500), st.floats(0, 500)), min_size=1, max_size=2),
)
def test_a_candidate_has_ten_times_the_original_s_cpu_and_at_least_a_minute_of_wall_time(
    cpu, times
):
    before = ResourceLimits(seconds=10, cpu=cpu)
    found = limits_for(before, *(ran(*one) for one in times))
    assert found.cpu >= cpu
    assert found.cpu >= 10 * max(busy for _, busy in times)
    assert found.cpu <= max(cpu, 10 * max(busy for _, busy in times) + 1)
    assert found.seconds == max(60, 10 * max(seconds for seconds, _ in times))
    assert found.memory == before.memory


def test_of_a_recorded_run_without_times_the_limits_are_as_they_are():
    assert limits_for(ResourceLimits(seconds=10), ran(0.0, 0.0)) == ResourceLimits(seconds=10)


async def test_a_slow_machine_is_no_fault_of_a_candidate(project):
    """It exceeds its wall-time limit but uses little CPU, as on a busy machine."""
    evaluator = make_evaluator(generated=0)
    evaluator._bounds = replace(evaluator._bounds, limits=ResourceLimits(seconds=60, cpu=30))
    slow = SLOW.replace(
        "    found = 0\n",
        "    found = len([None for _ in range(3) if __import__('time').sleep(0.7)])\n",
    )
    async with open_worktrees(project, 2) as trees:
        slot, original = trees.slots
        evaluator.ready(await evaluator.begin(original), original)
        evaluator._bounds = replace(evaluator._bounds, limits=ResourceLimits(seconds=1, cpu=30))
        slot.write_candidate(TARGET.file, slow)
        found = await evaluator._trace_candidate(slot)
    assert found.failure is None, found.reason
    assert found.passed == 3


def test_nothing_is_known_before_the_original_was_seen():
    evaluator = make_evaluator()
    assert not evaluator.seen
    for ask in (lambda: evaluator.original, lambda: evaluator.inputs):
        with pytest.raises(RuntimeError, match="not been seen"):
            ask()
