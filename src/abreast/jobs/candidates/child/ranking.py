"""Runs the tests under cProfile, and reports how long each function of the project takes.

The time of a function is its own and that of all libraries and built-ins that it calls: what a
rewrite of this function alone could save. cProfile is deterministic and needs no privileges, which
a sampling profiler of another process would in a sandbox; it makes calls of small functions look
more expensive than they are, which matters little for an order.
"""

import json
import os
import sys
from cProfile import Profile
from typing import Any, cast

from abreast.jobs.candidates.child.capture import Channel
from abreast.jobs.candidates.child.paths import Places, SlotFinder
from abreast.jobs.candidates.child.suite import run_tests
from abreast.jobs.candidates.child.workloads import WorkloadRunner

_MOST_FUNCTIONS = 2_000  # that are reported


class _NoRecorder:
    """Takes the place of a recorder: nothing is recorded."""

    test = ""


def main(directory: str) -> None:
    """Run the tests and scripts of the orders, and write the times of functions."""
    with open(os.path.join(directory, "orders.json"), encoding="utf-8") as file:
        orders = json.load(file)
    places = Places(orders["top"], orders["slot"])
    roots = [os.path.join(places.slot, one) for one in orders["roots"]]
    sys.path[:] = [os.getcwd(), *roots, *(path for path in sys.path[1:] if path)]
    sys.meta_path.insert(0, SlotFinder(places, "", lambda _, execute: execute()))
    channel, recorder = Channel(os.path.join(directory, "said")), cast("Any", _NoRecorder())
    profile = Profile()
    code = 0
    profile.enable()
    try:
        if orders["names"]:
            code = run_tests(orders["names"], channel, recorder, lambda: None)
        WorkloadRunner("", "", channel, recorder).run(orders["workloads"])
    finally:
        profile.disable()
    channel.send("ranked", {"exit": code, "functions": _times(profile, places)})
    sys.stdout.flush()
    os._exit(0)


def _times(profile: Profile, places: Places) -> list[list[object]]:
    """Return file, line, name, calls and seconds of each function of the project."""
    found: list[list[object]] = []
    entries: Any = profile.getstats()
    for entry in entries:
        code = entry.code
        if isinstance(code, str) or not places.holds(code.co_filename):
            continue
        seconds = entry.inlinetime + sum(
            one.totaltime for one in entry.calls or () if not _is_of_project(one.code, places)
        )
        place = places.inside(code.co_filename)
        found.append([place, code.co_firstlineno, code.co_name, entry.callcount, seconds])
    found.sort(key=lambda one: -cast("float", one[4]))
    return found[:_MOST_FUNCTIONS]


def _is_of_project(code: Any, places: Places) -> bool:  # noqa: ANN401 - a code object or a text
    return not isinstance(code, str) and places.holds(code.co_filename)
