"""`abreast ui`: its address, its end, and what it says to odd wishes."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from tests.cli.shell import end
from tests.cli.test_workflow import GATED
from tests.turns import wait_until

pytest.importorskip("uvicorn")


def opened(address, path, body=None):
    """What the page says at a path, given its printed address."""
    parts = urlsplit(address)
    origin = f"http://{parts.netloc}"
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Origin": origin} if data else {}
    request = urllib.request.Request(
        f"{origin}{parts.path}{path.removeprefix('/')}?{parts.query}", data, headers
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def address_of(process):
    """The address that it prints first."""
    return process.stdout.readline().decode().strip()


def test_it_prints_an_address_with_a_token_serves_there_and_ends_by_ctrl_c(abreast):
    assert abreast("map", "--", "echo", "{}", given="1\n2\n").code == 0
    with abreast.start("ui", "--port", 0) as process:
        address = address_of(process)
        assert urlsplit(address).hostname == "127.0.0.1"
        status, body = opened(address, "/run/map-1.json")
        assert (status, json.loads(body)["counts"]["done"]) == (200, 2)
        assert opened(address.partition("?")[0], "/")[0] == 403
        parts = urlsplit(address)
        assert len(parts.path) > 30  # it can't be guessed
        assert parts.path.strip("/") not in parts.query
        assert opened(f"http://{parts.netloc}/?{parts.query}", "/run/map-1.json") == (404, "")
        process.send_signal(signal.SIGINT)
        said = end(process)
        assert (said.code, said.err) == (0, "")


def test_the_browser_is_opened_at_the_address_if_that_is_wanted(abreast):
    seen = abreast.folder / "seen"
    script = f'#!/bin/sh\necho "$1" > {seen}.part && mv {seen}.part {seen}\n'
    abreast.environment["BROWSER"] = str(abreast.file("browser", script, 0o755))
    with abreast.start("ui", "--port", 0, "--open") as process:
        address = address_of(process)
        wait_until(seen.exists)
        assert seen.read_text().strip() == address
        process.send_signal(signal.SIGINT)
        assert end(process).code == 0


def test_a_gate_is_approved_and_the_run_goes_on_and_both_are_recorded(abreast):
    abreast.file("flow.yaml", GATED)
    assert abreast("run", "flow.yaml").code == 0
    with abreast.start("ui", "--port", 0, "--json", measured=False) as process:
        address = json.loads(address_of(process))["address"]
        wrong = {"action": "approve", "fields": {"gate": "none", "option": "approve"}}
        status, body = opened(address, "/run/gated-1/act", wrong)
        assert (status, "no gate none of gated-1 waits" in body) == (409, True), body
        decided = {"action": "approve", "fields": {"gate": "ok", "option": "approve"}}
        assert opened(address, "/run/gated-1/act", decided) == (200, '{"said":"gated-1 goes on"}')
        wait_until(lambda: json.loads(opened(address, "/run/gated-1.json")[1])["state"] == "done")
        assert opened(address, "/run/gated-1/act", decided)[0] == 409  # it is over
    assert (abreast.folder / "log").read_text() == "a\nb\n"


def test_an_interrupted_run_goes_on_from_the_page(abreast):
    script = 'test "$1" = 1 || test -e go || kill -INT $(cat driver); echo "$1"'
    with abreast.start(
        "map", "--width", 1, "--", "sh", "-c", script, "sh", "{}", measured=False, stdin=-1
    ) as process:
        abreast.file("driver", str(process.pid))
        process.stdin.write(b"1\n2\n3\n")
        process.stdin.close()
        process.stdin = None
        assert end(process).code == 130
    abreast.file("go", "")
    with abreast.start("ui", "--port", 0, measured=False) as process:
        address = address_of(process)
        assert json.loads(opened(address, "/run/map-1.json")[1])["state"] == "interrupted"
        assert opened(address, "/run/map-1/act", {"action": "resume"})[0] == 200
        wait_until(lambda: json.loads(opened(address, "/run/map-1.json")[1])["state"] == "done")
    assert abreast.recorded() == {"0000", "0001", "0002"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--port", "x"], "--port"),
        (["--port", "99999999"], "can't be listened on"),
        (["--port", "-1"], "--port"),
        (["--host", "0.0.0.0"], "not encrypted; if that is wanted, add --allow-others"),
        (["--host", "192.0.2.1", "--allow-others", "--port", "0"], "can't be listened on"),
        (["--host", "no such name"], "--allow-others"),
        (["--host", "no.such.name.invalid", "--allow-others"], "listened on"),
    ],
)
def test_odd_wishes_are_refused_in_a_sentence(abreast, options, sentence):
    said = abreast("ui", *options)
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err
    assert said.err.count("\n") == 1


def test_a_port_that_is_taken_is_said(abreast):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = abreast("ui", "--port", taken.getsockname()[1])
    assert (said.code, "address already in use" in said.err) == (2, True)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_one_sentence_says_how_to_get_it(abreast, missing):
    abreast.file(f"gone/{missing}.py", f"raise ImportError('no {missing}')\n")
    said = abreast(
        "ui", "--port", 0, PYTHONPATH=f"{abreast.folder}/gone:{abreast.environment['PYTHONPATH']}"
    )
    assert (said.code, said.out) == (2, "")
    assert re.fullmatch(
        r"abreast: the page needs starlette and uvicorn, which are not installed: "
        r".*install .*\[ui\]'\n",
        said.err,
    )


def test_a_page_is_written_to_a_file_and_needs_no_server(abreast):
    abreast("map", "--", "echo", "{}", given="1\nplanted-token-0123456789\n")
    said = abreast("export", "map-1", "--html", ABREAST_TEST_TOKEN="planted-token-0123456789")
    assert (said.code, said.out) == (0, "")
    assert "the page of map-1 is in map-1.html" in said.err
    text = (abreast.folder / "map-1.html").read_text()
    assert "src=" not in text.partition('id="kept"')[0]
    assert "planted-token" not in text
    assert abreast("export", "map-1", "--html", "--format", "csv").code == 2
    assert abreast("export", "map-1", "--html", "-o", "-").out.startswith("<!doctype html>")
