"""`abreast.plan`: work by functions and commands, its result, and what a resume runs again."""

import asyncio
import threading
from contextlib import closing

import pytest

import abreast
from abreast import sync
from abreast.assembly.plan_merge import MergeOptions
from abreast.cli.config import Config
from abreast.cli.errors import UsageError
from abreast.cli.jobs.plan.apply import ApplyOptions, apply_run
from abreast.cli.jobs.plan.driver import PlanDriver
from abreast.cli.stores import StoreChoice
from abreast.core.errors import NoSuchRun
from abreast.store.sqlite.store import SqliteStore
from tests.jobs.plan.repositories import QUIET, on_disk, repository
from tests.worktrees.repositories import worktrees

PARTS = ("alpha", "beta", "gamma")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.setenv(name, QUIET[name])


@pytest.fixture
def shop(tmp_path):
    """A repository of three parts, with two files each."""
    files = {f"{part}/{name}.py": f"price = '{name}'\n" for part in PARTS for name in ("a", "b")}
    return repository(tmp_path / "shop", files)


def planned(shop, work, **options):
    return abreast.plan(shop, work=work, **{"min_files": 2, **options})


def rename(part):
    for place in part.places:
        place.write_text(place.read_text().replace("price", "cost"))
    return len(part.files)


async def rename_later(part):
    await asyncio.to_thread(rename, part)
    return len(part.files)


@pytest.mark.parametrize("work", [rename, rename_later])
async def test_a_function_changes_every_part_and_apply_merges_all(shop, work):
    before = on_disk(shop)
    result = await planned(shop, work)
    assert result.ok
    assert [(one.scope, one.status, one.value) for one in result.parts] == [
        ("alpha/", "done", 2),
        ("beta/", "done", 2),
        ("gamma/", "done", 2),
    ]
    assert result.parts[0].files == result.parts[0].changed == ("alpha/a.py", "alpha/b.py")
    assert {name: facts for name, facts in on_disk(shop).items() if ".abreast" not in name} == {
        name: facts for name, facts in before.items() if ".abreast" not in name
    }
    assert not any(one.merged for one in result.parts)
    applied = await result.apply()
    assert applied.ok
    assert len(applied.paths) == 6
    assert (shop / "beta/b.py").read_text() == "cost = 'b'\n"
    assert all(one.merged for one in result.parts)
    assert worktrees(shop) == []


async def test_plain_functions_run_side_by_side_up_to_the_width(shop):
    barrier = threading.Barrier(3)
    result = await planned(shop, lambda _: barrier.wait(60), width=3)
    assert (result.ok, result.peak) == (True, 3)
    assert (await planned(shop, lambda _: None, width=2)).peak == 2


async def test_a_command_works_on_each_part_and_is_applied_at_once(shop):
    result = await planned(shop, "sed -i s/price/cost/ {files}", apply=True)
    assert result.applied.ok
    assert (shop / "gamma/a.py").read_text() == "cost = 'a'\n"


async def test_a_part_that_fails_is_told_and_the_others_can_be_applied(shop, tmp_path):
    def work(part):
        rename(part)
        if part.scope == "beta/":
            raise OSError("<script>no</script>")

    result = await planned(shop, work)
    assert not result.ok
    rows = result.rows()
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert rows[1]["error"] == "OSError: <script>no</script>"
    assert (rows[0]["files"], rows[0]["merged"]) == (["alpha/a.py", "alpha/b.py"], False)
    for text in (result._repr_html_(), result.report(tmp_path / "plan.html").read_text()):
        assert "&lt;script&gt;no" in text
        assert "<script" not in text
    assert "alpha/b.py" in (tmp_path / "plan.html").read_text()
    assert "2 of 3 parts done" in repr(result)
    refused = await result.apply()
    assert (refused.ok, refused.paths) == (False, ())
    assert "partial=True applies the others" in refused.blocked[0]
    assert (await result.apply(partial=True)).ok
    assert [one.merged for one in result.parts] == [True, False, True]
    assert (shop / "beta/a.py").read_text() == "price = 'a'\n"


async def test_conflicts_are_known_before_apply(shop):
    def work(part):
        rename(part)
        if part.scope == "alpha/":
            (part.path / "gamma/a.py").write_text("mine = 1\n")

    result = await planned(shop, work)
    assert result.ok
    alpha, beta, _ = result.parts
    assert len(alpha.conflicts) == 1
    assert alpha.conflicts[0].startswith("gamma/a.py: written by alpha")
    assert beta.conflicts == ()
    assert set(alpha.conflicts) <= set(result.conflicts)
    assert not (await result.apply()).ok


async def test_a_run_that_failed_goes_on_with_what_is_not_done(shop, tmp_path):
    calls = []
    broken = True

    def work(part):
        calls.append(part.scope)
        if broken and part.scope == "beta/":
            raise OSError("not yet")
        rename(part)

    store = tmp_path / "runs.db"
    assert not (await planned(shop, work, store=store)).ok
    assert sorted(calls) == ["alpha/", "beta/", "gamma/"]
    broken = False
    result = await planned(shop, work, store=store)
    assert (result.run, result.ok) == ("plan-1", True)
    assert calls[3:] == ["beta/"]
    assert (await result.apply()).ok
    assert (shop / "alpha/a.py").read_text() == "cost = 'a'\n"
    with pytest.raises(NoSuchRun):
        await planned(shop, work, store=store, resume="must")
    with pytest.raises(ValueError, match="plan-1 was started with other arguments"):
        await planned(shop, "true", store=store, resume="retry")
    assert (await planned(shop, work, store=store)).run == "plan-2"


def test_the_command_line_applies_what_a_program_ran_but_does_not_resume_it(shop, tmp_path, capsys):
    store = tmp_path / "runs.db"
    sync.plan(shop, work=rename, min_files=2, store=store)
    with closing(SqliteStore(str(store))) as opened, pytest.raises(UsageError, match="function"):
        PlanDriver.of_run(None, opened.get("plan-1"), {"budget": None}, ())
    choice = StoreChoice(Config.load(tmp_path), str(store))
    assert apply_run("plan-1", choice, ApplyOptions(MergeOptions())) == 0
    assert (shop / "alpha/a.py").read_text() == "cost = 'a'\n"
    assert "6 files written" in capsys.readouterr().err


def test_the_blocking_twin_waits_for_the_result(shop):
    assert sync.plan(shop, work=rename, min_files=2, apply=True).applied.ok


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"work": None}, ValueError, "it is not said what to do: give work"),
        ({"work": 3}, TypeError, "work must be a function or a command, not int"),
        ({"width": 0}, ValueError, "width: it must be at least 1"),
        ({"width": "many"}, ValueError, "width: must be a whole number"),
        ({"order": "up"}, ValueError, "order: it must be one of"),
        ({"timeout": -1}, ValueError, "timeout: must be a time"),
        ({"budget": "much"}, ValueError, "budget"),
        ({"model": "local/smollm2"}, ValueError, "model is for a model, and work asks none"),
        ({"max_files": 0}, ValueError, "max_files: it must be at least 1"),
        ({"resume": "x"}, ValueError, "resume must be one of"),
    ],
)
async def test_a_wrong_argument_is_one_sentence(shop, options, error, words):
    with pytest.raises(error, match=words) as raised:
        await planned(shop, **{"work": "true", **options})
    assert "\n" not in str(raised.value)
    assert worktrees(shop) == []


async def test_a_directory_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="is no directory"):
        await abreast.plan(tmp_path / "nowhere", work="true")


async def test_a_part_is_asked_for_a_change_and_a_stop_between_rounds_repeats_nothing(
    shop, tmp_path
):
    ran = []
    stop = True

    async def work(part):
        ran.append((part.scope, len(part.requests)))
        if part.scope == "alpha/":
            for name in ("alpha/a.py", "beta/a.py"):
                (part.path / name).write_text("cost = 'a'\n")
        for asked in part.requests:
            if stop:
                first.cancel()
                await asyncio.Event().wait()
            assert (asked.by.split("-")[0], asked.file) == ("alpha", "beta/a.py")
            assert "+cost = 'a'" in asked.diff
            (part.path / asked.file).write_text("cost = 'by beta'\n")

    first = asyncio.ensure_future(planned(shop, work, store=tmp_path / "s.db", width=1))
    with pytest.raises(asyncio.CancelledError):
        await first
    assert ran == [("alpha/", 0), ("beta/", 0), ("gamma/", 0), ("beta/", 1)]
    stop, ran[:] = False, []
    result = await planned(shop, work, store=tmp_path / "s.db", width=1)
    assert ran == [("beta/", 1)]
    assert result.ok
    assert not result.conflicts
    applied = await result.apply()
    assert applied.ok
    assert "beta/a.py" in "".join(applied.notes)
    assert (shop / "beta/a.py").read_text() == "cost = 'by beta'\n"
    assert (shop / "alpha/a.py").read_text() == "cost = 'a'\n"
