"""A real agent as the author of candidates: `abreast optimize --author claude`, and in Python.

The storm's scripted replies make the agent replace a slow function by a fast one, in a tree of its
own. What it is told stands in a comment of the file, which is a part of its prompt.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.live_agents.project import MODELS, PATIENCE, AgentProject, live_project

_TARGET = "sums.py"
_TESTS = """\
from sums import pairs


def test_pairs():
    assert pairs([1, 2, 3, 4, 3], 6) == 2
    assert pairs([at % 50 for at in range(240)], 49) == 575
    assert pairs([], 1) == 0
"""
_SLOW = '''\
"""Sums. For the agent: {task}"""


def pairs(numbers, wanted):
    found = 0
    for at, one in enumerate(numbers):
        for other in numbers[at + 1 :]:
            if one + other == wanted:
                found += 1
    return found
'''
_FAST = """\
def pairs(numbers, wanted):
    seen, found = dict(), 0
    for one in numbers:
        found += seen.get(wanted - one, 0)
        seen[one] = seen.get(one, 0) + 1
    return found
"""
_PROGRAM = """\
import json
import sys
from abreast import sync
result = sync.optimize(
    "sums.py::pairs", tests="test_sums.py", author=sys.argv[1], model=sys.argv[2], allow="run",
    proposals=1, repairs=0, refine=False, generated=20, timing=False, store=".abreast/abreast.db",
)
print(json.dumps([[one.name, one.verdict] for one in result.candidates]))
"""


def author_trial(
    name: str, folder: Path, bin_folder: Path, urls: Sequence[str]
) -> dict[str, object]:
    """Let an agent write a candidate, by the command line and in Python; return what to show."""
    project = live_project(name, folder, bin_folder, urls)
    # Nothing is measured: it need not wait until others have measured on this machine.
    project = replace(project, env={**project.env, "ABREAST_LOCKS": str(folder)})
    _write_target(project)
    before = project.git("status", "--porcelain")
    words = [
        *("optimize", f"{_TARGET}::pairs", "--tests", "test_sums.py", "--author", name),
        *("-m", MODELS[name], "--allow", "run", "--proposals", "1", "--repairs", "0"),
        *("--generated", "20", "--behaviour-only", "--json"),
    ]
    ran = project.abreast(*words)
    found: dict[str, Any] = json.loads(ran.stdout or "{}")
    called = _in_python(project)
    return {
        "author": name,
        "candidates": [[one["name"], one["verdict"]] for one in found.get("candidates", ())],
        "in python": called,
        "untouched": project.git("status", "--porcelain") == before,
        "said": ran.stderr.strip().splitlines()[-2:],
    }


def is_well(found: dict[str, object]) -> bool:
    """Whether the agent's candidate behaves as the original does, and the source is untouched."""
    wanted = [["draft-1", "same"]]
    return found["candidates"] == wanted == found["in python"] and bool(found["untouched"])


def _write_target(project: AgentProject) -> None:
    """Write the slow function, with what the agent is told, and commit it."""
    escaped = _FAST.replace("\n", "\\n")
    command = f"printf '{escaped}' > {_TARGET}"
    given = {
        "claude": ("Bash", {"command": command, "description": "Write"}),
        "codex": ("exec_command", {"cmd": command}),
    }
    tool, arguments = given[project.name]
    task = f"call {tool} with {json.dumps(arguments)} please"
    # In a text of Python, so that a backslash of JSON stays one.
    (project.folder / _TARGET).write_text(_SLOW.replace('"""Sums', 'r"""Sums').format(task=task))
    (project.folder / "test_sums.py").write_text(_TESTS)
    project.git("add", "-A")
    named = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    project.git(*named, "commit", "-qm", "a slow function")


def _in_python(project: AgentProject) -> object:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, project.name, MODELS[project.name]],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1:]
    return json.loads(done.stdout)
