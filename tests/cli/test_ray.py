"""`--executor ray`: jobs whose work is done on the nodes of a cluster."""

import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "unmeasured")]

LINES = "".join(f"{number}\n" for number in range(12))


@pytest.fixture
def run(tmp_path):
    """Runs abreast in a project of its own; returns its exit code, stdout and stderr."""

    def abreast(*arguments, given=""):
        command = [sys.executable, "-m", "abreast", *arguments]
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return abreast


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


def test_the_parts_of_a_plan_are_worked_on_there(run, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "text.txt").write_text("before\n")
    for git in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        own = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *own, *git], cwd=tmp_path, check=True)
    command = "for file in {files}; do echo $ABREAST_AGENT > $file; done"
    options = ("--executor", "ray", "--min-files", "1", "--max-files", "1")
    code, _, err = run("plan", "run", "--command", command, *options)
    assert code == 0, err
    code, _, err = run("plan", "apply", "last")
    assert code == 0, err
    assert all((tmp_path / name / "text.txt").read_text().strip().isdecimal() for name in "ab")
