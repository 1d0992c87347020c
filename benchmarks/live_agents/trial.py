"""One agent, ten times: run side by side, merged and applied."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from abreast.core.events import CALL_SETTLED, CALL_STARTED
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from benchmarks.live_agents.project import AgentProject
from benchmarks.live_agents.repository import AGENTS, SHARED, line_of, own_file, without_markers


def run_trial(project: AgentProject) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run the agents, merge what they did; return what is to be shown, and the rows of the map."""
    before = project.git("status", "--porcelain")
    ran = project.abreast(*project.map_words(), given=project.tasks())
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    done = [row for row in rows if row["state"] == "done"]
    untouched = project.git("status", "--porcelain") == before
    blocked = json.loads(project.abreast("plan", "apply", "last", "--json").stdout or "{}")
    conflicts = [[one["file"], *one["parts"]] for one in blocked.get("conflicts", ())]
    both = without_markers(project.abreast("plan", "resolve", "last", SHARED).stdout)
    choose = ("plan", "resolve", "last", SHARED, "--take", "edit", "--from", "-")
    project.abreast(*choose, given=both)
    applied = project.abreast("plan", "apply", "last")
    shown = {
        "agent": project.name,
        "done": len(done),
        "peak": peak_of(project.folder / ".abreast" / "abreast.db"),
        "usd": sum(row.get("usd") or 0 for row in done),
        "turns": sum(row["value"]["agent"]["turns"] for row in done),
        "untouched": untouched,
        "changed": changes_are_right(done),
        "conflicts": conflicts,
        "applied": applied.returncode == 0 and is_merged(project.folder),
        "said": ran.stderr.strip().splitlines()[-2:],
    }
    return shown, rows


def changes_are_right(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each agent has changed the shared file and its own, and there are all of them."""
    changed = [row["value"]["tree"]["changed"] for row in rows]
    return changed == [[own_file(one), SHARED] for one in range(AGENTS)]


def is_merged(folder: Path) -> bool:
    """Whether the work of all is in the tree."""
    lines = (folder / SHARED).read_text().splitlines()
    own = [folder / own_file(number) for number in range(AGENTS)]
    return all(line in lines for line in map(line_of, range(AGENTS))) and all(
        path.exists() for path in own
    )


def peak_of(store: Path) -> int:
    """How many agents ran at once, by the journal of the newest run."""
    now = most = 0
    with closing(SqliteStore(str(store))) as opened:
        run = opened.runs(limit=1)[0].id
        for event in each_event(opened, run, {CALL_STARTED, CALL_SETTLED}):
            now += 1 if event.kind == CALL_STARTED else -1
            most = max(most, now)
    return most
