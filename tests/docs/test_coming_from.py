"""Their examples and ours, side by side: both run, and where one output is shown, both print it."""

import json
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from abreast.jobs.sample.arguments import THEIR_WORDS
from tests.docs.pages import PATIENCE, ROOT, blocks_of, differs, environment, project, run

PARALLEL = "docs/coming-from/gnu-parallel.md"
MELLEA = "docs/coming-from/mellea.md"
SPEC_KIT = "docs/coming-from/spec-kit.md"
INSPECT = "docs/coming-from/maestro-and-inspect.md"
_TOOL = re.compile(r"\b(xargs|parallel) ")


def examples():
    """For each heading of the page: the tool, their block and ours."""
    blocks = [block for block in blocks_of(PARALLEL) if block.language == "sh"]
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))
    assert all(theirs.heading == ours.heading for theirs, ours in pairs)
    return [
        pytest.param(_TOOL.search(theirs.text)[1], theirs, ours, id=theirs.heading)
        for theirs, ours in pairs
    ]


@pytest.mark.parametrize(("tool", "theirs", "ours"), examples())
def test_ours_prints_what_the_page_says(tool, theirs, ours, tmp_path, forks):
    assert "abreast" not in theirs.text
    assert ours.expected

    ((_, said),) = run([ours], project(tmp_path / "ours"), forks)

    assert differs(ours, said) == ""


@pytest.mark.parametrize(("tool", "theirs", "ours"), examples())
def test_theirs_prints_what_the_page_says(tool, theirs, ours, tmp_path, forks):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed, so its half of {theirs.place} was not run")
    (tmp_path / "theirs").mkdir()

    ((_, said),) = run([theirs], tmp_path / "theirs", forks)

    assert differs(theirs if theirs.expected else ours, said) == ""


def test_every_flag_of_ours_that_the_page_names_is_one():
    reference = (ROOT / "docs" / "cli.md").read_text("utf-8")
    rows = [
        line.split("|")[2]
        for line in (ROOT / PARALLEL).read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    named = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row.replace(r"\|", ""))}

    assert named
    assert [
        flag for flag in named if f"{flag} " not in reference and f"{flag}," not in reference
    ] == []


# --- mellea: programs, whose model is a server that the test starts -------------------------------


class Chat(BaseHTTPRequestHandler):
    """A chat that says what `said` gives."""

    def do_POST(self):
        got = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = self.said(str(got["messages"][-1]["content"]))
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": said},
            "finish_reason": "stop",
        }
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "storm",
            "choices": [choice],
        }
        body = json.dumps(reply | {"usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Weather(Chat):
    """Says nothing of rain at first, and then something."""

    def said(self, _):
        return "A sunny day." if next(self.server.asked) == 0 else "Soft rain falls."


@contextmanager
def serving(chat):
    """A server of that chat; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), chat) as server:
        server.asked = count()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.fixture
def weather():
    with serving(Weather) as url:
        yield url


def programs():
    """For each heading with an output: their program, with how they set up, and ours."""
    blocks = [block for block in blocks_of(MELLEA) if block.language in ("python", "text")]
    setting_up, rest = blocks[0], blocks[1:]
    found = list(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    assert all(
        [block.language for block in three] == ["python", "python", "text"] for three in found
    )
    assert all(len({block.heading for block in three}) == 1 for three in found)
    return [
        pytest.param(setting_up.text + theirs.text, ours.text, said.text, id=said.heading)
        for theirs, ours, said in found
    ]


def printed(python, program, folder, weather):
    """What a program prints, asked to ask that server."""
    told = environment(project(folder)) | {"MELLEA_LOG_LEVEL": "CRITICAL"}
    (lanes,) = [block.text for block in blocks_of(MELLEA) if block.language == "toml"]
    (folder / "abreast.toml").write_text(
        lanes.replace("http://127.0.0.1:8000/v1", weather), "utf-8"
    )
    ended = subprocess.run(
        [str(python), "-c", program.replace("http://127.0.0.1:8000/v1", weather)],
        cwd=folder,
        env=told,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(("theirs", "ours", "said"), programs())
def test_a_program_of_ours_prints_what_the_page_says(theirs, ours, said, weather, tmp_path):
    assert "mellea" in theirs
    assert "mellea" not in ours
    assert printed(sys.executable, ours, tmp_path / "ours", weather) == said


@pytest.mark.parametrize(("theirs", "ours", "said"), programs())
def test_a_program_of_theirs_prints_what_the_page_says(theirs, ours, said, weather, tmp_path):
    python = ROOT / ".peers" / "mellea" / "bin" / "python"
    if not python.exists():
        pytest.skip("mellea is not installed, so its half of the page was not run")
    lines = printed(python, theirs, tmp_path / "theirs", weather).splitlines(keepends=True)
    assert lines[-1] == said  # it may say more before


def test_every_word_of_theirs_that_we_answer_is_on_the_page():
    page = (ROOT / MELLEA).read_text("utf-8")
    assert [
        word
        for word, ours in THEIR_WORDS.items()
        if f"`{word}" not in page or f"`{ours}" not in page
    ] == []


# --- spec-kit: one file for both ------------------------------------------------------------------


def specify(name, folder):
    """Run a file of the page there; its steps by id."""
    command = ROOT / ".peers" / "specify-cli" / "bin" / "specify"
    if not command.exists():
        pytest.skip("specify-cli is not installed, so its half of the page was not run")
    (file,) = [block for block in blocks_of(SPEC_KIT) if block.file == name]
    folder.mkdir()
    (folder / name).write_text(file.text, "utf-8")
    words = [str(command), "workflow", "run", name]
    subprocess.run(
        words,
        cwd=folder,
        env=environment(folder),
        timeout=PATIENCE,
        capture_output=True,
        check=True,
    )
    (state,) = (folder / ".specify/workflows/runs").glob("*/state.json")
    return json.loads(state.read_text("utf-8"))["step_results"]


def test_what_the_page_of_spec_kit_says_to_type_works_and_prints_what_it_says(tmp_path, forks):
    said = run(blocks_of(SPEC_KIT), project(tmp_path / "reader"), forks)

    assert [
        text for block, out in said if block.expected is not None and (text := differs(block, out))
    ] == []


def test_the_same_file_gives_the_same_there(tmp_path):
    theirs = specify("squares.yaml", tmp_path / "theirs")

    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/squares.yaml").write_bytes((tmp_path / "theirs/squares.yaml").read_bytes())
    words = [sys.executable, "-m", "abreast", "run", "squares.yaml", "--json", "--store", "here.db"]
    ended = subprocess.run(
        words,
        cwd=tmp_path / "ours",
        env=environment(tmp_path / "ours"),
        timeout=PATIENCE,
        capture_output=True,
        check=True,
    )
    ours = json.loads(ended.stdout)["steps"]
    assert list(ours) == list(theirs)
    for name in ours:
        assert (ours[name]["type"], ours[name]["status"]) == (
            theirs[name]["type"],
            theirs[name]["status"],
        )
    assert ours["each"]["output"]["results"] == theirs["each"]["output"]["results"]


def test_there_a_value_is_run_as_code(tmp_path):
    specify("say.yaml", tmp_path / "theirs")

    assert (tmp_path / "theirs/injected").exists()


# --- Inspect: the same means, of a model that knows more when it is asked politely ----------------


class Capitals(Chat):
    """Knows one capital, and all of them if it is asked politely."""

    def said(self, prompt):
        (city,) = [city for land, city in KNOWN.items() if land in prompt]
        return f"It is {city}." if "Please" in prompt or "France" in prompt else "I am not sure."


KNOWN = {"France": "Paris", "Japan": "Tokyo", "Peru": "Lima"}
MEANS = {"plain": "0.333", "polite": "1.000"}


@pytest.fixture
def capitals():
    with serving(Capitals) as url:
        yield url


def test_a_study_of_ours_has_the_means_that_the_page_says(capitals, tmp_path, forks):
    blocks = [
        replace(block, text=block.text.replace("http://127.0.0.1:8000/v1", capitals))
        for block in blocks_of(INSPECT)
    ]

    said = run(blocks, project(tmp_path / "reader"), forks)

    assert [
        text for block, out in said if block.expected is not None and (text := differs(block, out))
    ] == []
    (shown,) = [block.expected for block, _ in said if block.expected is not None]
    assert dict(re.findall(r"· (\w+) \| ([\d.]+)", shown)) == MEANS


def test_an_evaluation_of_theirs_has_the_same(capitals, tmp_path):
    python = ROOT / ".peers" / "inspect-ai" / "bin" / "python"
    if not python.exists():
        pytest.skip("inspect-ai is not installed, so its half of the page was not run")
    (program,) = [block.text for block in blocks_of(INSPECT) if block.language == "python"]
    (tmp_path / "theirs").mkdir()
    told = environment(tmp_path / "theirs") | {"MINE_BASE_URL": capitals, "MINE_API_KEY": "any"}
    ended = subprocess.run(
        [str(python), "-c", program],
        cwd=tmp_path / "theirs",
        env=told,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert dict(line.split() for line in ended.stdout.splitlines()) == MEANS


def test_every_flag_of_the_matrix_that_the_page_names_is_one():
    reference = (ROOT / "docs" / "cli.md").read_text("utf-8")
    rows = [
        line.split("|")[2]
        for line in (ROOT / INSPECT).read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    named = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row)}

    assert {"--lane-width", "--budget"} <= named
    assert [
        flag for flag in named if f"{flag} " not in reference and f"{flag}," not in reference
    ] == []
