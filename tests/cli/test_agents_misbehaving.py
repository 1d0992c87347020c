"""Ways in which agents misbehave: each has a clear outcome, and nothing reaches the repository.

All of them are items of one run.
"""

import json
import os

import pytest

from tests.cli.agent_projects import agent_project, processes_of
from tests.worktrees.repositories import git, left_in, look

WAYS = {
    "hangs": "time.sleep(1000)",
    "ignores-sigterm": "signal.signal(15, signal.SIG_IGN)\ntime.sleep(1000)",
    "floods-stdout": "sys.stdout.write('x' * 79 + '\\n')\n" * 2
    + "for _ in range(20000): sys.stdout.write('junk ' * 80 + '\\n')\nend()",
    "floods-one-line": "for _ in range(18): sys.stdout.write('x' * (1 << 20))\nprint()\nend()",
    "floods-stderr": "for _ in range(20000): sys.stderr.write('junk ' * 80 + '\\n')\nend()",
    "forks": "for _ in range(5): subprocess.Popen(['sleep', '1000'])\nend()",
    "leaves-a-server": "subprocess.Popen(['sleep', '1000'], start_new_session=True,"
    " stdin=-3, stdout=-3, stderr=-3)\nend()",
    "commits": "open('new', 'w').write('x')\ngit('add', '.')\ngit('commit', '-qm', 'mine')\nend()",
    "stashes": "open('shared.txt', 'a').write('x')\ngit('stash')\nend()",
    "deletes-git": "open('new', 'w').write('x')\nsubprocess.run(['rm', '-rf', '.git'])\nend()",
    "breaks-git": "open('new', 'w').write('x')\nopen('.git/HEAD', 'w').write('junk')\nend()",
    "configures-git": "git('config', 'user.name', 'Evil')\ngit('remote', 'add', 'evil', '/x')\n"
    "git('branch', 'evil')\ngit('tag', 'evil')\ngit('update-ref', '-d', 'refs/tags/v1')\nend()",
    "pushes": "git('push', '-f', 'origin', 'HEAD:main', fails=True)\nend()",
    "rewrites-history": "git('checkout', '-q', '--orphan', 'evil')\n"
    "git('commit', '-qm', 'evil')\ngit('branch', '-D', 'main', fails=True)\n"
    "git('reflog', 'expire', '--expire=now', '--all')\ngit('gc', '-q', '--prune=now')\nend()",
    "writes-outside": "open('../outside', 'w').write('x')\nend()",
    "asks-for-input": "input('sure? ')\nend()",
    "error-with-exit-0": "say(kind='error', text='I could not do it')",
    "invalid-json": "print('{\"kind\": ')\nprint('}')",
    "no-json": "print('I have done everything.')",
    "no-result": "say(kind='step', text='working')",
    "silent": "pass",
    "exit-code-after-result": "end()\nsys.exit(7)",
    "kills-itself": "os.kill(os.getpid(), 9)",
    "huge-diff": "open('huge', 'w').write('line\\n' * 600000)\nend()",
    "deletes-its-tree": "import shutil\nshutil.rmtree(os.getcwd())\nend()",
    "deletes-all-files": "subprocess.run('rm -rf ./* .git', shell=True)\nend()",
    "odd-names": "open(b'odd\\n\\xff name', 'wb').write(b'\\xff\\x00')\nend()",
    "links-out": "os.symlink('/etc/passwd', 'link')\nos.symlink('..', 'up')\nend()",
    "no-permissions": "os.mkdir('shut')\nopen('shut/in', 'w').write('x')\n"
    "os.chmod('shut', 0)\nend()",
    "changes-submodule": "os.makedirs('sub', exist_ok=True)\nopen('sub/in', 'w').write('x')\nend()",
    "control-characters": "end('\\x1b[2Jcleared\\x07')",
    "result-twice": "end('first')\nend('second')",
}
FAILED = {
    "hangs": "took longer than 10 s",
    "ignores-sigterm": "took longer than 10 s",
    "asks-for-input": "EOFError",
    "error-with-exit-0": "stub: I could not do it",
    "invalid-json": "it wrote no events",
    "no-json": "it wrote no events: I have done everything.",
    "no-result": "it ended without a result",
    "silent": "it wrote no events",
    "exit-code-after-result": "exit code 7",
    "kills-itself": "killed by SIGKILL",
    "deletes-its-tree": "worktree",
}
CHANGED = {
    "commits": ["new"],
    "deletes-git": ["new"],
    "breaks-git": ["new"],
    "huge-diff": ["huge"],
    "changes-submodule": [],
    "links-out": ["link", "up"],
    "no-permissions": ["shut/in"],
}
CODE = (
    """
def git(*words, fails=False):
    who = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x", "GIT_COMMITTER_NAME": "x",
           "GIT_COMMITTER_EMAIL": "x"}
    subprocess.run(["git", *words], check=not fails, stdout=-3, stderr=-3,
                   env={**os.environ, **who})
"""
    f"exec({json.dumps(WAYS)}[task])\n"
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, warm):
    """The project as it was and is, and the row of each way."""
    place = tmp_path_factory.mktemp("misbehaving")
    project = agent_project(place, warm, CODE)
    before = look(project.folder, without=[".abreast"])
    said = project(
        *("map", "--agent", "stub", "--worktree", "--prompt", "{}", "--key", "{}", "--json"),
        *("-P", "4", "--timeout", "10s"),
        given="\n".join(WAYS),
    )
    assert said.code == 1, said
    return project, before, {row["key"]: row for row in said.rows}, place


@pytest.mark.parametrize("way", sorted(WAYS))
def test_an_agent_that_misbehaves_has_a_clear_outcome(ran, way):
    row = ran[2][way]
    if way in FAILED:
        assert row["state"] == "failed", row
        assert FAILED[way] in row["error"]["message"]
        assert "\n" not in row["error"]["message"]
    else:
        assert row["state"] == "done", row
        if way in CHANGED:
            assert row["value"]["tree"]["changed"] == CHANGED[way]


def test_a_result_that_is_given_twice_is_the_last_one(ran):
    assert ran[2]["result-twice"]["value"]["text"] == "second"


def test_a_patch_that_is_too_long_is_not_recorded_but_the_tree_is(ran):
    project, _, rows, _ = ran
    tree = rows["huge-diff"]["value"]["tree"]
    assert tree["patch"] == ""
    text = git(project.folder / ".abreast/plan.git", "cat-file", "-s", f"{tree['result']}:huge")
    assert int(text) == 3_000_000


def test_nothing_reaches_the_repository_or_stays_behind(ran):
    project, before, _, place = ran
    assert look(project.folder, without=[".abreast"]) == before
    assert left_in(place / "cache") == []
    assert processes_of(place) == []
    assert not os.path.exists(place / "outside")  # noqa: PTH110 - it may be anything
