"""Signals stop a run at once, leave no process, and print the command that resumes it."""

import os
import select
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE, children_of, end

# Reports its start on a pipe that it keeps open, counts itself, and ignores SIGINT and SIGTERM.
STUBBORN = (
    'trap "" INT TERM HUP; echo x >> ran; exec 3> here; echo "$1" >&3; while :; do sleep 600; done'
)


@pytest.fixture
def here(abreast):
    """A pipe on which children report that they have started."""
    os.mkfifo(abreast.folder / "here")
    opened = os.open(abreast.folder / "here", os.O_RDWR)
    yield opened
    os.close(opened)


def arrivals(here, count):
    """Wait until so many children have started."""
    said = b""
    while said.count(b"\n") < count:
        assert select.select([here], [], [], PATIENCE)[0], f"only {said!r} came"
        said += os.read(here, 1000)


def start_stubborn(abreast, *options):
    abreast.file("items", "".join(f"{number}\n" for number in range(100)))
    return abreast.start(
        "map", "--input", "items", "-P", "4", *options, "--", "sh", "-c", STUBBORN, "sh", "{}"
    )


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_ends_children_that_ignore_it_and_prints_how_to_go_on(
    abreast, here, number, code, word
):
    with start_stubborn(abreast) as process:
        arrivals(here, 4)
        process.send_signal(number)
        said = end(process)
    assert said.code == code
    assert said.err == f"abreast: {word}; go on with: abreast resume map-1\n"
    assert not children_of("map-1", abreast.folder)
    assert (abreast.folder / "ran").read_text().count("x") == 4  # nothing that was queued ran
    assert abreast("runs", "--json").rows[0]["state"] == "interrupted"
    assert abreast.recorded(state="cancelled") == {"0000", "0001", "0002", "0003"}
    assert abreast("export", "last").rows == []


def test_the_whole_foreground_group_gets_ctrl_c_and_it_ends_as_well(abreast, here):
    with start_stubborn(abreast) as process:
        arrivals(here, 4)
        os.killpg(process.pid, signal.SIGINT)
        said = end(process)
    assert said.code == 130
    assert "Traceback" not in said.err
    assert not children_of("map-1", abreast.folder)


def test_a_second_ctrl_c_ends_it_there_and_then(abreast, here):
    # The supervisor is stopped, so it can't end the children, and only the second Ctrl-C ends the
    # driver.
    with start_stubborn(abreast) as process:
        arrivals(here, 4)
        (supervisor,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(supervisor), signal.SIGSTOP)
        handles = [os.pidfd_open(pid) for pid in children_of("map-1", abreast.folder)]
        ended = None
        while ended is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                ended = process.wait(0.05)
        os.kill(int(supervisor), signal.SIGCONT)
        said = end(process)
    for handle in handles:
        assert select.select([handle], [], [], PATIENCE)[0]
        os.close(handle)
    assert (said.code, said.err) == (130, "")
    assert abreast("runs", "--json").rows[0]["state"] == "crashed"


def test_what_was_interrupted_goes_on_and_ends_as_if_nothing_had_been(abreast, here):
    script = (
        '[ -e go ] || [ "$1" -lt 3 ] || { exec 3> here; echo x >&3; sleep 600; }; echo "got $1"'
    )
    abreast.file("items", "".join(f"{number}\n" for number in range(8)))
    with abreast.start(
        "map", "--input", "items", "-P", "2", "--", "sh", "-c", script, "sh", "{}"
    ) as process:
        arrivals(here, 2)
        process.send_signal(signal.SIGTERM)
        said = end(process)
    assert said.code == 143
    abreast.file("go", "")
    again = abreast("resume")
    assert (again.code, again.lines) == (0, [f"got {number}" for number in range(8)])


def test_ctrl_c_while_it_waits_for_a_pipe_that_says_nothing(abreast, here):
    script = "exec 3> here; echo x >&3; sleep 600"
    with abreast.start("map", "--", "sh", "-c", script, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        arrivals(here, 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_while_nobody_takes_the_output(abreast, here):
    # The pipe is full and never read: a driver that writes from its loop would not hear the signal.
    read_end, write_end = os.pipe()
    script = 'head -c 1000000 /dev/zero; exec 3> here; [ "$1" = 1 ] || { echo x >&3; sleep 600; }'
    abreast.file("items", "1\n2\n")
    with abreast.start(
        "map", "--input", "items", "-P", "2", "--", "sh", "-c", script, "sh", "{}", stdout=write_end
    ) as process:
        os.close(write_end)
        arrivals(here, 1)
        assert select.select([read_end], [], [], PATIENCE)[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr.read() == b"abreast: interrupted; go on with: abreast resume map-1\n"
    os.close(read_end)


def test_ctrl_c_while_it_waits_for_the_writer_of_a_fifo(abreast, here):
    os.mkfifo(abreast.folder / "items")
    with abreast.start("map", "-v", "--input", "items", "--", "true") as process:
        assert b"run map-1 in" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_a_function_that_cannot_be_stopped_does_not_hold_up_ctrl_c(abreast, here):
    abreast.file(
        "work.py",
        "import os, threading\n\ndef stay(_):\n    fd = os.open('here', os.O_WRONLY)\n"
        "    os.write(fd, b'x\\n')\n    threading.Event().wait()\n",
    )
    abreast.file("items", "1\n")
    with abreast.start("map", "--input", "items", "--call", "work:stay") as process:
        arrivals(here, 1)
        process.send_signal(signal.SIGINT)
        said = end(process)
    assert said.code == 130
    assert "can't be stopped and is still running" in said.err
    assert "Traceback" not in said.err


def test_a_reader_who_has_seen_enough_ends_it_quietly(abreast):
    abreast.file("items", "".join(f"{number}\n" for number in range(10_000)))
    with abreast.start("map", "--input", "items", "--", "echo") as process:
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        assert process.stderr.read() == b""
    assert abreast("runs", "--json").rows[0]["state"] == "interrupted"


@pytest.mark.parametrize(
    "command", [["runs", "--json"], ["export", "last"], ["show", "last", "--json"], ["doctor"]]
)
def test_other_commands_end_quietly_too_when_nobody_reads(abreast, command):
    items = "".join(f"{number}\n" for number in range(2000))
    assert abreast("map", "--call", "builtins:str", given=items).lines == items.splitlines()
    read_end, write_end = os.pipe()
    os.close(read_end)
    with abreast.start(*command, stdout=write_end) as process:
        os.close(write_end)
        assert process.wait(PATIENCE) == 141
        assert process.stderr.read() == b""


def test_a_full_disk_behind_stdout_is_told_and_nothing_is_lost(abreast):
    abreast.file("items", "1\n2\n3\n")
    with (
        Path("/dev/full").open("wb") as full,
        abreast.start("map", "--input", "items", "--", "echo", stdout=full) as process,
    ):
        said = end(process)
    assert said.code == 1
    assert "the results can't be written to stdout: no space left on device" in said.err
    assert "abreast resume map-1" in said.err
    assert abreast("resume").lines == ["1", "2", "3"]
    with (
        Path("/dev/full").open("wb") as full,
        abreast.start("export", "last", stdout=full) as process,
    ):
        said = end(process)
    assert (said.code, said.err) == (
        1,
        "abreast: the output can't be written: no space left on device\n",
    )


def test_closed_standard_files_are_no_invitation_to_write_into_the_store(abreast):
    abreast.file("items", "1\n2\n")
    command = 'exec "$0" -m abreast map --input items -- echo <&- >&- 2>&-'
    process = subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=abreast.folder,
        env=abreast.environment,
        check=False,
    )
    assert process.returncode == 0
    assert [row["stdout"] for row in abreast("export", "last").rows] == ["1\n", "2\n"]


def test_nohup_is_respected(abreast, here):
    script = "exec 3> here; echo x >&3; read line < go; echo got"
    os.mkfifo(abreast.folder / "go")
    abreast.file("items", "1\n")
    command = 'trap "" HUP; exec "$0" -m abreast map --input items -- sh -c "$1"'
    with subprocess.Popen(
        ["sh", "-c", command, sys.executable, script],
        cwd=abreast.folder,
        env=abreast.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        arrivals(here, 1)
        process.send_signal(signal.SIGHUP)
        with (abreast.folder / "go").open("w") as go:
            go.write("on\n")
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b"got\n"


def test_ctrl_c_while_another_process_keeps_the_store_locked(abreast):
    assert abreast("map", "--store", "runs.db", "--", "true", given="x\n").code == 0
    with closing(sqlite3.connect(abreast.folder / "runs.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        abreast.file("abreast.toml", 'patience = "1h"\n')
        with abreast.start("map", "--store", "runs.db", "--", "true") as process:
            while not (holds(process.pid, "runs.db-shm") and "nanosleep" in waits_in(process.pid)):
                with suppress(subprocess.TimeoutExpired):
                    raise AssertionError(f"it ended with {process.wait(0.01)}")
            process.send_signal(signal.SIGINT)
            said = end(process)
    assert said.code == 130
    assert "Traceback" not in said.err


def holds(pid, name):
    """Whether a process has a file of that name open."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if link.readlink().name == name:
                return True
    return False


def waits_in(pid):
    """The kernel function in which a process waits."""
    return Path(f"/proc/{pid}/wchan").read_text()
