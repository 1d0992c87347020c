"""Traces a candidate on a node of a cluster, in a copy of its slot."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from abreast.jobs.candidates.behaviour.trace import Tests, Watched
from abreast.jobs.candidates.behaviour.traced_run import watch
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.invocation import Places
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.slot import Slot


@dataclass(frozen=True, slots=True)
class TraceOnNode:
    """What `watch` is called with there.

    Attributes:
        top: The path of the slot where the driver is; in what is printed it replaces the node's.
        staged: What a candidate does to files, as `Slot.staged` has it.
        python: The driver's own interpreter. If the tests are run by it, the node uses its own.
    """

    target: Target
    tests: Tests
    limits: ResourceLimits
    inputs: bytes | None
    wanted: Places | None
    modules: bool
    top: str
    staged: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable

    async def __call__(self, slot: Slot) -> Watched:
        """Trace in a copy of the slot."""
        tests, slot.staged = self.tests, self.staged
        if tests.python == self.python:
            tests = replace(tests, python=sys.executable)
        found = await watch(
            slot,
            self.target,
            tests,
            limits=self.limits,
            inputs=self.inputs,
            wanted=self.wanted,
            modules=self.modules,
        )
        return _renamed(found, lambda text: text.replace(str(slot.path), self.top))


def _renamed(found: Watched, rename: Callable[[str], str]) -> Watched:
    return replace(
        found,
        stdout=rename(found.stdout),
        stderr=rename(found.stderr),
        reason=rename(found.reason),
        messages={test: rename(text) for test, text in found.messages.items()},
    )
