"""Calls traced by the child's own code, but in this process: no process is started."""

import inspect
import json
import sys
from textwrap import dedent
from types import ModuleType

from abreast.jobs.candidates.behaviour.trace import Trace, Watched
from abreast.jobs.candidates.child.capture import Channel, Recorder
from abreast.jobs.candidates.child.trying import try_inputs
from abreast.jobs.candidates.child.wrapping import CallDesk, install


class KeptChannel(Channel):
    """A channel that keeps its lines in memory."""

    def __init__(self):
        self._lines = []

    def send(self, kind, content):
        self._lines.append(json.dumps([kind, content]).encode("ascii") + b"\n")

    def watched(self):
        """What the lines say of the run."""
        trace = Trace(b"".join(self._lines))
        passed = sum(word == "passed" for word in trace.outcomes.values())
        counts = len(trace.outcomes), passed, tuple(trace.outcomes.items())
        return Watched(
            *(*counts, tuple(trace.invocations), "", "", None, "", ()),
            messages=trace.messages,
            dropped=tuple(trace.dropped),
        )


def trace_tests(monkeypatch, target, text, tests, **fixtures):
    """Run the functions of a test module, given as text, with the target traced."""
    name, _, qualname = target.partition(".py::")
    channel, module = KeptChannel(), ModuleType(name)
    recorder = Recorder(channel)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(CallDesk, "held", [])  # a traced function has its number there as a mark
    exec(dedent(text), vars(module))
    install(module, qualname, recorder)
    space = {}
    exec(dedent(tests), space)
    for function in [one for key, one in space.items() if key.startswith("test_")]:
        recorder.test = f"test_{name}.py::{function.__name__}"
        outcome = ["passed", ""]
        try:
            function(**{key: fixtures[key] for key in inspect.signature(function).parameters})
        except Exception as error:
            outcome = ["failed", repr(error)]
        channel.send("test", [recorder.test, *outcome])
    recorder.close()
    return channel.watched()


def input_runner(name, text):
    """A function that calls `name` of the module with inputs, as the child does."""

    async def run(inputs):
        channel, module = KeptChannel(), ModuleType(name)
        exec(text, vars(module))
        recorder = Recorder(channel)
        try_inputs(recorder, json.loads(inputs), module, name, getattr(module, name))
        return channel.watched()

    return run
