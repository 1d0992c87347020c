"""What claude may do with `--allow edit`: files of its directory, and no other commands."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.live_agents.project import MODELS, live_project

# Commands, and the files that each changes if it runs.
_EDITS = {
    "echo hi > made.txt": ["made.txt"],
    "rm sortedcontainers/sortedset.py": ["sortedcontainers/sortedset.py"],
}
_OTHERS = ("python3 -c \"open('made.txt', 'w')\"", "make -v > made.txt")


def permission_trial(folder: Path, bin_folder: Path, urls: Sequence[str]) -> dict[str, object]:
    """Let claude try commands that edit files, and others; return what to show."""
    project = live_project("claude", folder, bin_folder, urls)
    commands = [*_EDITS, *_OTHERS]
    calls = [{"command": one, "description": "Try"} for one in commands]
    tasks = "\n".join(f"call Bash with {json.dumps(one)} please" for one in calls)
    words = ("map", "--agent", "claude", "--worktree", "--allow", "edit", "-m", MODELS["claude"])
    ran = project.abreast(*words, "--prompt", "{}", "-P", "2", "--json", given=tasks)
    values = [json.loads(line).get("value", {}) for line in ran.stdout.splitlines()]
    found = [[one["tree"]["changed"], one["agent"]["denied"]] for one in values if "tree" in one]
    wanted = [[each, []] for each in _EDITS.values()] + [[[], ["Bash"]]] * len(_OTHERS)
    return {"allowed": "edit", "tried": commands, "found": found, "well": found == wanted}
