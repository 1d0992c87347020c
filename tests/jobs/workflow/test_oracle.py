"""Workflows end here with the statuses, outputs and results that they have in spec-kit.

Compared is what both engines report. Where they differ, our result is made comparable, each time
for a reason:

- A step that contains steps and halted is `failed` here, and `completed` there beside a failed run.
  (It did not complete.)
- Each round of a loop has ids of its own here (`loop:step:0` too); there the first has only the
  plain id.
- Steps inside an item's own step are reported here with their full ids; there not at all.
- After a halt there may be items there that ran beyond it: they are no part of the results, and
  not reported here.
- The width of a fan-out is reported here as it was read, there as it was written. Ours reports
  rounds and quarantine too.
- A fan-out whose items are no list has `results: []` here, and none there.
- The sentences of errors are worded differently.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
import yaml

import abreast
from abreast.assembly.workflow_tools import RunTools, Tools
from abreast.jobs.workflow.job import Flow
from abreast.jobs.workflow.load.load import load

PEER = Path(__file__).resolve().parents[3] / ".peers" / "specify-cli" / "bin" / "python"
pytestmark = pytest.mark.skipif(
    not PEER.exists(), reason="spec-kit is not installed: make bench-peers"
)

FILES = 40
COMPOSITES = {"if", "switch", "while", "do-while", "fan-out"}


class Author:
    """Writes files of the steps that both run, with values that are safe in any shell text."""

    def __init__(self, seed):
        self.choose = random.Random(f"oracle-{seed}")
        self.ids = []
        self.count = 0
        self.inside = 0

    def file(self):
        tree = {
            "schema_version": "1.0",
            "workflow": {"id": "oracle", "name": "Oracle", "version": "1.0.0"},
            "steps": self.steps(3, at_least=3),
        }
        return yaml.safe_dump(tree, sort_keys=False)

    def chance(self, part):
        return self.choose.random() < part

    def steps(self, depth, at_least=1):
        return [self.step(depth - 1) for _ in range(self.choose.randint(at_least, 3))]

    def step(self, depth, kinds=None):
        simple = ["shell", "shell", "listing"]
        deep = ["branch", "switch", "loop", "fan_out", "fan_out"] if depth > 0 and self.ids else []
        deep += ["fan_in"] if deep and not self.inside else []
        name, known = f"s{self.count}", list(self.ids)
        self.count += 1
        self.ids.append(name)
        return {
            "id": name,
            **getattr(self, self.choose.choice(kinds or simple + deep))(depth, name, known),
        }

    def earlier(self, known):
        return self.choose.choice(known) if known else "s0"

    def shell(self, depth, name, known):
        what = self.choose.choice(["output.exit_code", "status", "output.nothing"])
        run = f"echo {name}-{{{{ steps.{self.earlier(known)}.{what} }}}}-{{{{ item }}}}"
        if self.chance(0.2):
            run += f"; echo oops >&2; exit {self.choose.randint(1, 4)}"
        return {
            "type": "shell",
            "run": run,
            **({"continue_on_error": True} if self.chance(0.6) else {}),
        }

    def listing(self, depth, name, known):
        said = self.choose.choice(
            ["[1, 2, 3]", "[]", '["a", "b"]', '{"k": [4]}', "7", "null", "nope", '"text"']
        )
        return {
            "type": "shell",
            "run": f"echo '{said}'",
            "output_format": "json",
            **({"continue_on_error": True} if self.chance(0.7) else {}),
        }

    def branch(self, depth, name, known):
        read = self.earlier(known)
        condition = self.choose.choice(
            [
                f"{{{{ steps.{read}.output.exit_code == 0 }}}}",
                f"{{{{ steps.{read}.status == 'failed' }}}}",
                f"{{{{ steps.{read}.output.data }}}}",
                f"{{{{ 'a' in steps.{read}.output.data }}}}",
                True,
                False,
                "false",
            ]
        )
        return {
            "type": "if",
            "condition": condition,
            "then": self.steps(depth),
            "else": self.steps(depth),
        }

    def switch(self, depth, name, known):
        what = self.choose.choice(
            ["output.exit_code", "status", "output.data", "output.stdout", "output.nothing"]
        )
        cases = {
            key: self.steps(depth)
            for key in self.choose.sample(["0", "completed", "failed", "7", 1, "text"], 3)
        }
        return {
            "type": "switch",
            "expression": f"{{{{ steps.{self.earlier(known)}.{what} }}}}",
            "cases": cases,
            "default": self.steps(depth),
        }

    def loop(self, depth, name, known):
        count = f"n{name}"
        run = f"echo x >> {name}-{{{{ item }}}}.n; cat {name}-{{{{ item }}}}.n | wc -l"
        counting = {"id": count, "type": "shell", "run": run, "output_format": "json"}
        return {
            "type": self.choose.choice(["while", "do-while"]),
            "max_iterations": self.choose.randint(1, 4),
            "condition": f"{{{{ steps.{count}.output.data != 3 }}}}",
            "steps": [counting, *self.steps(depth)],
        }

    def fan_out(self, depth, name, known):
        items = self.choose.choice(
            [f"{{{{ steps.{self.earlier(known)}.output.data }}}}", [1, 2, 3], ["a"], [], "[1]"]
        )
        outside = list(self.ids)
        # A template can't wait for steps outside of it, nor the other way round.
        self.inside += 1
        step = self.step(depth - 1, None if self.chance(0.4) else ["shell"])
        self.inside -= 1
        self.ids = outside
        return {
            "type": "fan-out",
            "items": items,
            "step": step,
            "max_concurrency": self.choose.choice([1, 2, 3, "2", None, 0]),
        }

    def fan_in(self, depth, name, known):
        return {
            "type": "fan-in",
            "wait_for": [self.earlier(known)],
            "output": {"all": "{{ fan_in.results }}", "n": 3},
        }


def theirs(texts, folder):
    lines = []
    for number, text in enumerate(texts):
        cwd = folder / f"theirs-{number}"
        cwd.mkdir()
        lines.append(json.dumps({"text": text, "cwd": str(cwd)}))
    script = str(Path(__file__).with_name("spec_kit_run.py"))
    done = subprocess.run(
        [str(PEER), script],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


async def ours(text, cwd):
    workflow = load(text, "oracle.yaml")
    async with RunTools(Tools(cwd=str(cwd))) as kit, abreast.open_run("oracle", seed=1) as run:
        return await Flow(workflow, kit).run(run, {})


def comparable(value):
    """Return what both report of an output, and of the outputs in it."""
    if isinstance(value, dict):
        ignored = {"max_concurrency", "quarantine", "iterations", "max_reached", "step_template"}
        if value.get("loop_type") == "do-while":  # theirs has the condition's text alone
            ignored.add("condition_result")
        unread = {"results": []} if "item_count" in value else {}
        return {
            **unread,
            **{key: comparable(one) for key, one in value.items() if key not in ignored},
        }
    return [comparable(one) for one in value] if isinstance(value, list) else value


async def agree(text, said, cwd):
    result = await ours(text, cwd)
    assert result.status == said["status"], (result.error, said["steps"])
    records = result.steps
    beyond = set(said["steps"]) - set(records)
    assert all(":" in name for name in beyond), beyond
    assert not beyond or result.status == "failed", beyond
    compared = 0
    for name, step in said["steps"].items():
        record = records.get(name)
        if record is None:
            continue
        halted = (
            record.type in COMPOSITES
            and step["status"] == "completed"
            and record.status == "failed"
        )
        assert record.status == step["status"] or (halted and result.status == "failed"), name
        assert record.type == step["type"], name
        assert comparable(record.output) == comparable(step["output"]), (name, text)
        compared += 1
    missing = {name for name in result.steps if ":" not in name} - set(said["steps"])
    return compared, missing


async def test_generated_files_end_as_they_end_in_spec_kit(tmp_path):
    texts = [Author(seed).file() for seed in range(FILES)]
    compared, kinds, ends = 0, set(), set()
    for number, (text, said) in enumerate(zip(texts, theirs(texts, tmp_path), strict=True)):
        cwd = tmp_path / f"ours-{number}"
        cwd.mkdir()
        count, missing = await agree(text, said, cwd)
        assert not missing, text
        compared += count
        ends.add(said["status"])
        kinds |= {step["type"] for step in said["steps"].values()}
    assert ends == {"completed", "failed"}
    assert kinds == {"shell", "if", "switch", "while", "do-while", "fan-out", "fan-in"}
    assert compared > 200


# --- where they differ, and why -----------------------------------------------------------------


def shell(name, run, **more):
    return {"id": name, "type": "shell", "run": run, **more}


def spread(items, step, **more):
    return {"id": "fan", "type": "fan-out", "items": items, "step": step, **more}


FAILING = [shell("bad", "exit 3")]
DIFFERENCES = [
    # (what, the steps, what to look at, what it is there, what it is here)
    (
        "a halted fan-out did not complete",
        [spread([1], shell("t", "exit 3"))],
        ("fan", "status"),
        "completed",
        "failed",
    ),
    (
        "a halted branch did not complete",
        [{"id": "if", "type": "if", "condition": True, "then": FAILING}],
        ("if", "status"),
        "completed",
        "failed",
    ),
    (
        "so its own failure can be tolerated: the next step runs",
        [
            {
                "id": "if",
                "type": "if",
                "condition": True,
                "then": FAILING,
                "continue_on_error": True,
            },
            shell("z", "echo z"),
        ],
        ("z", "status"),
        None,
        "completed",
    ),
    (
        "a fan-out's own failure too",
        [spread([1], shell("t", "exit 3"), continue_on_error=True), shell("z", "echo z")],
        ("z", "status"),
        None,
        "completed",
    ),
    (
        "the width may be an expression",
        [spread([1, 2], shell("t", "echo t"), max_concurrency="{{ 2 }}")],
        ("fan", "max_concurrency"),
        "{{ 2 }}",
        2,
    ),
    (
        "expressions within a list of items are evaluated",
        [shell("s", "echo s"), spread(["{{ steps.s.output.exit_code }}"], shell("t", "echo t"))],
        ("fan", "items"),
        ["{{ steps.s.output.exit_code }}"],
        [0],
    ),
    (
        "and within the output of a fan-in",
        [
            shell("s", "echo s"),
            {"id": "in", "type": "fan-in", "wait_for": ["s"], "output": {"a": ["{{ 1 }}"]}},
        ],
        ("in", "a"),
        ["{{ 1 }}"],
        [1],
    ),
    (
        "the first round has an id of its own too",
        [
            {
                "id": "l",
                "type": "do-while",
                "condition": "{{ true }}",
                "max_iterations": 2,
                "steps": [shell("c", "echo x >> f; cat f | wc -l", output_format="json")],
            }
        ],
        ("l:c:0", "data"),
        None,
        1,
    ),
    (
        "a value is data for the shell, and no code",
        [shell("s", "echo 'a; echo b'"), shell("z", "echo {{ steps.s.output.stdout }}")],
        ("z", "stdout"),
        "a\nb\n",
        "a; echo b\n\n",
    ),
    (
        "what is nested in an item is told",
        [
            spread(
                [1], {"id": "if", "type": "if", "condition": True, "then": [shell("n", "echo n")]}
            )
        ],
        ("fan:n:0", "status"),
        None,
        "completed",
    ),
]


async def test_where_the_engines_differ_they_differ_as_listed(tmp_path):
    head = {
        "schema_version": "1.0",
        "workflow": {"id": "differs", "name": "Differs", "version": "1.0.0"},
    }
    texts = [yaml.safe_dump({**head, "steps": steps}) for _, steps, *_ in DIFFERENCES]
    answers = theirs(texts, tmp_path)
    for number, (why, _, (name, what), there, here) in enumerate(DIFFERENCES):
        cwd = tmp_path / f"ours-{number}"
        cwd.mkdir()
        result = await ours(texts[number], cwd)
        step, record = answers[number]["steps"].get(name), result.steps.get(name)
        assert (step and (step["status"] if what == "status" else step["output"][what])) == there, (
            why
        )
        assert (record and (record.status if what == "status" else record.output[what])) == here, (
            why
        )


async def test_what_a_step_was_given_as_input_can_be_read_as_in_spec_kit(tmp_path):
    head = {
        "schema_version": "1.0",
        "workflow": {"id": "input", "name": "Input", "version": "1.0.0"},
    }
    text = yaml.safe_dump(
        {
            **head,
            "steps": [
                shell("s", "echo s", input={"a": 1}),
                shell("z", "echo {{ steps.s.input.a }}"),
            ],
        }
    )
    (said,) = theirs([text], tmp_path)
    assert said["steps"]["z"]["output"]["stdout"] == "1\n"
    assert (await ours(text, tmp_path)).steps["z"].output["stdout"] == "1\n"
