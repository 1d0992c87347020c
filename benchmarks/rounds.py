"""Play a work in rounds, every contender once per round, and take the medians."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from benchmarks.measure import NotMeasured, Sample, measure
from benchmarks.works import Entry, Work


@dataclass(slots=True)
class Result:
    """The samples of one entry, one per round; or why there are none."""

    entry: Entry
    samples: list[Sample] = field(default_factory=list)
    missing: str = ""
    failed: bool = False

    @property
    def cpu(self) -> float:
        """CPU seconds per item."""
        return median(_cpu_per_item(sample) for sample in self.samples)

    @property
    def least_cpu(self) -> float:
        """CPU seconds per item of the round that needed least."""
        return min(_cpu_per_item(sample) for sample in self.samples)

    @property
    def wall(self) -> float:
        """Wall seconds per map."""
        return median(sample.wall / sample.maps for sample in self.samples)

    @property
    def around(self) -> float:
        """CPU seconds per map spent opening and closing."""
        return median(sample.around for sample in self.samples)

    @property
    def version(self) -> str | None:
        """The contender's version, where it has one."""
        return self.samples[0].version

    def extra(self, name: str) -> float:
        """Return the median of a further measure of the samples; 0 when they have none."""
        return median(getattr(sample, name) or 0.0 for sample in self.samples)


def play(work: Work, rounds: int, tell: Callable[[str], None]) -> list[Result]:
    """Play the rounds and return a result per entry, in their order.

    `tell` hears of the progress.
    """
    results = [Result(entry) for entry in work.entries]
    for result in results:
        if result.entry.statement:
            # The first import writes the bytecode; that isn't what a user waits for each day.
            _add_sample(result)
            result.samples.clear()
    for number in range(rounds):
        for result in results:
            if not result.missing and number < (result.entry.rounds or rounds):
                tell(f"{work.name} {number + 1}/{rounds} {result.entry.label} n={result.entry.n:,}")
                _add_sample(result)
    return results


def ratios_by_round(result: Result, reference: Result) -> list[float]:
    """Return the ratio of CPU per item in each round that both played."""
    pairs = zip(result.samples, reference.samples, strict=False)
    return [_cpu_per_item(ours) / _cpu_per_item(theirs) for ours, theirs in pairs]


def _cpu_per_item(sample: Sample) -> float:
    return sample.cpu / sample.items


def _add_sample(result: Result) -> None:
    try:
        result.samples.append(measure(result.entry))
    except NotMeasured as reason:
        result.missing, result.failed = str(reason), not reason.absent
        result.samples.clear()
