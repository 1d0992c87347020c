"""Studies for tests, and matrix tools whose models reply by a function of the prompt."""

import json
from pathlib import Path

from abreast.core.clock import SYSTEM_CLOCK
from abreast.jobs.matrix.call_notes import LaneCount
from abreast.jobs.matrix.design.read_study import load_study
from abreast.jobs.matrix.tools import CountingModel, StrategyModel
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller


def study(text, directory=Path(), codes=None):
    known = codes or {}

    def code_of(call):
        if call not in known:
            raise ValueError(f"there is no {call}")
        return known[call]

    return load_study(
        text, "study.yaml", Path(directory), code_of=code_of, check_sample=lambda _: None
    )


def simple(models=("a/one", "b/two"), inputs=3, repeats=2, more=""):
    made = [{"id": f"i{n}", "text": f"text {n}", "truth": f"T{n}"} for n in range(inputs)]
    return study(f"""
matrix:
  name: s
  models: {json.dumps(list(models))}
  strategies:
    plain: {{prompt: "say {{{{ input.text }}}}"}}
    loud: {{prompt: "shout {{{{ input.text }}}}"}}
  inputs: {json.dumps(made)}
  repeats: {repeats}
  scores: [exact, contains]
  {more}
""")


class Says:
    """A model that answers by a function of its prompt, counting and perhaps held."""

    def __init__(self, name, answer, gate=None):
        self.name, self._answer, self._gate = name, answer, gate
        self.prompts = []
        self.now = self.peak = 0

    async def complete(self, request, hear=None):
        prompt = request.messages[-1].content
        self.prompts.append(prompt)
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            if self._gate is not None:
                await self._gate(f"{self.name}: {prompt}")
            found = self._answer(prompt)
            if isinstance(found, BaseException):
                raise found
            return found if isinstance(found, Reply) else Reply(found, seconds=0.01)
        finally:
            self.now -= 1

    async def close(self):
        pass


class FakeBench:
    """Models by name, functions by name; lanes of a width."""

    def __init__(
        self,
        answers,
        *,
        limits=(),
        functions=None,
        gate=None,
        retry=None,
        price=None,
        clock=SYSTEM_CLOCK,
    ):
        self.clock = clock
        self.models = {name: Says(name, answer, gate) for name, answer in answers.items()}
        self.functions = functions or {}
        lanes = {name.partition("/")[0]: None for name in answers}
        self.counts = {lane: LaneCount() for lane in lanes}
        self._lanes = {lane: ModelLane(lane, [limit() for limit in limits]) for lane in lanes}
        self._retry = retry
        self._price = price
        self._callers = {}

    async def caller(self, name):
        lane = name.partition("/")[0]
        if name not in self._callers:
            counted = CountingModel(self.models[name], self.counts[lane], self.clock)
            lane_of = self._lanes[lane]
            self._callers[name] = Caller(
                counted, lane_of, price=self._price, retry=self._retry, clock=self.clock
            )
        return self._callers[name]

    judge = caller

    async def call(self, name, *given):
        found = self.functions[name](*given)
        return await found if hasattr(found, "__await__") else found

    async def sample(self, run, facts, caller):
        asked = await StrategyModel(caller, {}).reply(facts["prompt"], step="draw")
        return {"ok": True, "text": asked.text, "value": None}

    async def workflow(self, run, file, inputs, caller):
        return {
            "ok": file != "bad.yaml",
            "error": "a step failed",
            "text": f"{file}: {inputs['text']}",
            "value": None,
        }

    @property
    def asked(self):
        return sum(len(model.prompts) for model in self.models.values())
