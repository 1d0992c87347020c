"""Counts what each phase of a run costs: processes, their wall time, their CPU time."""

from dataclasses import dataclass, field
from typing import Any, Final

PHASES: Final = ("original", "behaviour", "generated inputs", "measuring", "line profile")
COLUMNS: Final = ("phase", "processes", "seconds", "CPU seconds")


@dataclass(slots=True)
class PhaseCost:
    """The processes of one phase, and the sums of their wall time and CPU time."""

    processes: int = 0
    seconds: float = 0.0
    cpu: float = 0.0


@dataclass(slots=True)
class PhaseCosts:
    """The costs by phase. Some processes run side by side: the sum may exceed the wall time."""

    costs: dict[str, PhaseCost] = field(
        default_factory=lambda: {name: PhaseCost() for name in PHASES}
    )

    def add(self, phase: str, seconds: float, cpu: float) -> None:
        """Count one process that has ended."""
        cost = self.costs[phase]
        cost.processes += 1
        cost.seconds += seconds
        cost.cpu += cpu

    def include(self, other: "PhaseCosts") -> None:
        """Add the costs of another run."""
        for name, cost in other.costs.items():
            mine = self.costs[name]
            mine.processes += cost.processes
            mine.seconds += cost.seconds
            mine.cpu += cost.cpu

    def rows(self) -> list[tuple[str, str, str, str]]:
        """A row for each phase that had processes, and one for all of them."""
        whole = PhaseCost()
        for cost in self.costs.values():
            whole.processes += cost.processes
            whole.seconds += cost.seconds
            whole.cpu += cost.cpu
        return [
            (name, str(cost.processes), f"{cost.seconds:.1f}", f"{cost.cpu:.1f}")
            for name, cost in [*self.costs.items(), ("all", whole)]
            if cost.processes
        ]

    def plain(self) -> dict[str, dict[str, Any]]:
        """As `--json` prints it."""
        return {
            name: {"processes": cost.processes, "seconds": cost.seconds, "cpu": cost.cpu}
            for name, cost in self.costs.items()
            if cost.processes
        }
