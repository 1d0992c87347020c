"""Draw what the governor does in some scenarios, in virtual time.

`python -m benchmarks.limits.plots FOLDER`.

The pictures are those of `abreast watch --limits --svg`, and the same on every machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from abreast.cli.terminal.limit_drawing import svg
from abreast.core.events import CALL_SETTLED, CALL_STARTED, LIMIT_CHANGED, RUN_STARTED, Event, Plain
from abreast.limits.governor.governor import CallPermit, Costs, Governor, Hit, LimitHeaders
from abreast.testing.storm.settings import Settings
from abreast.views.limits import LimitChart
from benchmarks.limits.scenarios import Scenario, scenarios
from benchmarks.limits.virtual import play

PLOTS = {
    "limits-long": "rpm, long",
    "limits-concurrency": "concurrency, no headers",
    "limits-step": "step",
}


class Drawn(Governor):
    """A governor that notes in a chart what a run's journal would have."""

    def __init__(self, chart: LimitChart, minute: float) -> None:
        """Nothing has happened yet."""
        super().__init__(minute=minute)
        self._chart = chart
        self._note(RUN_STARTED, 0.0)

    def _note(
        self, kind: str, now: float, permit: CallPermit | None = None, **data: Plain | list[float]
    ) -> None:
        path = f"run/item/{permit.serial}" if permit is not None else "run"
        path += "/call" if kind in (CALL_STARTED, CALL_SETTLED) else ""
        self._chart.add(
            Event(0, kind, path, now, now, "provider" if permit is not None else None, data)
        )

    def _note_changes(self, now: float, permit: CallPermit, cause: str) -> int:
        found = self.changes(cause)
        for change in found:
            self._note(LIMIT_CHANGED, now, permit, **change._asdict())
        return len(found)

    def send(self, costs: Costs, now: float) -> CallPermit:
        """A call goes out."""
        permit = super().send(costs, now)
        self._note(CALL_STARTED, now, permit)
        return permit

    def answered(self, permit: CallPermit, now: float, used: Costs, told: LimitHeaders) -> None:
        """It was answered."""
        super().answered(permit, now, used, told)
        self._note(CALL_SETTLED, now, permit)
        self._note_changes(now, permit, "header" if told else "room")

    def rejected(
        self, permit: CallPermit, now: float, hit: Hit, wait: float | None, told: LimitHeaders
    ) -> bool:
        """It was turned away."""
        news = super().rejected(permit, now, hit, wait, told)
        if not self._note_changes(now, permit, "429"):
            self._note(LIMIT_CHANGED, now, permit, dimension=hit, cause="429")
        return news


def picture(scenario: Scenario) -> str:
    """The plot of a scenario."""
    chart = LimitChart(whole=True)

    def make(settings: Settings) -> Governor:
        return Drawn(chart, settings.minute)

    play(scenario.settings, scenario.calls, make)
    chart.state = "done"
    return svg(chart, scenario.name, "done", chart.now)


def main() -> None:
    """Write them all."""
    folder = Path(sys.argv[1])
    known = {scenario.name: scenario for scenario in scenarios()}
    for name, of in PLOTS.items():
        (folder / f"{name}.svg").write_text(picture(known[of]), encoding="utf-8")
        print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
