"""Timed processes of a simulated machine: calls take the seconds they are said to take."""

from contextlib import asynccontextmanager

from abreast.jobs.candidates.timing import timing
from abreast.jobs.candidates.timing.timed_process import Made
from abreast.jobs.candidates.values.invocation import encode, observe
from tests.jobs.candidates.machine import Machine

SIDES = ("original", "candidate")  # in place of the two slots
STARTING = 0.002  # seconds around the timed calls of an order
COUNTED = 1_000_000  # instructions per second


class SimulatedProcess:
    """Waits before the wanted calls, each of which takes the given seconds on its side."""

    def __init__(self, place, seconds, machine, counter):
        self._wanted, self._seconds = place.wanted, seconds
        self._machine, self._counter = machine, counter

    async def make(self, number, chunks, seconds, known, cpu=None):
        name = self._wanted[number]
        took = tuple(size * self._noisy(name) for size in chunks)
        record = None if "same" in known else encode([observe(name, lambda: 1)])
        return Made(took, sum(took) + STARTING, "same", record)

    def _noisy(self, name):
        return self._seconds[name] * (1 + self._machine.random.uniform(0, 0.01))

    async def ask(self, number, order, seconds):
        if order["do"] == "memory":
            return {"peak": 1_000}
        if self._counter:
            return {"uncounted": self._counter}
        return {"count": int(COUNTED * self._seconds[self._wanted[number]])}


class SimulatedProcesses:
    """Starts such processes, and records how many were started for each side."""

    def __init__(self, seconds, counter=""):
        self._seconds, self._counter = dict(zip(SIDES, seconds, strict=True)), counter
        self._machine = Machine("quiet", 7)
        self.started = []

    async def start(self, places):
        self.started += [place.slot for place in places]
        return [(self._process(place), self._answer(place)) for place in places]

    def _process(self, place):
        return SimulatedProcess(place, self._seconds[place.slot], self._machine, self._counter)

    def _answer(self, place):
        calls = [[name, took, name, True] for name, took in self._seconds[place.slot].items()]
        return {"held": list(place.wanted), "calls": calls, "uncounted": 0, "failed": ""}

    async def end(self):
        pass


def simulate(monkeypatch, original, candidate, counter=""):
    """Let `scout` and `time_candidate` use processes with these seconds by call, for `SIDES`."""
    processes = SimulatedProcesses((original, candidate), counter)

    @asynccontextmanager
    async def opened(parents):
        assert parents is None
        yield processes

    monkeypatch.setattr(timing, "open_timed_processes", opened)
    return processes
