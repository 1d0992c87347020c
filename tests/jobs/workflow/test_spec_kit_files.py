"""Files that spec-kit accepts are accepted here; the exceptions are listed with their reasons."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
import yaml

from abreast.core.errors import WorkflowInvalid
from abreast.jobs.workflow.inputs import coerce
from abreast.jobs.workflow.load.load import load
from abreast.jobs.workflow.spec import WorkflowInput

ROOT = Path(__file__).parents[3]
PEER = ROOT / ".peers" / "specify-cli"
pytestmark = pytest.mark.skipif(
    not PEER.exists(), reason="spec-kit is not installed: make bench-peers"
)


def ask(questions):
    """Return spec-kit's answer for each."""
    lines = "\n".join(map(json.dumps, questions))
    python = str(PEER / "bin" / "python")
    done = subprocess.run(
        [python, str(Path(__file__).with_name("spec_kit.py"))],
        input=lines,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def shipped():
    return sorted(
        PEER.glob("lib/python*/site-packages/specify_cli/core_pack/workflows/*/workflow.yml")
    )


def test_the_files_that_spec_kit_ships_are_taken():
    assert len(shipped()) >= 3
    for path in shipped():
        flow = load(path.read_text(), path.name, directory=path.parent)
        assert flow.id == path.parent.name
        assert flow.warnings == ()


class Author:
    """Writes files with spec-kit's keys, most of them valid."""

    def __init__(self, seed):
        self.choose = random.Random(f"author-{seed}")
        self.ids = []

    def one(self, *choices):
        return self.choose.choice(choices)

    def name(self):
        self.ids.append(f"s{len(self.ids)}")
        return self.ids[-1]

    def text(self):
        return self.one(
            "plain",
            "",
            "{{ inputs.spec }}",
            "a {{ steps.s0.output.text }} b",
            "{{ item | default('x') }}",
            "5",
        )

    def mapping(self):
        return self.one({}, {"args": self.text()}, {"n": 3, "list": [1, self.text()]})

    def condition(self):
        return self.one(
            True,
            False,
            "true",
            " False ",
            "",
            "{{ inputs.n > 3 }}",
            "{{ steps.s0.output.ok }}",
            "inputs.n > 3",
            "{{ a }} b",
        )

    def steps(self, depth):
        return [self.step(depth - 1) for _ in range(self.choose.randint(1 if depth > 2 else 0, 3))]

    def step(self, depth):
        kinds = ["command", "command", "prompt", "shell", "gate"]
        kinds += ["if", "switch", "while", "do-while", "fan-out", "fan-in"] if depth > 0 else []
        kind = self.one(*kinds)
        step = {
            "id": self.name(),
            **({} if kind == "command" and self.one(0, 1) else {"type": kind}),
        }
        step |= getattr(
            self, kind.replace("-", "_").replace("if", "branch").replace("while", "loop")
        )(depth)
        if self.choose.random() < 0.2:
            step["continue_on_error"] = self.one(True, False, True, "true")
        if self.choose.random() < 0.1:
            step[self.one("input", "integration", "model", "name", "description")] = self.one(
                "x", {"a": 1}
            )
        return step

    def command(self, depth):
        more = {
            "input": self.mapping(),
            "options": self.one({}, {"max": 3}),
            "integration": self.one(None, "claude", self.text()),
            "model": self.one(None, "m"),
            "capture": True,
            "integration_args": [self.text()],
            "integration_options": self.mapping(),
            "timeout": self.one(3, 2.5),
        }
        return {"command": self.one("speckit.plan", "a b"), **self.some(more)}

    def prompt(self, depth):
        more = {
            "integration": self.one(None, "claude"),
            "model": self.text(),
            "timeout": self.one(1, 0.5, 0, "9"),
            "capture": False,
        }
        return {
            "prompt": self.one(self.text(), "multi\nline {{ inputs.spec }}\n"),
            **self.some(more),
        }

    def shell(self, depth):
        more = {"timeout": self.one(60, 1.5, -1), "output_format": self.one("json", None, "xml")}
        return {
            "run": self.one(
                "echo hi",
                'echo "{{ inputs.spec }}"',
                "echo '{{ item }}' | cat\n",
                "ls {{ inputs.n }}",
            ),
            **self.some(more),
        }

    def gate(self, depth):
        more = {
            "options": self.one(["approve", "reject"], ["Abort", "go"], ["go"]),
            "on_reject": self.one("abort", "skip", "retry"),
            "show_file": self.one("a.md", "{{ inputs.spec }}", None),
            "verdict_input": self.one("verdict", "spec", "nope"),
        }
        return {"message": self.one(self.text(), 3, None), **self.some(more)}

    def branch(self, depth):
        return {
            "condition": self.condition(),
            "then": self.steps(depth),
            **self.some({"else": self.one(None, self.steps(depth))}),
        }

    def switch(self, depth):
        cases = {
            key: self.steps(depth) for key in self.choose.sample(["a", "b", 1, True, "yes", 2.5], 2)
        }
        return {
            "expression": self.text(),
            "cases": cases,
            **self.some({"default": self.one(None, self.steps(depth))}),
        }

    def loop(self, depth):
        return {
            "condition": self.condition(),
            "steps": self.steps(depth),
            **self.some({"max_iterations": self.one(1, 7, None, 0)}),
        }

    do_loop = loop

    def fan_out(self, depth):
        known, self.ids = self.ids, []
        template = self.step(depth - 1)
        self.ids = known
        items = self.one("{{ steps.s0.output.list }}", [1, 2], [], "text", ["{{ inputs.spec }}"])
        return {
            "items": items,
            "step": template,
            **self.some({"max_concurrency": self.one(4, "4", None, "{{ inputs.n }}", -1, [])}),
        }

    def fan_in(self, depth):
        return {
            "wait_for": [self.one(*self.ids)],
            **self.some({"output": self.one({}, None, {"all": "{{ fan_in.results }}"})}),
        }

    def some(self, more):
        return {key: value for key, value in more.items() if self.choose.random() < 0.4}

    def file(self):
        inputs = {
            "spec": {"type": "string", "required": True, "prompt": "What?"},
            "n": {"type": "number", "default": self.one(5, "5", 2.0)},
            "verdict": {"type": "string", "default": "", "enum": ["", "approve", "reject"]},
            "loud": {"type": "boolean", "default": self.one(True, "yes", "0")},
            "integration": {"default": "auto", "enum": ["claude"]},
        }
        tree = {
            "schema_version": self.one("1.0", 1.0),
            "workflow": {
                "id": self.one("a", "my-flow"),
                "name": "My flow",
                "version": "1.0.0",
                **self.some(
                    {
                        "author": "me",
                        "integration": "claude",
                        "model": None,
                        "options": {"a": 1},
                        "tags": ["x"],
                    }
                ),
            },
            "inputs": inputs,
            "steps": self.steps(3),
            **self.some(
                {
                    "requires": {"speckit_version": ">=0.8", "integrations": {"any": ["claude"]}},
                    "outputs": {"result": {"value": self.text()}},
                    "other": 3,
                }
            ),
        }
        return yaml.safe_dump(
            tree, sort_keys=self.one(True, False), default_flow_style=self.one(None, False)
        )


def test_files_that_spec_kit_takes_are_taken():
    texts = [Author(seed).file() for seed in range(400)]
    taken = [not said for said in ask([{"text": text} for text in texts])]
    assert 100 < sum(taken) < 380
    wrong = {}
    for text, is_taken in zip(texts, taken, strict=True):
        try:
            load(text, "flow.yaml")
        except WorkflowInvalid as error:
            if is_taken:
                wrong[str(error)] = text
        else:
            assert is_taken, text  # nothing with spec-kit's keys is accepted here that it refuses
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ["string", "number", "boolean"])
def test_inputs_become_what_they_become_in_spec_kit(kind):
    given = [
        "",
        "5",
        "5.0",
        "5.5",
        "1e3",
        "-3",
        " 7 ",
        "12345678901234567891",
        "abc",
        "inf",
        "nan",
        "true",
        "Yes",
        "0",
        "NO",
        "1",
        5,
        5.0,
        5.5,
        True,
        False,
        None,
        [],
        [1],
        {},
        10**25,
    ]
    said = ask([{"given": one, "input": {"type": kind}} for one in given])
    for one, theirs in zip(given, said, strict=True):
        try:
            ours = {"value": coerce(WorkflowInput("x", 1, type=kind), one)}
        except ValueError:
            assert isinstance(theirs, list), (one, theirs)
        else:
            assert ours == theirs, one
            assert type(ours["value"]) is type(theirs["value"])
