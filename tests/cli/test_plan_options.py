"""Every option of `abreast plan` has an effect: none is accepted and then not read."""

import asyncio
import json
import os
import select
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from abreast.jobs.plan.settings import PlanJob
from abreast.testing.storm import open_storm
from tests.cli import test_plan_agents as plan_agents
from tests.cli import test_plan_edited as plan_edited
from tests.cli import test_plan_requests as plan_requests
from tests.cli import test_plan_work as plan_work
from tests.cli import test_ray as ray
from tests.cli.commands.test_plan import MARK, project
from tests.cli.shell import PATIENCE
from tests.cli.test_plan_work import editor

__all__ = ["project"]


def ran(project, *arguments, code=0, **environment):
    """The subplans of a run, by the first part of their names, and the whole of what it printed."""
    said = project("plan", "run", "src", *arguments, "--json", **environment)
    assert said.code == code, said
    found = json.loads(said.out)
    return {one["leaf"].split("-")[0]: one for one in found["subplans"]}, found


@pytest.mark.parametrize(
    ("told", "peak"),
    [([], 4), (["-w", "2"], 2), (["--max-parallel", "3"], 3), (["--order", "sequential"], 1)],
)
def test_the_width_and_the_order_are_those_of_the_run(project, told, peak):
    assert ran(project, "--command", "true", *told)[1]["peak"] == peak


def test_dependencies_wait_for_what_they_import(project):
    for folder, imported in (("alpha", "beta"), ("beta", "delta"), ("delta", "gamma")):
        project.file(f"src/{folder}/__init__.py", f"import {imported}\n")
    project.file("src/gamma/__init__.py", "")
    project.git("add", "-A")
    log = project.folder / ".abreast/log"
    log.parent.mkdir()
    ran(
        project,
        "--command",
        'echo "$ABREAST_SCOPE" >> "$LOG"',
        "--order",
        "dependencies",
        LOG=str(log),
    )
    assert log.read_text().split() == ["gamma/", "delta/", "beta/", "alpha/"]
    found, _ = ran(
        project,
        "--command",
        "case $ABREAST_SCOPE in delta/) exit 3;; esac",
        "--order",
        "dependencies",
        code=1,
    )
    assert {name: one["state"] for name, one in found.items()} == {
        "alpha": "blocked",
        "beta": "blocked",
        "delta": "failed",
        "gamma": "done",
    }
    assert found["alpha"]["error"].startswith("it needs delta-")


def test_a_dependent_starts_from_what_those_have_done_that_it_needs_also_after_a_resume(project):
    for folder, imported in (("alpha", "beta"), ("beta", "delta"), ("delta", "gamma")):
        project.file(f"src/{folder}/__init__.py", f"import {imported}\n")
    project.file("src/gamma/__init__.py", "")
    project.git("add", "-A")
    command = """
cat gamma/m1.py delta/m1.py beta/m1.py > seen
echo "by = '$ABREAST_SCOPE'" > "$ABREAST_SCOPE"m1.py
mv seen "$ABREAST_SCOPE"seen.txt
case $ABREAST_SCOPE in beta/) [ -e "$GO" ];; esac
"""
    go = project.folder / ".git/go"
    found, _ = ran(project, "--command", command, "--order", "dependencies", code=1, GO=str(go))
    assert {name: one["state"] for name, one in found.items()} == {
        "alpha": "blocked",
        "beta": "failed",
        "delta": "done",
        "gamma": "done",
    }
    go.touch()
    assert project("plan", "resume", GO=str(go)).code == 0
    said = project("plan", "apply", "plan")
    assert said.code == 0, said
    seen = {
        part: (project.folder / f"src/{part}/seen.txt").read_text().split("\n")
        for part in ("alpha", "gamma")
    }
    assert seen["alpha"] == ["by = 'gamma/'", "by = 'delta/'", "by = 'beta/'", ""]
    assert seen["gamma"] == ["x = 1", "x = 1", "x = 1", ""]
    assert (project.folder / "src/delta/m1.py").read_text() == "by = 'delta/'\n"


def test_a_circle_of_imports_runs_as_one_group_after_what_it_needs_and_before_what_needs_it(
    project, tmp_path
):
    imported = {"alpha": "beta", "beta": "delta", "delta": "beta\nimport gamma", "gamma": "os"}
    for folder, name in imported.items():
        project.file(f"src/{folder}/__init__.py", f"import {name}\n")
    project.git("add", "-A")
    for name in ("beta", "delta"):
        os.mkfifo(tmp_path / name)
    # Each of the circle waits for the other one: it ends only if both run at once.
    command = """
case $ABREAST_SCOPE in
    beta/) echo > "$PIPES/delta"; read -r _ < "$PIPES/beta";;
    delta/) read -r _ < "$PIPES/delta"; echo > "$PIPES/beta";;
esac
cat */by > seen 2> /dev/null
echo "$ABREAST_SCOPE" > "$ABREAST_SCOPE"by
mv seen "$ABREAST_SCOPE"seen.txt
"""
    arguments = ("--command", command, "--order", "dependencies", "-w", "4", "--timeout", "60s")
    found, _ = ran(project, *arguments, PIPES=str(tmp_path))
    assert {one["state"] for one in found.values()} == {"done"}
    assert project("plan", "apply", "plan").code == 0
    seen = {
        part: (project.folder / f"src/{part}/seen.txt").read_text().split() for part in imported
    }
    assert seen == {
        "gamma": [],
        "beta": ["gamma/"],
        "delta": ["gamma/"],
        "alpha": ["beta/", "delta/", "gamma/"],
    }


def test_what_needs_a_circle_is_blocked_if_any_of_it_failed(project):
    for folder, name in {"alpha": "beta", "beta": "delta", "delta": "beta", "gamma": "os"}.items():
        project.file(f"src/{folder}/__init__.py", f"import {name}\n")
    project.git("add", "-A")
    command = "case $ABREAST_SCOPE in delta/) exit 3;; esac"
    found, _ = ran(project, "--command", command, "--order", "dependencies", code=1)
    assert {name: one["state"] for name, one in found.items()} == {
        "alpha": "blocked",
        "beta": "done",
        "delta": "failed",
        "gamma": "done",
    }
    assert found["alpha"]["error"].startswith("it needs delta-")


def test_at_a_failure_all_stop_or_all_others_end(project, tmp_path):
    os.mkfifo(tmp_path / "never")
    command = 'case $ABREAST_SCOPE in alpha/) exit 7;; *) cat "$NEVER";; esac'
    never = str(tmp_path / "never")
    found, _ = ran(project, "--command", command, "--fail-fast", "-w", "2", code=1, NEVER=never)
    assert [one["state"] for one in found.values()] == [
        "failed",
        "cancelled",
        "cancelled",
        "cancelled",
    ]
    found, _ = ran(
        project, "--command", "case $ABREAST_SCOPE in alpha/|delta/) exit 7;; esac", code=1
    )
    assert [one["state"] for one in found.values()] == ["failed", "done", "failed", "done"]
    assert found["delta"]["error"] == "exit code 7"


def test_a_subplan_is_tried_again_as_often_as_told(project):
    found, _ = ran(
        project,
        "--command",
        "case $ABREAST_SCOPE in alpha/) exit 7;; esac",
        "--retries",
        "2",
        code=1,
    )
    assert [one["attempts"] for one in found.values()] == [3, 1, 1, 1]


def test_a_timeout_ends_the_whole_process_group_and_frees_its_place(project, tmp_path):
    os.mkfifo(tmp_path / "here")
    here = os.open(tmp_path / "here", os.O_RDWR)
    command = """
case $ABREAST_SCOPE in alpha/)
  sh -c 'echo $$ > "$HERE"; trap "" TERM; while :; do sleep 600; done' & wait;;
esac"""
    environment = {**project.environment, "HERE": str(tmp_path / "here")}
    project.environment = environment
    arguments = ("plan", "run", "src", "--command", command, "--timeout", "3s", "-w", "1", "--json")
    with project.start(*arguments, measured=False) as process:
        assert select.select([here], [], [], PATIENCE)[0]
        child = os.pidfd_open(int(os.read(here, 100)))
        out, _ = process.communicate(timeout=PATIENCE)
    assert select.select([child], [], [], PATIENCE)[0], "its grandchild lives on"
    states = [one["state"] for one in json.loads(out)["subplans"]]
    assert states == ["failed", "done", "done", "done"]


def test_how_far_it_is_divided_is_as_told(project):
    for told, count in (
        ([], 4),
        (["--max-depth", "0"], 1),
        (["--min-files", "50"], 1),
        (["--max-files", "3"], 8),
    ):
        assert len(ran(project, "--command", "true", *told)[1]["subplans"]) == count


def test_the_instruction_is_in_a_file_and_in_the_environment(project):
    command = (
        '[ "$ABREAST_INSTRUCTION" = "Be kind." ] && [ "$(cat "$ABREAST_INSTRUCTION_FILE")" = '
        '"Be kind." ]'
    )
    ran(project, "--command", command, "--prompt", "Be kind.")
    ran(project, "--command", command, "--prompt", "Be quick.", code=1)


async def test_a_budget_stops_it_and_a_larger_one_goes_on(project):
    async with open_storm(script=editor) as storm:
        project.file("abreast.toml", f'[lanes.storm]\nbase_url = "{storm.url}/v1"\n')
        asked = (
            "plan",
            "run",
            "src",
            "-m",
            "storm/model",
            "--prompt",
            "# x",
            "-w",
            "1",
            "--budget",
            "2req",
        )
        said = await asyncio.to_thread(project, *asked)
        assert said.code == 3, said
        assert "abreast resume plan-1 --budget MORE" in said.err
        assert storm.stats().arrived == 2
        said = await asyncio.to_thread(project, "plan", "resume", "--budget", "20req")
        assert said.code == 0, said
        assert storm.stats().arrived == 4  # what was answered is not asked again
    assert "nothing to resume" in project("plan", "resume").err


def test_what_is_asked_of_others_is_listed_or_left_out(project):
    command = f"{MARK}; case $ABREAST_SCOPE in beta/) echo mine > alpha/m1.py;; esac"
    ran(project, "--command", command)
    said = project("plan", "apply", "plan", "--outside", "request")
    assert said.code == 1
    assert "alpha/m1.py: written by beta-" in said.out
    assert (project.folder / "src/beta/m1.py").read_text() == "x = 1\n"
    assert project("plan", "apply", "plan", "--outside", "request", "--leave-requests").code == 0
    assert (project.folder / "src/beta/m1.py").read_text() == "x = 1\n# seen\n"
    assert (project.folder / "src/alpha/m1.py").read_text() == "x = 1\n# seen\n"
    kept = project.git(
        "--git-dir", "src/.abreast/plan.git", "for-each-ref", "--format=%(refname)"
    ).split()
    assert [name.split("/")[3].split("-")[0] for name in kept] == [
        "beta"
    ]  # a part of it is in no tree yet


def test_what_was_changed_by_hand_stays_whichever_strategy_is_told(project):
    ran(project, "--command", MARK)
    project.file("src/beta/m2.py", "x = 2\n# by hand\n")
    for strategy in ("three-way", "sequential", "fail-on-conflict", "last-wins"):
        said = project("plan", "apply", "plan", "--strategy", strategy)
        assert said.code == 1
        assert "beta/m2.py: content conflict between source and beta-" in said.out
        assert (project.folder / "src/beta/m2.py").read_text() == "x = 2\n# by hand\n"


def test_a_directory_without_git_is_divided_worked_on_and_merged(project, tmp_path):
    for part in "abc":
        for number in range(5):
            project.file(f"../plain/{part}/m{number}.py", "x = 1\n")
    said = project("plan", "run", "../plain", "--min-files", "5", "--command", MARK, "--json")
    assert said.code == 0, said
    assert len(json.loads(said.out)["subplans"]) == 3
    assert project("plan", "apply", "plan").code == 0
    assert (tmp_path / "plain/b/m3.py").read_text() == "x = 1\n# seen\n"


@asynccontextmanager
async def asked_server():
    """A server whose replies are of no use to a plan; with what each request asked for."""
    asked = []

    async def answer(request):
        asked.append(await request.json())
        choice = {
            "message": {"role": "assistant", "content": "No."},
            "finish_reason": "stop",
            "index": 0,
        }
        return web.json_response(
            {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
        )

    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", asked
    finally:
        await runner.cleanup()


async def test_what_is_said_of_the_model_is_what_it_is_asked_with(project):
    words = {
        "--temperature": "0.25",
        "--reply-tokens": "77",
        "--repairs": "1",
        "--reasoning": "low",
    }
    async with asked_server() as (url, asked):
        project.file(
            "abreast.toml", f'[lanes.a]\nbase_url = "{url}"\n[lanes.b]\nbase_url = "{url}"\n'
        )
        for name, given in (("a/one", words), ("b/two", words | {"--repairs": "0"})):
            more = [word for pair in given.items() for word in pair]
            command = (
                "plan",
                "run",
                "src",
                "-m",
                name,
                "--prompt",
                "Do it.",
                *more,
                "--max-depth",
                "0",
            )
            said = await asyncio.to_thread(project, *command)
            assert said.code == 1, said
    assert [one["model"] for one in asked] == ["one", "one", "two"]
    assert {one["temperature"] for one in asked} == {0.25}
    assert {one["reasoning_effort"] for one in asked} == {"low"}
    assert {one.get("max_tokens") or one["max_completion_tokens"] for one in asked} == {77}
    assert "Do it." in asked[0]["messages"][-1]["content"]


def test_a_part_of_more_tokens_than_are_allowed_is_divided(project):
    whole = len(ran(project, "--command", "true", "--max-depth", "9")[1]["subplans"])
    assert len(ran(project, "--command", "true", "--max-tokens", "8")[1]["subplans"]) > whole


def test_with_bounds_of_tokens_it_is_divided_by_imports(project):
    found = ran(project, "--command", "true", "--max-tokens", "40000", "--min-tokens", "2000")
    assert len(found[1]["subplans"]) == 1  # all of it is far below the bound


SHOWN_BY = {
    "path": test_a_directory_without_git_is_divided_worked_on_and_merged,
    "home": plan_work.test_a_path_of_python_that_is_relative_is_so_to_where_it_was_asked,
    "command": test_the_instruction_is_in_a_file_and_in_the_environment,
    "call": plan_work.test_a_python_function_gets_the_subplan_and_works_in_its_worktree,
    "prompt": test_the_instruction_is_in_a_file_and_in_the_environment,
    "model": test_what_is_said_of_the_model_is_what_it_is_asked_with,
    "width": test_the_width_and_the_order_are_those_of_the_run,
    "order": test_dependencies_wait_for_what_they_import,
    "fail_fast": test_at_a_failure_all_stop_or_all_others_end,
    "retries": test_a_subplan_is_tried_again_as_often_as_told,
    "timeout": test_a_timeout_ends_the_whole_process_group_and_frees_its_place,
    "budget": test_a_budget_stops_it_and_a_larger_one_goes_on,
    "check": plan_work.test_a_check_of_the_users_own_stops_a_merge,
    "repairs": test_what_is_said_of_the_model_is_what_it_is_asked_with,
    "temperature": test_what_is_said_of_the_model_is_what_it_is_asked_with,
    "reasoning": test_what_is_said_of_the_model_is_what_it_is_asked_with,
    "reply_tokens": test_what_is_said_of_the_model_is_what_it_is_asked_with,
    "max_depth": test_how_far_it_is_divided_is_as_told,
    "min_files": test_how_far_it_is_divided_is_as_told,
    "max_files": test_how_far_it_is_divided_is_as_told,
    "max_tokens": test_a_part_of_more_tokens_than_are_allowed_is_divided,
    "min_tokens": test_with_bounds_of_tokens_it_is_divided_by_imports,
    "include": plan_edited.test_only_chosen_files_are_divided_also_when_it_goes_on,
    "exclude": plan_edited.test_only_chosen_files_are_divided_also_when_it_goes_on,
    "all_files": plan_edited.test_generated_files_are_in_no_part_but_may_be_written,
    "default_bounds": test_how_far_it_is_divided_is_as_told,
    "parts": plan_edited.test_a_plan_is_written_edited_run_and_applied,
    "planner": plan_edited.test_a_model_proposes_parts_once_also_when_the_run_goes_on,
    "agent": plan_agents.test_an_agent_works_on_each_subplan_and_its_work_is_merged,
    "allow": plan_agents.test_an_agent_is_told_what_it_may_do,
    "executor": ray.test_the_parts_of_a_plan_are_worked_on_in_directories_of_the_nodes,
    "rounds": (
        plan_requests.test_an_owner_runs_again_with_what_it_is_asked_for_and_nothing_else_does
    ),
}
"""The test that shows what each fact of a plan does."""


def test_every_fact_of_a_plan_has_a_test_that_shows_what_it_does():
    assert set(SHOWN_BY) == set(PlanJob.__dataclass_fields__)


def test_files_belong_to_those_who_had_them_when_they_ran_though_the_tree_divides_otherwise_by_now(
    project,
):
    ran(project, "--command", MARK)
    before = project("plan", "show", "src", "--json").out
    for number in range(20):
        project.file(f"src/alpha/new/m{number}.py", "")
    project.git("add", "-A")
    assert project("plan", "show", "src", "--json").out != before
    said = project("plan", "apply", "plan")
    assert said.code == 0, said
    assert (project.folder / "src/alpha/m0.py").read_text() == "x = 0\ny = 1\n# seen\n"
