"""Access to the page, over real connections: as a browser, a script or another site."""

import http.client
import json
import urllib.request
from urllib.parse import quote

import pytest

from abreast import open_run
from abreast.jobs.plan.review.rejection import reject
from abreast.store.port import Driver
from abreast.web.app import Site, make_app
from abreast.web.pages import STATIC
from tests.web.conftest import another_program, serving

JSON = b"application/json"
KEY = "sk-planted-0123456789abcdef"


@pytest.fixture
def ask(served):
    """Ask the page for something: status, headers, body."""

    def asked(path, *, method="GET", token=True, host=None, body=None, beneath=True, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.putrequest(method, served.at(path) if beneath else path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{served.port}")
        if token:
            connection.putheader("Cookie", f"abreast-{served.port}={served.token}")
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        if method == "POST":
            connection.putheader("Content-Length", str(len(data)))
            connection.putheader("Content-Type", headers.get("Content_Type", "application/json"))
        connection.endheaders(data or None)
        response = connection.getresponse()
        found = response.status, dict(response.getheaders()), response.read().decode()
        connection.close()
        return found

    return asked


@pytest.fixture
def run(store):
    """A run without a driver, in the store."""
    row = store.begin(
        "left", kind="map", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 1.0)
    )
    store.end(row.id, row.epoch, "interrupted", "", 2.0)
    return row.id


@pytest.mark.parametrize(
    "path", ["/", "/runs.json", "/static/main.js", "/plotly.js", "/run/x", "/run/x.json", "/live"]
)
def test_without_the_token_nothing_is_shown(ask, path):
    status, _, body = ask(path, token=False)
    assert (status, "token" in body) == (403, True)


@pytest.mark.parametrize(
    "path",
    ["/", "/runs.json", "/static/main.js", "/run/x.json", "/live", "/favicon.ico", "//", "/é"],
)
def test_off_its_path_nothing_is_said_whoever_asks(ask, served, path):
    for token in (False, True):
        status, headers, body = ask(quote(path), beneath=False, token=token)
        assert (status, body) == (404, "")
        assert {name.lower() for name in headers} <= {"content-length", "date"}
    assert ask(served.base.rstrip("/"), beneath=False)[::2] == (404, "")
    assert ask(f"/{served.token}/", beneath=False)[::2] == (404, "")


def test_another_port_of_this_machine_is_never_sent_the_cookie(served):
    """Cookies are not bound to ports: a browser sends them to all ports of a host."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with another_program() as other:
        assert browser.open(served.address(), timeout=60).status == 200
        for path in ("/", "/run/x", "/static/main.js"):
            assert (
                browser.open(f"http://127.0.0.1:{other.server_port}{path}", timeout=60).status
                == 200
            )
        # By the cookie alone, the page knows the browser again: there was one to send.
        assert (
            browser.open(
                f"http://127.0.0.1:{served.port}{served.at('/runs.json')}", timeout=60
            ).status
            == 200
        )
    assert len(other.seen) == 3
    assert [headers["Cookie"] for headers in other.seen if "Cookie" in headers] == []


def test_a_wrong_token_is_none(ask, served):
    assert ask("/?token=guess", token=False)[0] == 403
    assert ask("/", token=False, Cookie=f"abreast-{served.port}=guess")[0] == 403
    assert ask("/", token=False, Cookie="=;;=[]")[0] == 403


def test_the_printed_address_gives_a_cookie_that_scripts_and_other_sites_do_not_get(ask, served):
    status, headers, _ = ask(f"/?token={served.token}", token=False)
    assert status == 200
    cookie = headers["set-cookie"]
    assert cookie.startswith(f"abreast-{served.port}={served.token};")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert f"Path={served.base};" in cookie
    assert ask("/runs.json")[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1"]
)
def test_by_another_name_it_is_not_this_page(ask, served, host):
    assert ask("/", host=host.format(port=served.port))[0] == 400


def test_only_the_page_itself_may_post(ask, served, run):
    def post(**headers):
        return ask(f"/run/{run}/act", method="POST", body={"action": "nothing"}, **headers)[0]

    assert post() == 403
    assert post(Origin="http://evil.example") == 403
    assert post(Origin="null") == 403
    assert post(Origin=f"https://127.0.0.1:{served.port}") == 403
    assert post(Origin=f"http://localhost:{served.port}") == 403  # another name is another site
    assert post(Sec_Fetch_Site="cross-site") == 403
    # It passes the guard, and there is no such action.
    assert post(Origin=f"http://127.0.0.1:{served.port}") == 409
    assert post(Sec_Fetch_Site="same-origin") == 409


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/",
        "/static/none.js",
        "/static/..",
        "/static/main.js%00",
        "/../../etc/passwd",
        "/plotly.js/../x",
    ],
)
def test_no_path_leads_out_of_the_page(ask, path):
    status, _, body = ask(path)
    assert status == 404
    assert "root:" not in body


@pytest.mark.parametrize(
    ("name", "kind"),
    [("main.js", "javascript"), ("page.css", "text/css"), ("icon.svg", "image/svg")],
)
def test_a_file_of_the_page_comes_whole_and_says_what_it_is(ask, name, kind):
    status, headers, body = ask(f"/static/{name}")
    assert (status, headers["cache-control"]) == (200, "no-cache")
    assert kind in headers["content-type"]
    assert body == (STATIC / name).read_text(encoding="utf-8")


def test_every_answer_says_that_nothing_else_may_run(ask):
    for path in ("/", "/runs.json", "/static/main.js", "/nothing"):
        _, headers, _ = ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "unsafe-eval" not in policy
        assert "script-src 'self' 'unsafe-inline'" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"fields": {}}', 400),
        (b'"x"', 400),
        (b'{"action": 1, "fields": [1]}', 400),
        (b'{"action": "' + b"x" * 70_000 + b'"}', 413),
        (b"[" * 60_000, 400),
    ],
)
def test_what_is_no_action_is_refused_in_a_sentence(ask, served, run, body, status):
    origin = f"http://127.0.0.1:{served.port}"
    found, _, said = ask(f"/run/{run}/act", method="POST", body=body, Origin=origin)
    assert found == status
    assert json.loads(said)["error"]


def test_a_run_that_is_not_there_is_404_in_a_sentence(ask):
    for rest in (
        ".json",
        "/lanes.json",
        "/items.json",
        "/item.json?path=x",
        "/errors.json",
        "/job.json",
        "/live",
    ):
        status, _, body = ask(f"/run/none-1{rest}")
        assert status == 404
        assert "none-1" in json.loads(body)["error"]


async def test_a_secret_of_the_environment_is_on_no_page(store):
    async def echo(item):
        if item == 1:
            raise ValueError(f"the key {KEY} was refused")
        return f"Authorization: {KEY}"

    async with open_run("leak", store=store.path, manifest={"argv": ["--key", KEY]}) as run:
        async for _ in run.map(echo, range(2), width=2):
            pass
    with serving(store, secrets=[KEY]) as page:
        for path in (
            ".json",
            "/lanes.json",
            "/items.json",
            "/errors.json",
            "/item.json?path=leak/echo/0000",
            "/item.json?path=leak/echo/0001",
            "/job.json",
        ):
            connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
            connection.request(
                "GET",
                page.at(f"/run/leak-1{path}"),
                headers={"Cookie": f"abreast-{page.port}={page.token}"},
            )
            response = connection.getresponse()
            body = response.read().decode()
            connection.close()
            assert response.status == 200, body
            assert "sk-planted" not in body
            if path.startswith("/item"):
                assert "***" in body or path == "/items.json"


@pytest.mark.parametrize("key", [KEY, 'sk-planted-"quoted\\0123', "sk-planted-\u00e9\u4e2d0123"])
async def test_news_have_no_secret_either_however_it_is_written(store, key):
    async def echo(item):
        return {"said": [key]}

    async with open_run("leak", store=store.path, manifest={"argv": ["--key", key]}) as run:
        async for _ in run.map(echo, range(1), width=1):
            pass
    with serving(store, secrets=[key]) as page:
        for path in ("/live", ".json", "/item.json?path=leak/echo/0000", "/job.json"):
            connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
            connection.request(
                "GET",
                page.at(f"/run/leak-1{path}"),
                headers={"Cookie": f"abreast-{page.port}={page.token}"},
            )
            response = connection.getresponse()
            lines = []
            while not any(b"{" in line for line in lines):  # of a stream, the first news
                lines.append(response.readline())
            connection.close()
            said = b"".join(lines).decode()
            assert "***" in said
            assert "sk-planted" not in said


async def test_each_twin_answers_by_itself(store):
    """A program may request only the items, of a run that no page has read before."""

    async def work(item):
        return item

    async with open_run("quiet", store=store.path) as run:
        async for _ in run.map(work, range(7), width=2):
            pass
        for name, part in (
            ("items.json", lambda said: said["count"]),
            ("lanes.json", lambda said: len(said["lanes"])),
        ):
            with serving(store) as page:
                connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
                headers = {"Cookie": f"abreast-{page.port}={page.token}"}
                connection.request("GET", page.at(f"/run/quiet-1/{name}"), headers=headers)
                said = json.loads(connection.getresponse().read())
                connection.close()
                assert part(said) == {"items.json": 7, "lanes.json": 1}[name]


def test_a_rejection_over_http_is_recorded_and_served(store):
    row = store.begin(
        "p", kind="plan", seed=1, manifest={"plan": {}}, tags=(), driver=Driver(1, "here", 1.0)
    )
    store.end(row.id, row.epoch, "done", "", 2.0)
    launched = []

    def launch(words):
        launched.append([*words])
        reject(store, row, words[3])

    with serving(store, launch=launch) as served:
        address = f"http://127.0.0.1:{served.port}{served.at(f'/run/{row.id}')}"
        headers = {
            "Cookie": f"abreast-{served.port}={served.token}",
            "Origin": f"http://127.0.0.1:{served.port}",
            "Content-Type": "application/json",
        }
        body = json.dumps({"action": "reject", "fields": {"reason": "no"}}).encode()
        asked = urllib.request.Request(f"{address}/act", body, headers)
        with urllib.request.urlopen(asked, timeout=60) as said:
            assert "p-1 is rejected" in said.read().decode()
        asked = urllib.request.Request(f"{address}/job.json", headers=headers)
        with urllib.request.urlopen(asked, timeout=60) as said:
            assert json.load(said)["view"]["rejected"]["reason"] == "no"
    assert launched == [["plan", "reject", "--reason", "no", "--", "p-1"]]


async def test_a_client_that_goes_in_the_middle_of_an_action_is_no_fault_of_the_page(store):
    site = Site(store, "token", {"here:1"})
    headers = [(b"host", b"here:1"), (b"origin", b"http://here:1"), (b"content-type", JSON)]
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"{site.base}run/x/act",
        "raw_path": b"",
        "query_string": b"token=token",
        "headers": headers,
        "root_path": "",
    }
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await make_app(site)(scope, receive, send)
    assert sent[0]["status"] == 400
