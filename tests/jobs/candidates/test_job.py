"""The candidates job: checks side by side, measures alone, repairs at once, at every width."""

import asyncio
import functools

import pytest

from abreast.assembly.names import as_caller, open_run
from abreast.jobs.candidates.author import ModelAuthor
from abreast.jobs.candidates.job import EvaluationOptions, TreeChanged
from abreast.jobs.candidates.results import Proposal, best_of
from abreast.jobs.candidates.timing.timed_process import TimedProcessFailed
from abreast.testing import Gate, ScriptedModel
from abreast.worktrees.slot import Slot
from tests.jobs.candidates.laboratories import (
    ORIGINAL,
    TARGET,
    Author,
    FakeEvaluator,
    PlainAuthor,
    make_project,
    proposals,
    proposing,
    text_of,
    trials,
)
from tests.worktrees.repositories import ENVIRONMENT, fingerprint, left_in, worktrees

PATIENCE = 60  # seconds after which the event loop counts as blocked


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "project")


async def tried_in(project, evaluator, found, how=None, author=None, **opening):
    how = how or EvaluationOptions(2)
    async with open_run("optimize", seed=7, **opening) as run:
        return await trials(project, evaluator, how, author).run(run, proposing(found))


def verdicts(tried):
    return {one.name: one.verdict for one in tried}


# --- the phases


async def test_two_slots_check_exactly_two_at_once_and_measuring_is_alone(project):
    checking, timing = Gate(), Gate()
    evaluator = FakeEvaluator(checking, timing)
    words = [f"fast2 {number}" for number in range(6)]

    async def watch():
        for at in range(0, 6, 2):  # neither of a pair goes on before both are there
            await checking.wait_for(*words[at : at + 2])
            assert evaluator.running == {"check": 2, "time": 0}
            assert checking.held == set(words[at : at + 2])
            checking.open(*words[at : at + 2])
        for word in words:
            await timing.wait_for(word)
            assert evaluator.running == {"check": 0, "time": 1}
            timing.open(word)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        tried = await tried_in(project, evaluator, proposals(*words))
    assert evaluator.peaks == {"check": 2, "time": 1}
    assert evaluator.overlaps == []
    assert [one.name for one in tried] == [f"c{number}" for number in range(6)]
    assert set(evaluator.slots["check"].values()) == {0, 1}


async def test_results_are_in_the_order_of_the_proposals_whatever_ends_first(project):
    checking = Gate()
    evaluator = FakeEvaluator(checking)

    async def watch():
        await checking.wait_for("wrong a", "fast2 b")
        checking.open("fast2 b")
        await checking.wait_for("same c")
        checking.open("same c")
        await checking.wait_for("hang d")
        checking.open_all()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        tried = await tried_in(
            project, evaluator, proposals("wrong a", "fast2 b", "same c", "hang d")
        )
    assert verdicts(tried) == {"c0": "wrong", "c1": "faster", "c2": "same", "c3": "timeout"}
    assert list(verdicts(tried)) == ["c0", "c1", "c2", "c3"]
    assert evaluator.times("time") == ["fast2 b", "same c"]  # only what passed


@pytest.mark.parametrize("width", [1, 2, 5])
async def test_every_width_gives_the_same(project, width):
    words = ("wrong a", "fast2 b", "raise c", "same d", "hang e", "fast3 f", "break g")
    tried = await tried_in(project, FakeEvaluator(), proposals(*words), EvaluationOptions(width))
    assert list(verdicts(tried).values()) == [
        "wrong",
        "faster",
        "error",
        "same",
        "timeout",
        "faster",
        "error",
    ]
    assert {one.name: one.reason for one in tried}["c2"] == "OSError: the disk is full"
    assert tried[1].checked.stdout.startswith("fast2 b in ")  # behaviour travels with the result


async def test_a_candidate_that_fails_gives_its_slot_back_at_once(project):
    checking = Gate()
    evaluator = FakeEvaluator(checking)

    async def watch():
        await checking.wait_for("wrong a", "fast2 b")
        checking.open("wrong a")
        await checking.wait_for("fast2 c")  # while b is still being checked
        assert "fast2 b" in checking.held
        checking.open_all()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await tried_in(project, evaluator, proposals("wrong a", "fast2 b", "fast2 c"))


async def test_a_slot_is_not_held_into_measuring_and_the_code_is_staged_anew_in_a_clean_one(
    project,
):
    checking, timing = Gate(), Gate()
    # It asserts that no file of the check is left, and that the slot has the candidate's code.
    evaluator = FakeEvaluator(checking, timing)

    async def watch():
        await checking.wait_for("fast2 a", "fast2 b")
        checking.open("fast2 b")
        await checking.wait_for("fast2 c")
        checking.open_all()
        await timing.wait_for("fast2 a")
        assert evaluator.running == {"check": 0, "time": 1}
        timing.open_all()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await tried_in(project, evaluator, proposals("fast2 a", "fast2 b", "fast2 c"))
    assert evaluator.slots["check"] == {"fast2 a": 0, "fast2 b": 1, "fast2 c": 1}
    assert evaluator.slots["time"] == {"fast2 a": 0, "fast2 b": 0, "fast2 c": 0}


async def test_the_main_tree_is_the_same_bytes_and_no_worktree_is_left(project, cache):
    (project / "untracked.txt").write_text("mine\n")
    (project / "other.txt").write_text("changed\n")
    before = fingerprint(project)
    await tried_in(project, FakeEvaluator(), proposals("wrong a", "fast2 b", "hang c"))
    assert fingerprint(project) == before
    assert worktrees(project) == []
    assert left_in(cache) == []


@pytest.mark.parametrize(
    "found", [[], [Proposal("bad", "", "patch", fault="refused", reason="it touches a.py")]]
)
async def test_nothing_to_try_makes_no_worktree(project, cache, found, monkeypatch):
    monkeypatch.setattr("abreast.jobs.candidates.job.open_worktrees", None)
    evaluator = FakeEvaluator()
    tried = await tried_in(project, evaluator, found)
    assert [one.verdict for one in tried] == ["refused"] * len(found)
    assert evaluator.done == []
    assert not cache.exists()


# --- duplicates


async def test_the_original_is_skipped_and_a_duplicate_copies_the_result_and_the_shorter_source(
    project,
):
    short = "def f(x):\n    return 'fast2'\n"
    found = [
        Proposal("same", "def f(x):\n    # as it was\n    return x + 1\n", "file"),
        Proposal("long", "def f(x):\n    # quick\n    return 'fast2'\n", "file"),
        Proposal("short", short, "file"),
        Proposal("long", "def f(x):\n    return 'wrong'\n", "file"),
    ]
    evaluator = FakeEvaluator()
    tried = {one.name: one for one in await tried_in(project, evaluator, found)}
    assert verdicts(tried.values()) == {
        "same": "duplicate",
        "long": "faster",
        "short": "duplicate",
        "long-2": "wrong",
    }
    assert tried["same"].reason == "it is the original"
    assert tried["short"].reason == "it is the same code as long"
    assert tried["short"].timed == tried["long"].timed
    assert tried["long"].text == short
    assert sorted(evaluator.times("check")) == ["fast2", "wrong"]


async def test_a_text_that_is_no_candidate_is_an_error_of_its_own(project):
    found = [Proposal("bad", "def g(:\n", "file"), *proposals("fast2 a")]
    tried = await tried_in(project, FakeEvaluator(), found)
    assert [one.verdict for one in tried] == ["error", "faster"]
    assert "not Python" in tried[0].reason


# --- repairs, refinement, adaptive


async def test_a_repair_starts_the_moment_its_candidate_fails(project):
    checking, thinking = Gate(), Gate()
    evaluator = FakeEvaluator(checking)
    author = Author([text_of("fast3 repaired")], gate=thinking)

    async def watch():
        await checking.wait_for("wrong a", "same b")
        checking.open("wrong a")
        await thinking.wait_for("repair wrong a")  # b has not ended
        await checking.wait_for("same c")  # nor does the repair keep a slot
        assert {"same b", "same c"} == checking.held
        thinking.open_all()
        checking.open_all()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        tried = await tried_in(
            project,
            evaluator,
            proposals("wrong a", "same b", "same c"),
            EvaluationOptions(2),
            author,
        )
    assert [one.name for one in tried] == ["c0", "c0-repaired", "c1", "c2"]
    assert (tried[1].origin, tried[1].parent, tried[1].verdict) == ("repair", "c0", "faster")
    assert author.asked[0][2][0].reason == "another number"


async def test_what_shows_no_differences_or_differs_too_much_is_not_repaired(project):
    author = Author()
    words = ("quiet a", "far b", "hang c", "raise d")
    tried = await tried_in(
        project, FakeEvaluator(), proposals(*words), EvaluationOptions(2), author
    )
    assert author.asked == []
    assert len(tried) == 4


async def test_repairs_are_bounded_and_what_was_there_before_ends_them(project):
    author = Author([text_of("wrong 2"), text_of("wrong 3"), text_of("never")])
    tried = await tried_in(
        project,
        FakeEvaluator(),
        proposals("wrong 1"),
        EvaluationOptions(2, repairs=2, refine=False),
        author,
    )
    assert [one.name for one in tried] == ["c0", "c0-repaired", "c0-repaired-repaired"]
    assert len(author.asked) == 2
    author = Author([text_of("wrong 1"), text_of("never")])
    tried = await tried_in(
        project, FakeEvaluator(), proposals("wrong 1"), EvaluationOptions(2, repairs=2), author
    )
    assert [one.verdict for one in tried] == ["wrong", "duplicate"]
    author = Author([text_of("same"), text_of("same")])
    tried = await tried_in(
        project,
        FakeEvaluator(),
        proposals("wrong 1", "wrong 2"),
        EvaluationOptions(2, most_repairs=1),
        author,
    )
    assert len(author.asked) == 1


async def test_two_repairs_that_are_the_same_code_are_measured_once_and_in_order(project):
    evaluator = FakeEvaluator()
    author = Author([text_of("fast2"), text_of("fast2")])
    tried = await tried_in(
        project,
        evaluator,
        proposals("wrong 1", "wrong 2"),
        EvaluationOptions(2, refine=False),
        author,
    )
    assert verdicts(tried) == {
        "c0": "wrong",
        "c0-repaired": "faster",
        "c1": "wrong",
        "c1-repaired": "duplicate",
    }
    assert evaluator.times("time") == ["fast2"]


async def test_all_that_are_faster_are_refined_in_one_request_and_then_adapted_with_their_ancestry(
    project,
):
    author = Author(
        [text_of("fast2 r")],
        refined=[text_of("fast4 x"), "", text_of("fast3 b")],
        adapted=[text_of("fast5 y")],
    )
    evaluator = FakeEvaluator()
    found = proposals("wrong a", "fast3 b", "same c", "fast2 d")
    tried = await tried_in(project, evaluator, found, EvaluationOptions(2), author)
    assert ("refine", ["c0-repaired", "c1", "c3"]) in author.asked
    assert [one for one in author.asked if one[0] == "adapt"] == [
        ("adapt", ["c0", "c0-repaired", "c0-repaired-refined"])
    ]
    got = {one.name: (one.verdict, one.parent) for one in tried}
    assert got["c0-repaired-refined"] == ("faster", "c0-repaired")
    assert got["c3-refined"] == (
        "duplicate",
        "c3",
    )  # refinements are compared with earlier candidates too
    assert got["c0-repaired-refined-adapted"] == ("faster", "c0-repaired-refined")
    assert len(tried) == 8


def loop_turns():
    """Return a function that returns only after the current event loop has made a turn."""
    loop = asyncio.get_running_loop()

    async def turn():
        pass

    return lambda: asyncio.run_coroutine_threadsafe(turn(), loop).result(PATIENCE)


async def test_an_author_of_plain_functions_gives_the_same_and_does_not_block_the_loop(project):
    given = ([text_of("fast2 r")],)
    options = {
        "refined": [text_of("fast4 x"), "", text_of("fast3 b")],
        "adapted": [text_of("fast5 y")],
    }
    found = proposals("wrong a", "fast3 b", "same c", "fast2 d")
    plain, awaited = PlainAuthor(*given, wait=loop_turns(), **options), Author(*given, **options)
    told = [
        await tried_in(project, FakeEvaluator(), found, EvaluationOptions(2), author)
        for author in (plain, awaited)
    ]
    assert [verdicts(one) for one in told] == [verdicts(told[1])] * 2
    assert plain.asked == awaited.asked
    assert {kind for kind, *_ in plain.asked} == {"repair", "refine", "adapt"}


async def test_a_plain_author_that_gives_an_awaitable_is_awaited(project):
    author = Author([text_of("fast2 r")], refined=[""])
    author.repair = functools.partial(lambda repair, *given: repair(*given), author.repair)
    tried = await tried_in(
        project, FakeEvaluator(), proposals("wrong a"), EvaluationOptions(1), author
    )
    assert verdicts(tried)["c0-repaired"] == "faster"


async def test_the_loop_goes_on_while_a_candidate_is_written(project, monkeypatch):
    write, wait, written = Slot.write_candidate, loop_turns(), []

    def write_slowly(slot, relative, text):
        wait()
        written.append(text)
        return write(slot, relative, text)

    monkeypatch.setattr(Slot, "write_candidate", write_slowly)
    tried = await tried_in(project, FakeEvaluator(), proposals("fast2 a", "same b"))
    assert set(verdicts(tried).values()) == {"faster", "same"}
    assert len(written) == 5  # checked and measured, each of them, and the winner's profile


async def test_a_scripted_model_goes_the_whole_way_with_one_request_for_each_step(
    project, tmp_path
):
    """Draft, repair, one refinement for all, adaptation from the whole ancestry, duplicates."""

    def block(*words):
        return "".join(f"Here:\n```python\n{text_of(word)}```\n" for word in words)

    def say(request):
        prompt = request.messages[-1].content
        if "approach 1" in prompt:
            return block("wrong a")
        if "approach 2" in prompt:
            return block("fast3 b")
        if "does not do what" in prompt:
            return block("fast2 r")
        return block("fast4 x", "fast2 r") if "Refine each" in prompt else block("fast4 x")

    model = ScriptedModel(say)
    evaluator = FakeEvaluator()
    async with (
        as_caller(model) as caller,
        open_run("optimize", seed=7, store=tmp_path / "runs.db") as run,
    ):
        author = ModelAuthor(TARGET, ORIGINAL, caller)
        tried = await trials(project, evaluator, EvaluationOptions(2), author).run(
            run, lambda: author.propose(run, 2, 2)
        )
    assert [(one.name, one.verdict, one.origin, one.parent) for one in tried] == [
        ("draft-1", "wrong", "model", None),
        ("draft-1-repaired", "faster", "repair", "draft-1"),
        ("draft-2", "faster", "model", None),
        ("draft-1-repaired-refined", "faster", "refinement", "draft-1-repaired"),
        ("draft-2-refined", "duplicate", "refinement", "draft-2"),
        ("draft-1-repaired-refined-adapted", "duplicate", "adaptive", "draft-1-repaired-refined"),
    ]
    prompts = [request.messages[-1].content for request in model.calls]
    (refining,) = [prompt for prompt in prompts if "Refine each" in prompt]
    assert "Where its time goes:\n100%         1 times" in refining
    assert [
        sum("```python" in line for line in prompt.splitlines()) for prompt in prompts[-2:]
    ] == [3, 4]
    names = [
        "1. draft-1, wrong",
        "2. draft-1-repaired, faster",
        "3. draft-1-repaired-refined, faster",
    ]
    assert [prompts[-1].index(name) for name in names] == sorted(
        prompts[-1].index(name) for name in names
    )
    assert len(prompts) == 5
    assert evaluator.times("time") == ["fast2 r", "fast3 b", "fast4 x"]


@pytest.mark.parametrize(
    "profiles",
    [[], OSError("no trace"), KeyError(3), TimedProcessFailed("it was killed"), TimeoutError()],
)
async def test_the_line_profile_is_of_the_winner_only_and_its_failure_loses_nothing(
    project, profiles
):
    evaluator = FakeEvaluator()
    evaluator.profiles = profiles
    tried = await tried_in(project, evaluator, proposals("fast2 a", "fast3 b", "same c", "wrong d"))
    assert evaluator.times("profile") == ["fast3 b"]
    assert evaluator.done[-1][0] == "profile"
    assert best_of(tried).name == "c1"


# --- resuming


async def cut_off(doing, gate, word):
    """Cancel the work as soon as this word has reached the gate."""
    task = asyncio.create_task(doing)
    await gate.wait_for(word)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_nothing_recorded_is_done_again(project, tmp_path):
    store, timing = tmp_path / "runs.db", Gate()
    words = ("wrong a", "fast2 b", "same c", "fast3 d")
    author = Author([text_of("fast4 r")], refined=["", "", ""])
    first, later = FakeEvaluator(timing=timing), FakeEvaluator()
    timing.open("fast4 r", "fast2 b")
    await cut_off(
        tried_in(project, first, proposals(*words), EvaluationOptions(2), author, store=store),
        timing,
        "same c",
    )
    asked = len(author.asked)
    tried = await tried_in(
        project, later, [], EvaluationOptions(2), author, store=store
    )  # the sources are recorded too
    assert verdicts(tried)["c3"] == "faster"
    assert sorted(first.times("check") + later.times("check")) == sorted([*words, "fast4 r"])
    assert sorted(first.times("time") + later.times("time")) == [
        "fast2 b",
        "fast3 d",
        "fast4 r",
        "same c",
    ]
    assert [one for one, _ in first.done + later.done].count("begin") == 1
    assert later.seen == {"calls": 10}
    assert [one[0] for one in author.asked[asked:]] == ["refine"]


async def test_a_check_that_the_machine_failed_is_made_again_on_request(project, tmp_path):
    store, first = tmp_path / "runs.db", FakeEvaluator()
    words = ("raise a", "fast2 b")
    tried = await tried_in(project, first, proposals(*words), store=store)
    assert tried[0].reason == "OSError: the disk is full"
    again = {"store": store, "run_id": "optimize-1"}
    kept, later = FakeEvaluator(), FakeEvaluator()
    assert await tried_in(project, kept, [], **again) == tried
    assert kept.times("check") == []
    await tried_in(project, later, [], resume="failed", **again)
    assert later.times("check") == ["raise a"]


async def test_cut_off_between_a_check_and_its_repair_the_check_is_not_made_again(
    project, tmp_path
):
    store, thinking = tmp_path / "runs.db", Gate()
    first, later = FakeEvaluator(), FakeEvaluator()
    author = Author(gate=thinking)
    await cut_off(
        tried_in(project, first, proposals("wrong a"), EvaluationOptions(2), author, store=store),
        thinking,
        "repair wrong a",
    )
    tried = await tried_in(
        project,
        later,
        [],
        EvaluationOptions(2),
        Author([text_of("fast2 r")], refined=[""]),
        store=store,
    )
    assert verdicts(tried) == {"c0": "wrong", "c0-repaired": "faster"}
    assert (first.times("check"), later.times("check")) == (["wrong a"], ["fast2 r"])


async def test_a_run_does_not_go_on_in_another_tree(project, tmp_path):
    store, timing = tmp_path / "runs.db", Gate()
    await cut_off(
        tried_in(project, FakeEvaluator(timing=timing), proposals("fast2 a"), store=store),
        timing,
        "fast2 a",
    )
    (project / "other.txt").write_text("another\n")
    with pytest.raises(TreeChanged, match="has changed since this run began"):
        await tried_in(project, FakeEvaluator(), [], store=store, resume="must")


async def test_nor_where_an_ignored_module_is_another_but_a_log_does_not_matter(project, tmp_path):
    (project / ".git/info/exclude").write_text("_version.py\n*.log\n")
    (project / "_version.py").write_text("version = 1\n")
    (project / "some.log").write_text("one\n")
    store, timing = tmp_path / "runs.db", Gate()
    await cut_off(
        tried_in(project, FakeEvaluator(timing=timing), proposals("fast2 a"), store=store),
        timing,
        "fast2 a",
    )
    (project / "_version.py").write_text("version = 2\n")
    with pytest.raises(TreeChanged, match="has changed since this run began"):
        await tried_in(project, FakeEvaluator(), [], store=store, resume="must")
    (project / "_version.py").write_text("version = 1\n")
    (project / "some.log").write_text("two\n")
    assert verdicts(await tried_in(project, FakeEvaluator(), [], store=store, resume="must")) == {
        "c0": "faster"
    }


async def cancel_at_random(project, cache, rounds):
    before = fingerprint(project)
    words = [f"fast2 {number}" for number in range(4)] + ["wrong a", "same b"]
    for number in range(rounds):
        checking, timing = Gate(), Gate()
        at = number % 12
        checking.open(*words[: at % 6]) if at < 6 else checking.open_all()
        timing.open(*words[: at % 6])
        evaluator = FakeEvaluator(checking, timing)
        gate, word = (
            (checking, words[at % 6])
            if at < 6
            else (timing, [*words[:4], "same b", "fast2 0"][at % 6])
        )
        await cut_off(tried_in(project, evaluator, proposals(*words)), gate, word)
        assert fingerprint(project) == before
        assert left_in(cache) == []
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_in_twelve_places_no_slot_or_worktree_is_left(project, cache):
    await cancel_at_random(project, cache, 12)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_cancelled_a_hundred_times_no_slot_or_worktree_is_left(project, cache):
    await cancel_at_random(project, cache, 100)
