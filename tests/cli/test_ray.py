"""`--executor ray`: jobs whose work is done on the nodes of a cluster."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "unmeasured")]

LINES = "".join(f"{number}\n" for number in range(12))


@pytest.fixture
def run_in():
    """Runs abreast in a directory; returns its exit code, stdout and stderr."""

    def abreast(place, *arguments, given=""):
        command = [sys.executable, "-m", "abreast", *arguments]
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            cwd=place,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return abreast


@pytest.fixture
def run(tmp_path, run_in):
    return partial(run_in, tmp_path)


def test_commands_write_what_they_write_here(run):
    command = ("--", "sh", "-c", "echo $((2 * $1)); exit $(($1 == 7))", "sh", "{}")
    here = run("map", *command, given=LINES)
    there = run("map", "--executor", "ray", *command, given=LINES)
    assert here[:2] == there[:2]
    assert here[0] == 1


def test_a_function_of_the_project_is_called_there(run, tmp_path):
    (tmp_path / "work.py").write_text("def double(line):\n    return 2 * int(line)\n")
    code, out, err = run("map", "--executor", "ray", "--call", "work:double", given=LINES)
    assert (code, out.split()) == (0, [str(2 * number) for number in range(12)]), err


def test_a_killed_driver_leaves_nothing_and_is_resumed_there(run, tmp_path):
    command = ["sh", "-c", "echo $1 >> ran; test -e go || exec sleep 1000; echo $1", "sh", "{}"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "abreast", "map", "--executor", "ray", "-P", "2", "--", *command],
        stdin=subprocess.PIPE,
        cwd=tmp_path,
    )
    driver.stdin.write(LINES.encode())
    driver.stdin.close()
    from benchmarks.ray_nodes import wait_until

    ran = tmp_path / "ran"
    wait_until(lambda: ran.exists() and len(ran.read_text().split()) == 2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    (tmp_path / "go").touch()
    code, out, err = run("resume", "last")
    assert (code, out) == (0, LINES), err
    repeated = sorted(ran.read_text().split(), key=int)
    assert repeated == sorted([*LINES.split(), "0", "1"], key=int)


def test_without_a_cluster_it_says_how_to_start_one(run, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    code, out, err = run("map", "--executor", "ray", "--", "true", given=LINES)
    assert (code, out) == (2, "")
    assert "127.0.0.1:1" in err
    assert "Traceback" not in err


def test_a_wrong_token_is_named(run, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    code, _, err = run("map", "--executor", "ray", "--", "true", given=LINES)
    assert code == 2
    assert "RAY_AUTH_TOKEN" in err


def test_a_client_address_is_refused_with_a_reason(run, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    code, _, err = run("map", "--executor", "ray", "--", "true", given=LINES)
    assert code == 2
    assert "ray job submit" in err


@pytest.mark.parametrize("command", [("--", "true"), ("--call", "os:getpid")])
def test_what_no_node_has_is_said_at_once(run, command):
    code, out, err = run("map", "--executor", "ray:unicorn=1", *command, given=LINES)
    assert (code, out) == (2, "")
    assert "no node of the Ray cluster has unicorn=1; they have CPU=4" in err


FLOW = """
workflow: {id: spread}
steps:
  - {id: each, type: fan-out, items: "{{ [1, 2, 3] }}", max_concurrency: 3,
     step: {id: one, type: shell, run: "echo $ABREAST_AGENT > agent-{{ item }}"}}
"""


def test_the_commands_of_a_workflow_run_there(run, tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW)
    code, _, err = run("run", "flow.yaml", "--executor", "ray")
    assert code == 0, err
    agents = [(tmp_path / f"agent-{number}").read_text().strip() for number in (1, 2, 3)]
    assert all(agents)


@pytest.fixture
def elsewhere(ray_cluster, monkeypatch, run_in):
    """A project and a cache that no node sees, and what runs abreast there."""
    folder = Path(tempfile.mkdtemp(dir=ray_cluster.hidden))
    monkeypatch.setenv("ABREAST_CACHE", str(folder / "cache"))
    monkeypatch.setenv("ABREAST_LOCKS", str(folder))
    (folder / "project").mkdir()
    yield folder / "project", partial(run_in, folder / "project")
    for cache in ray_cluster.caches:
        assert [*cache.glob("nodes/work/*")] == []
    assert [*(folder / "cache").rglob("scratch")] == []


def commit(project, files):
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    for git in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        own = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *own, *git], cwd=project, check=True)


COMMAND = """
for file in {files}; do echo $PWD > $file; git log -1 --format=%s >> $file; done
git status --short >> "$ABREAST_SCOPE/text.txt"
ln -s text.txt $ABREAST_SCOPE/link
rm -f b/gone.txt
"""


def test_the_parts_of_a_plan_are_worked_on_in_directories_of_the_nodes(elsewhere, ray_cluster):
    project, run = elsewhere
    commit(project, {"a/text.txt": "before\n", "b/text.txt": "before\n", "b/gone.txt": "x\n"})
    options = ("--executor", "ray", "--min-files", "1", "--max-files", "2")
    code, _, err = run("plan", "run", "--command", COMMAND, *options)
    assert code == 0, err
    code, _, err = run("plan", "apply", "last")
    assert code == 0, err
    caches = tuple(map(str, ray_cluster.caches))
    for name in "ab":
        place, subject, *changed = (project / name / "text.txt").read_text().splitlines()
        assert place.startswith(caches)
        assert subject == "all"
        assert f" M {name}/text.txt" in changed
        assert (project / name / "link").is_symlink()
    assert not (project / "b" / "gone.txt").exists()


CALLED = """
from pathlib import Path


def work(part):
    for place in part.places:
        place.write_text(str(Path(__file__)))
    if "b.txt" in part.files:
        raise ValueError("no")
    return len(part.places)
"""


def test_a_function_of_a_part_is_found_there_and_what_failed_is_kept(elsewhere, ray_cluster):
    project, run = elsewhere
    commit(project, {"work.py": CALLED, "good/a.txt": "a", "bad/b.txt": "b"})
    parts = ("--executor", "ray", "--min-files", "1", "--max-files", "1", "--json")
    code, _, err = run("plan", "run", "--call", "work:work", "good", *parts)
    assert code == 0, err
    code, out, err = run("plan", "run", "--call", "work:work", "bad", *parts)
    assert code == 1
    assert "ValueError: no" in out + err


@pytest.mark.timeout(600)
def test_candidates_are_traced_in_directories_of_the_nodes(elsewhere, ray_cluster):
    project, run = elsewhere
    slow = Path("examples/slow")
    commit(
        project,
        {
            "wordcount.py": (slow / "wordcount.py").read_text(),
            "test_wordcount.py": (slow / "test_wordcount.py").read_text(),
        },
    )
    drafts = project.parent / "drafts"
    shutil.copytree(slow / "candidates", drafts)
    job = (
        "candidates:\n  target: wordcount.py::top_words\n  tests: [test_wordcount.py]\n"
        "  candidates: ../drafts\n  timing: false\n  generated: 5\n"
    )
    (project.parent / "job.yaml").write_text(job)
    code, here, err = run("run", "../job.yaml", "--json")
    assert code == 0, err
    (project.parent / "job.yaml").write_text(f"{job}  executor: ray\n")
    code, there, err = run("run", "../job.yaml", "--json")
    assert code == 0, err

    def verdicts(out):
        found = json.loads(out)["candidates"]
        return [(one["name"], one["verdict"], one["reason"]) for one in found]

    assert verdicts(here) == verdicts(there)
    assert any(cache.glob("nodes/files/*/*") for cache in ray_cluster.caches)
