"""The storm in a process of its own and from a shell: its address, its end, its errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest

from abreast.testing.storm import LogEntry, start_process
from abreast.testing.storm.__main__ import main

COMMAND = [sys.executable, "-m", "abreast.testing.storm"]
CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).encode()
PATIENCE = 60


def post(url, body=CHAT):
    with urlopen(f"{url}/v1/chat/completions", body, timeout=PATIENCE) as reply:
        return json.loads(reply.read())


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_storm_in_a_process_of_its_own():
    with start_process(seed=3, rpm=600, steps=[(9999, {"rpm": 1})], fault_at={3: "500"}) as storm:
        assert storm.pid != os.getpid()
        assert post(storm.url)["choices"][0]["message"]["content"]
        stats = storm.stats()
        assert (stats.ok, stats.in_flight, stats.peak_in_flight) == (1, 0, 1)
        assert stats.cpu_seconds > 0
        (entry,) = storm.log()
        assert isinstance(entry, LogEntry)
        assert (entry.outcome, entry.model) == ("ok", "m")
        assert storm.log(since=1) == []
        storm.change(rpm=5, latency=0)
        with pytest.raises(ValueError, match="'minute' can't change"):
            storm.change(minute=3)
        assert repr(storm) == f"<StormProcess {storm.url} pid {storm.pid}>"
    assert not alive(storm.pid)


def test_its_process_ends_when_the_block_raises():
    with pytest.raises(KeyError):
        with start_process() as storm:
            raise KeyError
    assert not alive(storm.pid)


def test_it_ends_when_whoever_started_it_is_killed():
    program = """if True:
        import os, signal
        from abreast.testing.storm import start_process
        with start_process() as storm:
            print(storm.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    # The child inherits the error stream, whose end is reached only when both processes have
    # ended.
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == -signal.SIGKILL


def test_a_setting_that_cannot_be_starts_nothing():
    with pytest.raises(ValueError, match="rpm is a positive number"):
        with start_process(rpm=-1):
            pass


def test_a_process_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="the storm did not start: exit code 1"):
        with start_process():
            pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("as_json", [False, True])
def test_from_a_shell_it_says_where_it_is_and_ends_cleanly_when_told(number, as_json):
    command = [
        *COMMAND,
        "--rpm",
        "600",
        "--fault",
        "500=0",
        "--fault-at",
        "9=stall",
        "--step",
        "9:rpm=3,headers=late",
    ]
    command += ["--json"] if as_json else []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            line = child.stdout.readline()
            url = json.loads(line)["url"] if as_json else line.split()[-1]
            assert url.startswith("http://127.0.0.1:")
            post(url)
            child.send_signal(number)
            out, err = child.communicate(timeout=PATIENCE)
        finally:
            child.kill()
    assert (child.returncode, out) == (0, "")
    assert "Traceback" not in err
    assert ("1 ok" in err) is not as_json


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rpm", "-1"], "storm: rpm is a positive number, not -1.0"),
        (["--rpm", "nan"], "storm: rpm is a positive number, not nan"),
        (["--rpm", "many"], "storm: --rpm: a number is needed, not 'many'"),
        (["--latency", "-1"], "storm: latency is a number of at least 0, not -1.0"),
        (["--concurrency", "1.5"], "storm: --concurrency: a whole number is needed, not '1.5'"),
        (["--port", "99999"], "storm: --port: a port is from 0 to 65535, not 99999"),
        (["--fault", "500"], "storm: --fault: a number is needed, not ''"),
        (["--fault", "nope=0.5"], "storm: there is no fault 'nope'; there are "),
        (["--fault-at", "x=500"], "storm: --fault-at: a whole number is needed, not 'x'"),
        (["--step", "60:minute=3"], "storm: --step: a step can't change minute"),
        (["--retry-after", "soon"], "storm: retry_after is one of "),
        (["--settings", "3"], "storm: --settings: the settings are an object of JSON"),
        (["--settings", '{"rmp": 3}'], "storm: there is no setting rmp; "),
        (["--settings", '{"fault_at": {"x": "500"}}'], "storm: fault_at is a mapping"),
        (["--nonsense"], "storm: unrecognized arguments: --nonsense"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, said, capsys):
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_one_sentence(capsys):
    with start_process() as storm:
        port = storm.url.rpartition(":")[2]
        assert main(["--port", port]) == 1
    assert (
        capsys.readouterr().err
        == f"storm: can't listen on 127.0.0.1:{port}: Address already in use\n"
    )


def test_the_help_names_every_setting_and_every_fault(capsys):
    from abreast.testing.storm import BATCH_FAULTS, FAULTS
    from abreast.testing.storm.settings import NAMES

    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    text = capsys.readouterr().out
    flags = {
        "faults": "--fault ",
        "batch_faults": "--batch-fault ",
        "steps": "--step ",
        "markers": "--no-markers",
    }
    assert ended.value.code == 0
    assert [
        name for name in NAMES if flags.get(name, "--" + name.replace("_", "-")) not in text
    ] == []
    assert [name for name in (*FAULTS, *BATCH_FAULTS) if f"  {name} " not in text] == []


def test_the_testing_module_does_not_load_aiohttp_until_a_storm_is_opened():
    program = (
        "import sys, abreast.testing; assert 'abreast.testing.storm' not in sys.modules; "
        "abreast.testing.open_storm"
        "; import abreast.testing.storm; assert 'aiohttp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
    import abreast.testing

    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = abreast.testing.nonsense
