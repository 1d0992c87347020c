"""Candidates that do harm, through `abreast optimize`: each is refused.

The report says why, and which walls stood.
"""

import socket
import sys
import threading

import pytest

from tests.cli.commands.test_optimize import TARGET, drafts, patiently, project, seen
from tests.jobs.candidates.projects import FAST
from tests.worktrees.sandbox import without_namespaces

assert project  # the fixture: a repository with a slow function and its tests

ANSWER = FAST.partition("    seen = ")
# Names that the source checks would find are assembled at run time, so that confinement and tracing
# must catch them.
HIDDEN = "import os\n\n\ndef others():\n    return getattr(os.sys, 'modu' + 'les')\n\n\n"
KEY = "sk-do-not-tell"
WITHOUT_NAMESPACES = (sys.executable, without_namespaces.__file__)


def harmful(inside, top="", tried=True):
    """A candidate that answers right, after something else.

    Which may fail, as far as it is concerned.
    """
    lines = [f"    {line}\n" for line in inside.splitlines()]
    body = (
        "    try:\n"
        + "".join(f"    {line}" for line in lines)
        + "    except Exception:\n        pass\n"
    )
    return HIDDEN + top + ANSWER[0] + (body if tried else "".join(lines)) + ANSWER[1] + ANSWER[2]


def harms(place, port):
    """By name: the candidate, and words of the reason."""
    outside = f"from pathlib import Path\nPath({str(place / 'stolen.txt')!r}).write_text('1')"
    return {
        "allocates": (
            harmful("hoard = bytearray(10 << 30)", tried=False),
            "more memory than it may have",
        ),
        "forks": (harmful("while True:\n    getattr(os, 'fo' + 'rk')()"), "starts a process"),
        "opens_socket": (
            harmful(
                f"others()['socket'].create_connection(('127.0.0.1', {port}), 2)",
                "import asyncio\n",
            ),
            "opens a socket",
        ),
        "patches_clock": (
            harmful("setattr(others()['time'], 'perf_' + 'counter', lambda: 0.0)"),
            "patches time.perf_counter",
        ),
        "patches_conftest": (
            harmful("others()['conftest'].__dict__['pytest_configure'] = print"),
            "changes code that is not its own: conftest.pytest_configure",
        ),
        "patches_pytest": (
            harmful("others()['pytest'].__dict__['raises'] = None"),
            "patches pytest.raises",
        ),
        "patches_tests": (
            harmful("others()['test_sums'].test_many.__code__ = (lambda: None).__code__"),
            "changes code that is not its own: test_sums.test_many",
        ),
        "reads_environment": (
            FAST.replace("seen =", "seen = os.environ and").replace("from", "import os\nfrom", 1),
            "reads or changes the environment",
        ),
        "writes_conftest": (
            harmful(
                "from pathlib import Path\nPath(__file__).with_name('conftest.py').write_text('')"
            ),
            "conftest.py",
        ),
        "writes_outside": (harmful(outside), "writes "),
    }


@pytest.fixture
def caught():
    """A port of this machine, and the connections that were made to it."""
    came = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def wait():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                came.append(1)
                connection.close()

        threading.Thread(target=wait, daemon=True).start()
        yield server.getsockname()[1], came
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("under", [(), WITHOUT_NAMESPACES], ids=["namespaces", "filters"])
def test_what_does_harm_is_refused_and_the_report_says_why_and_which_walls_stood(
    project, tmp_path, caught, under
):
    port, came = caught
    project.file("conftest.py", "def pytest_configure():\n    pass\n")
    (tmp_path / "elsewhere").mkdir()
    given = harms(tmp_path / "elsewhere", port)
    # The candidate returns what it found, as what it prints or raises could get lost.
    peeping = "found = getattr(os, 'envi' + 'ron')\nreturn [KEY in str(found), *sorted(found)]"
    peeping = peeping.replace("KEY", f"{KEY[:4]!r} + {KEY[4:]!r}")
    files = {name: text for name, (text, _) in given.items()} | {"peeps": harmful(peeping)}
    words = drafts(project, **files)
    project.environment["OPENAI_API_KEY"] = KEY
    before = seen(project)
    options = ("--timeout", "20s", "--generated", "0", "--json")
    said = patiently(project, "optimize", *TARGET, *words, *options, under=under)
    assert said.code == 0, said.err
    (found,) = said.rows
    told = {one["name"]: one for one in found["candidates"]}
    assert found["winner"] is None
    assert {name: told[name]["verdict"] for name in given} == dict.fromkeys(given, "refused")
    for name, (_, words) in given.items():
        assert words in told[name]["reason"], told[name]
    # The environment that a candidate finds has no key, and nothing that is shown or kept has it.
    assert told["peeps"]["verdict"] == "wrong"
    peeped = [diff["candidate"] for diff in told["peeps"]["diffs"] if diff["part"] == "returned"]
    assert "[False, 'HOME'" in peeped[0]
    kept = [path for path in (project.folder / ".abreast").rglob("*") if path.is_file()]
    assert any(path.suffix == ".html" for path in kept)
    for text in (
        said.out,
        said.err,
        *(path.read_bytes().decode("utf-8", "replace") for path in kept),
    ):
        assert KEY not in text
        assert "OPENAI_API_KEY" not in text
    # No server was reached, nothing was written, and the report names the confinement, with a
    # reason for each missing part.
    assert came == []
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert seen(project) == before
    assert {"process group", "environment", "memory", "cpu", "file size"} <= set(
        found["confinement"]
    )
    if under:
        assert "user namespace" in found["unconfined"]
    for wall in ("network", "read-only files", "processes", "processes apart"):
        assert (wall in found["confinement"]) != bool(found["unconfined"].get(wall))
    page = next(path for path in kept if path.suffix == ".html").read_text()
    for wall in (*found["confinement"], *found["unconfined"]):
        assert wall in page
    for _, words in given.values():
        assert words in page
