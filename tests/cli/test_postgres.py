"""Every command works on a store in PostgreSQL, and none says or records its password."""

import json
import signal
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.cli.commands.test_ui import address_of, opened
from tests.cli.shell import end
from tests.turns import wait_until

SLOWLY = ("sh", "-c", '[ "$1" -lt 3 ] || [ -e go ] || sleep 100; echo "got $1"', "sh", "{}")
NUMBERS = "1\n2\n3\n4\n"


@pytest.fixture
def shared(abreast, postgres_url):
    """A project whose store is in PostgreSQL."""
    abreast.environment["ABREAST_STORE"] = postgres_url
    abreast.url = postgres_url
    abreast.password = urlsplit(postgres_url).password
    return abreast


def everything(url):
    """All that is in the tables of a store, as text."""
    address, _, query = url.partition("?")
    with psycopg.connect(address) as db:
        db.execute(f"SET search_path = {query.removeprefix('schema=')}")
        rows = db.execute("SELECT manifest, driver FROM runs").fetchall()
        rows += db.execute("SELECT data, convert_from(body, 'UTF8') FROM events").fetchall()
    assert rows
    return str(rows)


def test_runs_are_made_listed_shown_and_exported(shared):
    said = shared("map", "--", "echo", "got", "{}", given=NUMBERS)
    assert (said.code, said.out) == (0, "got 1\ngot 2\ngot 3\ngot 4\n")
    assert [row["state"] for row in shared("runs", "--json").rows] == ["done"]
    assert "4 done" in shared("show", "last").out
    assert [row["stdout"] for row in shared("export", "map-1").rows][-1] == "got 4\n"
    assert shared("watch", "map-1", "--json").code == 0
    assert shared("rm", "map-1").code == 0
    assert shared("runs", "--json").rows == []
    assert not shared.store.exists()


def test_reports_are_in_a_folder_that_git_ignores(shared):
    shared.file("replies.jsonl", '{"prompt": "a?", "reply": "a"}\n')
    shared.file("inputs.jsonl", '{"id": "a", "text": "a?", "truth": "a"}\n')
    study = "matrix: {name: s, models: [scripted/replies.jsonl], inputs: inputs.jsonl, "
    study += "strategies: {plain: {prompt: '{{ input.text }}'}}, scores: [exact]}\n"
    shared.file("study.yaml", study)
    assert shared("matrix", "run", "study.yaml").code == 0
    assert [*(shared.folder / ".abreast/reports").iterdir()]
    assert (shared.folder / ".abreast/.gitignore").read_text() == "*\n"


def test_killed_it_is_resumed_at_once_and_another_driver_is_refused(shared):
    shared.file("items", NUMBERS)
    with (shared.folder / "items").open() as items:
        with shared.start("map", "--width", 1, "--", *SLOWLY, stdin=items) as process:
            assert [process.stdout.readline() for _ in range(2)] == [b"got 1\n", b"got 2\n"]
            said = shared("resume", "map-1")
            assert said.code == 1
            assert "map-1 is being driven by process" in said.err
            process.send_signal(signal.SIGKILL)
            end(process)
    assert [row["state"] for row in shared("runs", "--json").rows] == ["crashed"]
    shared.file("go", "")
    said = shared("resume", "map-1")
    assert (said.code, said.out) == (0, "got 1\ngot 2\ngot 3\ngot 4\n")


def test_it_is_cancelled_from_elsewhere(shared):
    shared.file("items", NUMBERS)
    with (shared.folder / "items").open() as items:
        with shared.start("map", "--width", 1, "--", *SLOWLY, stdin=items) as process:
            assert [process.stdout.readline() for _ in range(2)] == [b"got 1\n", b"got 2\n"]
            assert shared("cancel", "map-1").code == 0
            assert end(process).code == 4
    assert [row["state"] for row in shared("runs", "--json").rows] == ["cancelled"]


def test_the_page_shows_and_resumes_runs_and_no_password(shared):
    shared("map", "--", "sh", "-c", 'test "$1" != 2 -o -e go', "sh", "{}", given=NUMBERS)
    with shared.start("ui", "--port", 0, measured=False) as process:
        address = address_of(process)
        status, body = opened(address, "/run/map-1.json")
        assert (status, json.loads(body)["counts"]["failed"]) == (200, 1)
        assert shared.password not in body
        shared.file("go", "")
        status, body = opened(
            address, "/run/map-1/act", {"action": "resume", "fields": {"retry_failed": True}}
        )
        assert status == 200, body
        wait_until(
            lambda: not json.loads(opened(address, "/run/map-1.json")[1])["counts"].get("failed")
        )
        process.send_signal(signal.SIGINT)
        assert end(process).code == 0


def test_a_password_is_neither_printed_nor_recorded(shared):
    url, password = shared.url, shared.password
    said = [
        shared("map", "--store", url, "--", "false", "{}", given="1\n"),
        shared("show", "map-1", "--store", url, "--json"),
        shared("runs", "--store", url),
        shared("doctor", "--config", "--store", url),
        shared("doctor", "--store", url),
        shared("resume", "map-1", "--store", url),
        shared("-v", "retry", "map-1", "--store", url),
        shared("runs", "--store", url.replace("/runs?", "/nowhere?")),
        shared("runs", "--store", url.replace("@", "%zz@")),
    ]
    assert [one.code for one in said[-2:]] == [2, 2]
    assert "can't be reached: " in said[-2].err
    assert all(password not in one.out + one.err for one in said)
    assert password not in everything(url)
    shown = url.replace(f":{password}@", "@")
    assert f"--store '{shown}'" in said[0].err
