"""A lane in real time.

A limiter, our own client, and storm servers on this machine in processes of their own.

The servers' log is the truth of what was rejected, and the best time is that of who knows
everything, on the same server. Time is scaled: a minute of the server lasts a few seconds.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from abreast.assembly.names import open_run
from abreast.limits.governor.governor import GovernorLimit
from abreast.models.providers.openai import OpenAI
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing.storm.dialects.dialect import key_of
from abreast.testing.storm.process import StormProcess, start_process
from abreast.testing.storm.settings import Settings
from abreast.testing.storm.world import WorldRequest
from benchmarks.limits.scenarios import Scenario
from benchmarks.limits.virtual import Limiter, best_time
from benchmarks.peers import ROOT, python_of

SAID = 20  # tokens of each reply
_MODEL = "storm"
_WIDE = 4_000  # items at once: the lane alone decides
CUT = 1.5  # times the best time


class Result(NamedTuple):
    """The time taken, the best possible time, and the counts of requests and calls.

    `sent` and `rejected` come from the servers' log; `lost` of all `calls` were not done.
    """

    seconds: float
    best: float
    sent: int
    rejected: int
    lost: int
    calls: int

    @property
    def utilisation(self) -> float:
        """The best time as a share of the limiter's.

        Of what was cut off, the share of the work that was done.
        """
        return self.best / self.seconds * (1 - self.lost / self.calls) if self.seconds else 0.0

    @property
    def turned_away(self) -> float:
        """The share of requests that were rejected."""
        return self.rejected / max(1, self.sent)


class Course(NamedTuple):
    """A scenario as it is sent: prompts, and the same as the server will understand them."""

    settings: Settings
    prompts: list[str]
    requests: list[WorldRequest]


def course_of(scenario: Scenario, minute: float) -> Course:
    """The scenario at another speed.

    All replies have one length, so that the best time is known exactly.
    """
    settings = replace(scenario.settings, minute=minute, output_min=SAID, output_max=SAID)
    prompts = [f"{call.key} ".ljust(4 * call.input_tokens, "x") for call in scenario.calls]
    requests = [
        WorldRequest(key_of(_MODEL, None, [text]), (len(text) + 3) // 4, None, SAID)
        for text in prompts
    ]
    return Course(settings, prompts, requests)


def run(
    scenarios: Sequence[Scenario], make: Callable[[Settings], Limiter] | None, minute: float
) -> Result:
    """Send all calls of all lanes at once; without a limiter, by inspect_ai's controller."""
    minute *= max(scenario.slow for scenario in scenarios)
    courses = [course_of(scenario, minute) for scenario in scenarios]
    best = max(best_time(course.settings, course.requests) for course in courses)
    if make is None:
        with inspecting() as child, ExitStack() as stack:
            storms = [stack.enter_context(_storm(course.settings)) for course in courses]
            seconds, done = _inspected(child, courses, storms, minute, CUT * best)
            return _result(seconds, best, done, courses, storms)
    with ExitStack() as stack:
        storms = [stack.enter_context(_storm(course.settings)) for course in courses]
        seconds, done = asyncio.run(_sent(courses, storms, make, CUT * best))
        return _result(seconds, best, done, courses, storms)


def _storm(settings: Settings) -> Any:  # noqa: ANN401 - a context manager
    given = {
        name: value
        for name, value in asdict(settings).items()
        if value is not None and name != "steps"
    }
    return start_process(**given, steps=[(step.at, dict(step.changes)) for step in settings.steps])


def _result(
    seconds: float,
    best: float,
    done: int,
    courses: Sequence[Course],
    storms: Sequence[StormProcess],
) -> Result:
    stats = [storm.stats() for storm in storms]
    calls = sum(len(course.prompts) for course in courses)
    return Result(
        seconds,
        best,
        sum(each.arrived for each in stats),
        sum(each.rejected for each in stats),
        calls - done,
        calls,
    )


async def _sent(
    courses: Sequence[Course],
    storms: Sequence[StormProcess],
    make: Callable[[Settings], Limiter],
    until: float,
) -> tuple[float, int]:
    """The seconds until the last reply, and how many came."""
    done, last = 0, 0.0
    began = time.monotonic()

    async def lane(course: Course, storm: StormProcess) -> None:
        nonlocal done, last
        governed = GovernorLimit(make(course.settings))  # type: ignore[arg-type] # a rival is no Governor, but does the same
        name = f"openai/{_MODEL}"
        async with Caller(
            OpenAI(name, f"{storm.url}/v1", "sk-storm"), ModelLane("openai", governed=governed)
        ) as model:

            async def ask(prompt: str) -> bool:
                return bool((await model.ask(prompt)).text)

            async with (
                open_run("limits", seed=0) as scope,
                scope.map(ask, course.prompts, width=_WIDE, order="completion") as outcomes,
            ):
                async for outcome in outcomes:
                    done += outcome.ok
                    last = time.monotonic() - began

    try:
        async with asyncio.timeout(until), asyncio.TaskGroup() as group:
            for course, storm in zip(courses, storms, strict=True):
                group.create_task(lane(course, storm))
    except TimeoutError:
        return until, done
    return last, done


@contextmanager
def inspecting() -> Iterator[subprocess.Popen[str]]:
    """The process of inspect_ai's controller, once it has imported all it needs."""
    command = [
        str(python_of("inspect-ai")),
        str(ROOT / "benchmarks" / "limits" / "inspect_lane.py"),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            if child.stdout is None or child.stdout.readline().strip() != "ready":
                raise RuntimeError(
                    "inspect_ai's environment is missing or broken: make bench-peers"
                )
            yield child
        finally:
            child.kill()


def _inspected(
    child: subprocess.Popen[str],
    courses: Sequence[Course],
    storms: Sequence[StormProcess],
    minute: float,
    until: float,
) -> tuple[float, int]:
    lanes = [
        {"url": storm.url, "prompts": course.prompts}
        for course, storm in zip(courses, storms, strict=True)
    ]
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("its process has no pipes")
    child.stdin.write(json.dumps({"lanes": lanes, "scale": minute / 60, "until": until}) + "\n")
    child.stdin.flush()
    said = json.loads(child.stdout.readline())
    return said["seconds"], int(said["done"])
