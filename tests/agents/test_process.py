"""A run of an agent: how it ends, what it is given, and that it leaves no process behind."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from abreast.agents.process import (
    MARK,
    AgentFailed,
    AgentPlace,
    AgentTask,
    end_strays,
    run_agent,
)
from abreast.core.errors import KeyRefused, QuotaSpent, Throttled
from abreast.core.usage import Usage
from abreast.executors.commands import Commands
from tests.agents.stubs import stub_runner, write_stub


async def run(folder: Path, code: str, **more):
    options = {name: more.pop(name) for name in ("changed", "started") if name in more}
    task = AgentTask("the task", ("edit",), **more)
    runner = stub_runner(write_stub(folder, code))
    async with Commands() as commands:
        return await run_agent(commands, runner, task, AgentPlace(folder), **options)


async def test_an_agent_gets_its_task_and_tells_what_it_did(tmp_path):
    seen: list[str] = []
    report = await run(
        tmp_path,
        "say(kind='start', session='s1')\n"
        "say(kind='step', text='look')\n"
        "open('made', 'w').write(task)\n"
        "end('it is ' + task, cost=0.25)",
        changed=lambda now: seen.append(*(now.steps[-1:] or [""])),
    )
    assert report.text == "it is the task"
    assert report.session == "s1"
    assert report.usage == Usage(1, 10, 5, 0.25)
    assert seen == ["", "look", "look"]
    assert (tmp_path / "made").read_text() == "the task"


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("sys.exit(3)", AgentFailed, "stub: exit code 3"),
        ("sys.exit('it broke')", AgentFailed, "exit code 1: it broke"),
        ("os.kill(os.getpid(), 9)", AgentFailed, "killed by SIGKILL"),
        ("pass", AgentFailed, "it wrote no events"),
        ("print('hello')", AgentFailed, "it wrote no events: hello"),
        ("say(kind='step', text='x')", AgentFailed, "it ended without a result"),
        ("say(kind='error', text='no way')", AgentFailed, "stub: no way"),
        ("say(kind='error', text='not logged in')", KeyRefused, "not logged in"),
        ("say(kind='error', text='429 slow down')", Throttled, "slow down"),
        ("say(kind='error', text='usage limit reached')", QuotaSpent, "usage limit"),
        ("end('half'); sys.exit(1)", AgentFailed, "exit code 1"),
    ],
)
async def test_an_agent_without_a_result_is_one_clear_error(tmp_path, code, error, words):
    with pytest.raises(error) as raised:
        await run(tmp_path, code)
    assert words in str(raised.value)


async def test_a_limit_says_how_long_it_lasts(tmp_path):
    with pytest.raises(QuotaSpent) as raised:
        await run(tmp_path, "say(kind='error', text='usage limit, try again in 2 hours')")
    assert raised.value.retry_after == 7200
    with pytest.raises(QuotaSpent) as raised:
        await run(tmp_path, "say(kind='error', text='no', resets=1)")
    assert raised.value.retry_after == 0


async def test_an_agent_that_is_not_installed_is_said_so(tmp_path):
    runner = stub_runner("no-such-agent")
    async with Commands() as commands:
        with pytest.raises(AgentFailed, match="stub is not installed"):
            await run_agent(commands, runner, AgentTask("x"), AgentPlace(tmp_path))


async def test_what_left_the_process_group_is_ended_too(tmp_path):
    code = (
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True,\n"
        "    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "end(str(child.pid))"
    )
    report = await run(tmp_path, code)
    assert has_ended(int(report.text))


def test_a_process_whose_program_is_still_being_loaded_is_ended_too(monkeypatch):
    mark, looks = "0" * 16, 0
    read = Path.read_bytes

    def look(place):  # as Linux shows it in the middle of execve
        nonlocal looks
        if place.name in {"environ", "cmdline"} and place.parent.name == str(child.pid):
            looks += 1
            if looks <= 4:
                return b""
        return read(place)

    with subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: mark}) as child:
        try:
            monkeypatch.setattr(Path, "read_bytes", look)
            assert end_strays(mark) > 0
            assert child.wait(60) == -signal.SIGKILL
        finally:
            child.kill()


def has_ended(pid):
    """Whether a process has ended; its parent may not have asked for its exit code yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


async def test_a_cancelled_agent_is_gone_and_says_what_it_used(tmp_path):
    ready = asyncio.Event()
    code = (
        "say(kind='turn', id=1, input=100, output=7)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('pid', 'w').write(str(os.getpid()))\n"
        "say(kind='step', text='ready')\n"
        "time.sleep(1000)"
    )
    task = asyncio.ensure_future(
        run(tmp_path, code, changed=lambda now: ready.set() if now.steps else None)
    )
    await asyncio.wait_for(ready.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.usage.input_tokens == 100  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_an_agent_has_no_repository_but_its_own_and_an_empty_home_if_asked(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("GIT_DIR", "/elsewhere/.git")
    code = "end(json.dumps([os.environ.get('GIT_DIR'), os.environ['HOME'], task]))"
    place = write_stub(tmp_path, code)
    async with Commands() as commands:
        runner = stub_runner(place, home="own")
        task = AgentTask("x", system="Be brief.")
        report = await run_agent(commands, runner, task, AgentPlace(tmp_path, tmp_path))
    git, home, asked = json.loads(report.text)
    assert git is None
    assert home.startswith(str(tmp_path))
    assert not os.path.exists(home)  # noqa: PTH110, ASYNC240 - a test may block
    assert asked == "Be brief.\n\nx"
