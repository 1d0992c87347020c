"""A call by fork is a call.

What a function that abreast runs sees there is what it sees in a new interpreter.
"""

import json
import os
import re
import signal
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.shell import Shell, plain_environment, unmeasured
from tests.turns import wait_until
from tests.warm import SharedWarm, Warm

LOOKING = """
import asyncio, gc, os, signal, sys, threading, warnings
from pathlib import Path

def there():
    for entry in Path("/proc/self/fd").iterdir():
        try:
            yield entry.readlink().name.partition(":")[0].lstrip("0123456789")
        except FileNotFoundError:
            pass

def names():  # but for the one that reads the input, which ends at any time
    return {thread.name for thread in threading.enumerate()} - {"abreast-input-map/input"}

def look(_):
    main = sys.modules["__main__"]
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return {
        "arguments": sys.argv, "path": sys.path, "flags": str(sys.flags), "cwd": os.getcwd(),
        "environment": dict(os.environ), "main": [main.__name__, main.__spec__.name, main.__file__],
        "signals": [
            str(signal.getsignal(number)).partition(" at ")[0] for number in signal.valid_signals()
        ],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "umask": os.umask(0o22),
        "streams": [
            (s.encoding, s.errors, s.line_buffering, s.fileno(), s.seekable(), s.isatty())
            for s in streams
        ],
        "files": sorted(there()), "threads": sorted(names()),
        "group": os.getpgid(0), "session": os.getsid(0),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "filters": [str(one[:3]) for one in warnings.filters],
        "collects": [gc.isenabled(), *gc.get_threshold()],
        "limits": Path("/proc/self/limits").read_text(),
    }
"""


@pytest.fixture
def abreast(tmp_path, warm):
    shell = Shell(tmp_path, warm)
    shell.environment = unmeasured(shell.environment)
    return shell


def test_it_sees_what_it_sees_in_a_new_interpreter(abreast):
    abreast.file("look.py", LOOKING)
    call = ("map", "--call", "look:look")
    said = {
        how: run(*call, given="x\n", EXTRA="ü")
        for how, run in (("fork", abreast), ("new", abreast.anew))
    }
    fork, new = (json.loads(same(said[how].out)) for how in ("fork", "new"))
    assert fork["environment"]["EXTRA"] == "ü"
    assert fork["cwd"] == str(abreast.folder)
    for name, seen in new.items():
        assert fork[name] == seen, name


def test_calls_do_not_see_each_other(abreast):
    abreast.file(
        "note.py",
        "import builtins\n\ndef note(_):\n    builtins.noted = getattr(builtins, 'noted', 0) + 1\n"
        "    return builtins.noted\n",
    )
    assert [abreast("map", "--call", "note:note", given="x\n").lines for _ in range(2)] == [
        ["1"],
        ["1"],
    ]


def test_calls_may_run_beside_each_other(abreast):
    # Each waits for the other, which a server of one call at a time never comes to.
    meet = 'touch "$1"; until [ -e 1 ] && [ -e 2 ]; do :; done; echo "$1"'
    said = {}

    def call(name):
        said[name] = abreast(
            "map", "--name", f"n{name}", "--", "sh", "-c", meet, "sh", "{}", given=name
        ).lines

    threads = [threading.Thread(target=call, args=(name,)) for name in ("1", "2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {"1": ["1"], "2": ["2"]}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("raise LookupError('no')", 1),
        ("atexit.register(print, 'at the end')", 0),
        ("sys.stdout.write('never flushed'), os._exit(7)", 7),
        ("atexit.register(lambda: os.close(1) or print('to nobody'))", 120),
    ],
)
def test_it_ends_as_a_new_interpreter_ends(abreast, body, code):
    abreast.file(
        "work.py", f"import atexit, os, signal, sys, threading\n\ndef work(_):\n    {body}\n"
    )
    fork, new = (run("map", "--call", "work:work", given="x\n") for run in (abreast, abreast.anew))
    assert (fork.code, fork.out) == (new.code, new.out)
    assert same(fork.err) == same(new.err)
    assert fork.code == code


def same(text):
    """What two runs of the same say alike."""
    return re.sub(r"map-\d|\d+\.\d+ s|0x[0-9a-f]+", "…", text)


def test_one_that_does_not_end_is_ended(tmp_path):
    (tmp_path / "work.py").write_text(
        "import threading\n\ndef stay(_):\n    threading.Event().wait()\n"
    )
    call = ("map", "--call", "work:stay")
    with closing(Warm(plain_environment())) as warm:
        with pytest.raises(subprocess.TimeoutExpired):
            warm.run(
                "abreast", call, b"x\n", cwd=tmp_path, environment=plain_environment(), patience=0.5
            )
        assert warm.calls == []


def test_who_asked_may_go_away(tmp_path):
    environment = plain_environment()
    with closing(Warm(environment)) as warm:
        ends = [end for _ in range(4) for end in os.pipe()]
        request = ("abreast", ["version"], str(tmp_path), environment, False)
        warm.ask_for(request, [ends[0], *ends[3::2]])
        for end in ends:
            os.close(end)
        for _ in range(2):
            said = warm.run(
                "abreast", ["version"], cwd=tmp_path, environment=environment, patience=60
            )
            assert said[0] == 0, said
            wait_until(lambda: not warm.calls)  # only then is the first one told


def test_where_abreast_cannot_be_imported_that_is_said(tmp_path):
    (tmp_path / "abreast.py").write_text("raise LookupError('half of it is missing')\n")
    environment = unmeasured(plain_environment())
    path = os.pathsep.join((str(tmp_path), environment["PYTHONPATH"]))
    for kind in (Warm, SharedWarm):
        with closing(kind({**environment, "PYTHONPATH": path})) as warm:
            with pytest.raises(RuntimeError, match="half of it is missing"):
                warm.run("abreast", ["version"], cwd=tmp_path, environment=environment, patience=60)


def test_one_process_serves_all_that_ask_for_the_same(tmp_path):
    (tmp_path / "work.py").write_text("import os\n\ndef parent(_):\n    return os.getppid()\n")
    environment = unmeasured(plain_environment())

    def parent_of_a_call(also):
        with closing(SharedWarm(environment, also)) as warm:
            found = warm.run(
                *("abreast", ("map", "--call", "work:parent"), b"x\n"),
                cwd=tmp_path,
                environment=environment,
                patience=60,
            )
        assert found[0] == 0, found
        return int(found[1])

    first, again, other = (parent_of_a_call(also) for also in ((), (), ("wave",)))
    assert first == again != other
    assert Path(f"/proc/{first}").exists()
