"""`abreast run flow.yaml`: inputs, gates, halts, kills and resumes, as a person meets them."""

import json
import os
import random
import re
import select
import signal
import sys
import threading
from contextlib import suppress

import pytest

from tests.cli.forks import ForkingShell
from tests.cli.shell import PATIENCE, Shell

WIDTH = 4
NESTED = """
workflow: {id: nested}
steps:
  - id: list
    type: shell
    run: echo x >> counts/list; seq 0 COUNT | tr '\\n' ',' | sed 's/^/[/; s/,$/]/'
    output_format: json
  - id: fan
    type: fan-out
    items: "{{ steps.list.output.data }}"
    max_concurrency: WIDTH
    steps:
      - {id: first, type: shell, run: 'echo x >> counts/first-{{ item }}; [ ! -p here ] || echo x > here; echo "{{ item }} one"'}
      - id: odd
        type: if
        condition: "{{ item % 2 == 1 }}"
        then:
          - {id: more, type: shell, run: 'echo x >> counts/more-{{ item }}; echo "more {{ steps.first.output.stdout | trim }}"'}
      - id: inner
        type: fan-out
        items: ["a", "b"]
        max_concurrency: 2
        step: {id: leaf, type: shell, run: 'echo x >> counts/leaf-{{ steps.first.output.stdout | trim }}-{{ item }}; echo "{{ item }}"'}
      - {id: last, type: shell, run: 'echo x >> counts/last-{{ item }}; echo "done {{ item }}"'}
  - {id: after, type: fan-in, wait_for: [fan], output: {all: "{{ fan_in.results[0].results | map('stdout') | join('') }}"}}
"""  # noqa: E501 - a file


def nested(count, width=WIDTH):
    return NESTED.replace("COUNT", str(count - 1)).replace("WIDTH", str(width))


def steps_of(said):
    """The output about the steps, without what depends on the width."""
    return json.loads(re.sub(r'"max_concurrency":\s*(\d+|null),', "", said.out))["steps"]


# --- inputs, output, exit codes ------------------------------------------------------------------


def test_a_workflow_says_what_its_last_step_said(abreast):
    abreast.file(
        "flow.yaml", "workflow: {id: hi}\nsteps:\n  - {id: a, type: shell, run: 'echo hello'}\n"
    )
    said = abreast("run", "flow.yaml")
    assert (said.code, said.out, said.err) == (0, "hello\n", "")
    assert abreast("runs", "--json").rows[0]["run"] == "hi-1"


def test_outputs_are_what_is_printed(abreast):
    text = "workflow: {id: hi}\nsteps: [{id: a, type: shell, run: echo hello}]\n"
    one = 'outputs: {said: {value: "{{ steps.a.output.stdout | trim }}"}}'
    abreast.file("one.yaml", text + one)
    abreast.file("two.yaml", text + one.replace("outputs: {", "outputs: {n: {value: 3}, "))
    assert abreast("run", "one.yaml").out == "hello\n"
    assert json.loads(abreast("run", "two.yaml").out) == {"n": 3, "said": "hello"}


def test_json_is_one_object_with_every_step_by_its_full_id(abreast):
    abreast.file("counts/.keep", "")
    abreast.file("flow.yaml", nested(3))
    said = abreast("run", "flow.yaml", "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert (found["run"], found["status"], found["error"]) == ("nested-1", "completed", None)
    assert list(found["steps"])[:6] == [
        "list",
        "fan",
        "fan:first:0",
        "fan:odd:0",
        "fan:inner:0",
        "fan:inner:0:leaf:0",
    ]
    assert found["steps"]["fan:more:1"]["output"]["stdout"] == "more 1 one\n"
    assert found["steps"]["after"]["output"]["all"] == "done 0\ndone 1\ndone 2\n"


def test_any_width_gives_the_same_bytes(abreast):
    abreast.file("counts/.keep", "")
    seen = []
    for width in (1, 3, 8, "null"):
        abreast.file("flow.yaml", nested(12, width))
        seen.append(json.dumps(steps_of(abreast("run", "flow.yaml", "--json"))))
    assert len(set(seen)) == 1


def test_inputs_are_read_by_their_types(abreast):
    abreast.file(
        "flow.yaml",
        """
workflow: {id: inputs}
inputs:
  n: {type: number, required: true}
  loud: {type: boolean, default: false}
steps:
  - id: a
    type: if
    condition: "{{ inputs.loud and inputs.n > 2 }}"
    then: [{id: b, type: shell, run: 'echo "{{ inputs.n }}"'}]
""",
    )
    said = abreast("run", "flow.yaml", "-i", "loud=perhaps", "-i", "m=1")
    assert said.code == 2
    assert "--input: there is no input 'm'" in said.err
    assert "'loud'" in said.err
    assert "the input 'n' is required" in said.err
    assert (
        abreast("run", "flow.yaml", "-i", "nonsense").err
        == "abreast: --input: 'nonsense' should be NAME=VALUE\n"
    )
    assert not abreast.store.exists()
    assert abreast("run", "flow.yaml", "-i", "n=3", "-i", "loud=yes").out == "3\n"


def test_a_failed_step_is_exit_1_and_the_way_on_is_told(abreast):
    abreast.file(
        "flow.yaml",
        """
workflow: {id: f}
steps:
  - {id: a, type: shell, run: echo x >> ran}
  - {id: b, type: shell, run: 'echo oh no >&2; test -e fixed'}
  - {id: c, type: shell, run: echo fine}
""",
    )
    said = abreast("run", "flow.yaml")
    assert (said.code, said.out) == (1, "")
    assert (
        "failed: the step 'b': exit code 1: oh no (2 steps, 1 not done); go on with: "
        "abreast resume f-1"
    ) in said.err
    assert abreast("runs", "--json").rows[0]["state"] == "failed"
    abreast.file("fixed", "")
    said = abreast("resume")
    assert (said.code, said.out) == (0, "fine\n")
    assert (abreast.folder / "ran").read_text() == "x\n"


def test_a_file_with_problems_tells_all_of_them_with_their_lines(abreast):
    abreast.file(
        "flow.yaml",
        """workflow: {id: bad}
steps:
  - {id: a, type: shel, run: ls}
  - {id: b, type: shell}
  - {id: b, type: shell, run: "echo {{ inputs. }}"}
  - {id: c, type: fan-out, items: [1], step: {id: x, type: nonsense}}
""",
    )
    for words in (
        ["run", "flow.yaml"],
        ["run", "flow.yaml", "--check"],
        ["run", "flow.yaml", "--dry-run"],
    ):
        said = abreast(*words)
        assert said.code == 2
        for line, what in [(3, "shel"), (4, "run"), (5, "b"), (6, "nonsense")]:
            assert any(
                f"flow.yaml:{line}: " in told and what in told for told in said.err.splitlines()
            ), (line, said)
    assert not abreast.store.exists()


# --- shell safety, end to end --------------------------------------------------------------------

NASTY = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "' ; touch pwned ; '",
    '" ; touch pwned ; "',
    "a\nb",
    "*",
    "~",
    "-n",
    "\\n",
    "$HOME",
    "été ☃",
    " two  spaces ",
    "x" * 100_000,
]


def test_values_reach_the_shell_as_data(abreast):
    abreast.file(
        "flow.yaml",
        f"""
workflow: {{id: safe}}
steps:
  - id: fan
    type: fan-out
    items: {json.dumps(NASTY)}
    max_concurrency: 4
    steps:
      - {{id: double, type: shell, run: 'printf "%s" "{{{{ item }}}}"'}}
      - {{id: single, type: shell, run: "printf '%s' '{{{{ item }}}}'"}}
      - {{id: bare, type: shell, run: 'printf "%s" {{{{ item }}}}'}}
""",
    )
    said = abreast("run", "flow.yaml", "--json")
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    for index, item in enumerate(NASTY):
        for place in ("double", "single", "bare"):
            assert steps[f"fan:{place}:{index}"]["output"]["stdout"] == item
    assert not (abreast.folder / "pwned").exists()


# --- gates ---------------------------------------------------------------------------------------

GATED = """
workflow: {id: gated}
inputs: {verdict: {type: string, default: ""}}
steps:
  - {id: a, type: shell, run: echo a >> log}
  - {id: ok, type: gate, message: go on?, verdict_input: verdict}
  - {id: b, type: shell, run: echo b >> log; echo went on}
"""


def test_a_gate_without_a_terminal_pauses_and_goes_on_by_an_input(abreast):
    abreast.file("flow.yaml", GATED)
    said = abreast("run", "flow.yaml")
    assert (said.code, said.out) == (0, "")
    assert "decide with: abreast resume gated-1 --input ok=approve" in said.err
    assert abreast("runs", "--json").rows[0]["state"] == "paused"
    assert abreast("resume").code == 0  # without a verdict it pauses again
    for answer in ("ok=approve", "verdict=approve"):
        if answer.startswith("verdict"):
            abreast.file("flow.yaml", GATED.replace("id: gated", "id: other"))
            abreast("run", "flow.yaml")
        said = abreast("resume", "-i", answer)
        assert (said.code, said.out) == (0, "went on\n"), said
    assert (abreast.folder / "log").read_text() == "a\nb\na\nb\n"


def test_a_rejected_gate_aborts(abreast):
    abreast.file("flow.yaml", GATED)
    said = abreast("run", "flow.yaml", "-i", "verdict=reject", "--json")
    assert said.code == 1
    assert json.loads(said.out)["status"] == "aborted"
    assert abreast("resume", "gated-1", "-i", "ok=approve").code == 1  # it was decided
    assert (abreast.folder / "log").read_text() == "a\n"


def test_gates_of_items_are_answered_one_by_one_and_remembered(abreast):
    abreast.file(
        "flow.yaml",
        """
workflow: {id: each}
steps:
  - id: fan
    type: fan-out
    items: [1, 2]
    max_concurrency: 2
    steps: [{id: g, type: gate, message: "{{ item }}?"}, {id: z, type: shell, run: \
'echo "{{ item }}" >> log'}]
""",
    )
    assert "fan:g:0" in abreast("run", "flow.yaml").err
    assert "fan:g:1" in abreast("resume", "-i", "fan:g:0=approve").err
    assert abreast("resume", "-i", "fan:g:1=approve").code == 0
    assert (abreast.folder / "log").read_text() == "1\n2\n"


# --- resuming ------------------------------------------------------------------------------------


def test_changed_inputs_run_again_what_reads_them_and_nothing_else(abreast):
    abreast.file(
        "flow.yaml",
        """
workflow: {id: change}
inputs: {city: {type: string, default: Paris}}
steps:
  - {id: other, type: shell, run: echo other >> log}
  - {id: here, type: shell, run: 'echo "{{ inputs.city }}" >> log; echo "{{ inputs.city }}"'}
  - id: fan
    type: fan-out
    items: [1, 2]
    step: {id: each, type: shell, run: \
'echo "{{ item }} {{ steps.here.output.stdout | trim }}" >> log'}
""",
    )
    assert abreast("run", "flow.yaml").code == 0
    said = abreast("resume", "change-1", "-i", "city=Rome")
    assert said.code == 0
    assert "changed: city; runs again where what it reads differs: here, fan, each" in said.err
    assert (abreast.folder / "log").read_text().splitlines() == [
        "other",
        "Paris",
        "1 Paris",
        "2 Paris",
        "Rome",
        "1 Rome",
        "2 Rome",
    ]


def test_what_was_tolerated_is_run_again_when_asked(abreast):
    abreast.file(
        "flow.yaml",
        """
workflow: {id: tolerant}
steps:
  - id: fan
    type: fan-out
    items: [1, 2, 3]
    min_success: 2
    step:
      id: each
      type: shell
      run: |
        echo "{{ item }}" >> log
        [ {{ item }} != 2 ] || [ -e fixed ] || exit 1
        echo "{{ item }}"
  - {id: all, type: shell, run: "echo '{{ steps.fan.output.results | map('stdout') | join('') }}'"}
""",
    )
    said = abreast("run", "flow.yaml", "--json")
    assert said.code == 0
    assert json.loads(said.out)["steps"]["fan"]["output"]["quarantine"] == [
        {"index": 1, "error": "exit code 1"}
    ]
    assert "resume tolerant-1 --only-failed" in abreast("resume", "tolerant-1").err
    abreast.file("fixed", "")
    said = abreast("resume", "tolerant-1", "--only-failed")
    assert (said.code, said.out.split()) == (0, ["1", "2", "3"])
    assert (abreast.folder / "log").read_text().split() == ["1", "2", "3", "2"]


def counts(abreast):
    return {
        path.name: path.read_bytes().count(b"x") for path in (abreast.folder / "counts").iterdir()
    }


def storm(abreast, calm, *, items, kills, seed):
    """Kill it several times, then let it end: the result is that of an undisturbed run."""
    chance = random.Random(seed)
    abreast.file("counts/.keep", "")
    abreast.file("flow.yaml", nested(items))
    calm.file("counts/.keep", "")
    calm.file("flow.yaml", nested(items))
    undisturbed = calm("run", "flow.yaml", "--json")
    assert undisturbed.code == 0, undisturbed
    expected = steps_of(undisturbed)
    os.mkfifo(abreast.folder / "here")
    here = os.open(abreast.folder / "here", os.O_RDWR | os.O_NONBLOCK)
    arguments, killed = ("run", "flow.yaml", "--json"), 0
    while killed < kills:
        with abreast.start(*arguments, measured=False) as process:
            striker = threading.Thread(
                target=_strike, args=(process, here, chance.randrange(1, 20), chance.random())
            )
            striker.start()
            process.communicate(timeout=PATIENCE)
            striker.join()
        if process.returncode != -signal.SIGKILL:
            break
        killed += 1
        arguments = ("resume", "nested-1", "--json")
    os.close(here)
    (abreast.folder / "here").unlink()
    said = abreast("resume", "nested-1", "--json")
    if not said.out:  # it had ended before: its state is that of the last driver
        said = abreast("resume", "nested-1", "--only-failed", "--json")
    assert said.code == 0, said
    assert steps_of(said) == expected
    ran = counts(abreast)
    once = [name for name in ran if not name.startswith((".", "leaf"))]
    assert len(once) == 1 + 2 * items + items // 2
    # What is recorded is not run again; what was in flight may be, and no more than that.
    assert sum(ran[name] for name in once) <= len(once) + killed * WIDTH
    return killed


def _strike(process, here, items, chance):
    """Kill it, or its process group, when so many items have started."""
    seen = 0
    while seen < items and process.poll() is None:
        if select.select([here], [], [], 0.01)[0]:
            with suppress(BlockingIOError):
                seen += os.read(here, 2 * (items - seen)).count(b"x")
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if chance < 0.5 else process.kill()


def test_killed_again_and_again_a_workflow_ends_as_if_nothing_had_been(abreast, tmp_path, warm):
    (tmp_path / "calm").mkdir()
    assert storm(abreast, Shell(tmp_path / "calm", warm), items=32, kills=3, seed=1) >= 1


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_killed_fifty_times_a_workflow_of_200_items_ends_as_if_nothing_had_been(
    tmp_path, warm, capsys
):
    killed = seed = 0
    while killed < 50:
        folder, beside = tmp_path / str(seed), tmp_path / f"calm{seed}"
        folder.mkdir()
        beside.mkdir()
        calm = Shell(beside, warm)
        killed += storm(ForkingShell(folder, warm), calm, items=200, kills=12, seed=seed)
        seed += 1
    with capsys.disabled():
        print(  # noqa: T201 - the result of a soak test
            f"\n{killed} kills over {seed} workflows of 200 items: "
            "every result equal to an undisturbed run's"
        )


# --- without running -----------------------------------------------------------------------------


def test_a_dry_run_counts_at_worst(abreast):
    abreast.file(
        "flow.yaml",
        """
workflow: {id: plan}
steps:
  - id: fan
    type: fan-out
    items: [1, 2, 3]
    max_concurrency: 8
    steps:
      - id: loop
        type: while
        condition: "{{ true }}"
        max_iterations: 5
        steps: [{id: ask, type: prompt, prompt: hello, max_tokens: 4}]
""",
    )
    said = abreast("run", "flow.yaml", "--dry-run", "--json")
    found = json.loads(said.out)
    assert (found["calls"], found["usd"]) == (15, 0.0)
    assert [(step["id"], step["times"], step["width"]) for step in found["steps"]] == [
        ("fan", 1, 3),
        ("loop", 3, None),
        ("ask", 15, None),
    ]
    assert "model calls at worst: 15" in abreast("run", "flow.yaml", "--dry-run").out
    assert not abreast.store.exists()


def test_a_rehearsal_does_nothing_and_ends_the_same_way_each_time(abreast):
    abreast.file("counts/.keep", "")
    abreast.file(
        "flow.yaml",
        nested(3).replace(
            "output_format: json",
            "output_format: json\n    output_schema: {type: array, items: {type: integer}}",
        ),
    )
    first, again = (
        abreast("run", "flow.yaml", "--simulate", "--json", "--seed", "1") for _ in range(2)
    )
    assert first.code == 0, first.err
    assert first.out == again.out
    assert list(counts(abreast)) == [".keep"]
    assert not abreast.store.exists()


def test_a_rehearsal_takes_outputs_from_a_run(abreast):
    abreast.file("counts/.keep", "")
    abreast.file("flow.yaml", nested(4))
    real = abreast("run", "flow.yaml", "--json")
    before = counts(abreast)
    said = abreast("run", "flow.yaml", "--outputs-of", "nested-1", "--json")
    assert json.loads(said.out)["steps"] == json.loads(real.out)["steps"]
    assert counts(abreast) == before


def test_the_schema_for_editors_is_json(abreast):
    found = json.loads(abreast("schema", "workflow").out)
    assert found["$schema"].startswith("https://json-schema.org/")


# --- agents --------------------------------------------------------------------------------------


def test_commands_and_prompts_go_to_the_runner_that_is_configured(abreast):
    abreast.file(
        "abreast.toml", '[runners.echo]\nargv = ["printf", "%s", "{prompt}"]\nmodel = ["{model}"]\n'
    )
    abreast.file(
        "flow.yaml",
        """
workflow: {id: agents, integration: echo, model: m1}
steps:
  - {id: a, command: speckit.plan, input: {args: "a $(touch pwned) b"}}
  - {id: b, type: prompt, prompt: "what of {{ steps.a.output.text }}"}
""",
    )
    said = abreast("run", "flow.yaml", "--json")
    assert said.code == 0, said
    steps = json.loads(said.out)["steps"]
    assert steps["a"]["output"]["text"] == "/speckit.plan a $(touch pwned) bm1"
    assert steps["b"]["output"]["text"] == "what of /speckit.plan a $(touch pwned) bm1m1"
    assert not (abreast.folder / "pwned").exists()


def test_a_command_without_a_runner_says_what_to_write(abreast):
    abreast.file(
        "flow.yaml", "workflow: {id: none, integration: claude}\nsteps: [{id: a, command: plan}]\n"
    )
    said = abreast("run", "flow.yaml")
    assert said.code == 2
    assert '[runners.claude] with argv = ["claude", "-p", "{prompt}"]' in said.err


# --- what abreast.toml must have -----------------------------------------------------------------


def test_a_step_may_wait_for_a_lane_that_is_only_a_width(abreast):
    abreast.file("abreast.toml", "[lanes.machine]\nwidth = 2\n")
    abreast.file(
        "flow.yaml",
        "workflow: {id: l}\nsteps: [{id: a, type: shell, run: echo hi, lane: machine}]\n",
    )
    assert abreast("run", "flow.yaml", "--check").code == 0
    said = abreast("run", "flow.yaml")
    assert (said.code, said.out, said.err) == (0, "hi\n", "")
    said = abreast("ask", "-m", "machine/x", "hello")
    assert said.code == 2
    assert "lanes.machine is only a width, and has no models" in said.err


@pytest.mark.parametrize(
    ("table", "step", "words"),
    [
        (
            "",
            "{id: a, type: shell, run: ls, lane: machine}",
            "flow.yaml:2: there is no lane 'machine'",
        ),
        (
            "[lanes.machine]\nrpm = 3\n",
            "{id: a, type: shell, run: ls, lane: machine}",
            "needs a base_url",
        ),
        (
            "[lanes.machine]\nwidth = 0\n",
            "{id: a, type: shell, run: ls, lane: machine}",
            "width must be",
        ),
        (
            '[runners.x]\nargv = "x"\n',
            "{id: a, type: shell, run: ls}",
            "runners.x.argv must be a list of texts",
        ),
        ("[runners.x]\n", "{id: a, type: shell, run: ls}", "runners.x must be a table with argv"),
        ("[workflow]\nmax_items = 0\n", "{id: a, type: shell, run: ls}", "workflow.max_items"),
    ],
)
def test_what_is_wrong_with_lanes_and_runners_is_one_sentence_before_anything_runs(
    abreast, table, step, words
):
    abreast.file("abreast.toml", table)
    abreast.file("flow.yaml", f"workflow: {{id: l}}\nsteps: [{step}]\n")
    for more in (["--check"], ["--dry-run"], []):
        said = abreast("run", "flow.yaml", *more)
        assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1), more
        assert words in said.err
        assert "Sorry" not in said.err
    assert not abreast.store.exists()


def test_check_finds_a_command_whose_agent_has_no_runner(abreast):
    inner = (
        "workflow: {id: inner, integration: theirs}\nsteps:\n  - {id: b, command: speckit.plan}\n"
    )
    abreast.file("inner.yaml", inner)
    steps = (
        "  - {id: a, command: speckit.plan, integration: ours}\n  - {id: w, type: workflow, "
        "workflow: inner.yaml}\n"
    )
    abreast.file("flow.yaml", f"workflow: {{id: l}}\nsteps:\n{steps}")
    said = abreast("run", "flow.yaml", "--check")
    assert said.code == 2
    assert (
        "flow.yaml:3: there is no runner 'ours'; declare it in abreast.toml as [runners.ours]"
        in said.err
    )
    assert "there is no runner 'theirs'" in said.err
    both = "".join(
        f'[runners.{name}]\nargv = ["echo", "{{prompt}}"]\n' for name in ("ours", "theirs")
    )
    abreast.file("abreast.toml", both)
    assert abreast("run", "flow.yaml", "--check").code == 0


# --- a fan-out at the end; a plan without inputs -------------------------------------------------


def test_a_fan_out_at_the_end_says_what_every_item_said(abreast):
    inner = (
        "{id: n, type: fan-out, items: [a, b], step: {id: y, type: shell, run: 'echo {{ item }}'}}"
    )
    for steps, said in (
        ("step: {id: x, type: shell, run: 'echo {{ item }}'}", "1\n2\n3\n"),
        (f"steps: [{{id: x, type: shell, run: 'echo {{{{ item }}}}'}}, {inner}]", "a\nb\n" * 3),
    ):
        abreast.file(
            "flow.yaml",
            f"workflow: {{id: f}}\nsteps:\n  - {{id: a, type: fan-out, items: [1, 2, 3], {steps}}}",
        )
        assert abreast("run", "flow.yaml").out == said
    abreast.file(
        "flow.yaml",
        (
            "workflow: {id: f}\nsteps:\n  - {id: a, type: fan-out, items: [], step: {type: "
            "shell, run: ls}}"
        ),
    )
    assert abreast("run", "flow.yaml").out == ""


def test_a_plan_needs_no_inputs_and_those_that_are_given_must_be_right(abreast):
    abreast.file(
        "flow.yaml",
        """
workflow: {id: p}
inputs: {n: {type: number, required: true}}
steps:
  - {id: a, type: fan-out, items: [1, 2, 3], max_concurrency: "{{ inputs.n }}", step: {id: x, \
type: shell, run: ls}}
""",
    )
    said = abreast("run", "flow.yaml", "--dry-run")
    assert (said.code, said.err) == (0, "")
    assert "3 x" in said.out
    assert [
        step["width"]
        for step in json.loads(abreast("run", "flow.yaml", "--dry-run", "--json", "-i", "n=2").out)[
            "steps"
        ]
    ] == [2, None]
    said = abreast("run", "flow.yaml", "--dry-run", "-i", "n=many")
    assert (said.code, said.out) == (2, "")
    assert abreast("run", "flow.yaml").code == 2


def test_width_bounds_all_steps_of_a_run_and_is_kept_for_its_resume(abreast):
    os.mkfifo(abreast.folder / "meet")
    abreast.file(
        "flow.yaml",
        """
workflow: {id: w}
steps:
  - {id: a, type: shell, run: timeout $PATIENCE cat meet, needs: []}
  - {id: b, type: shell, run: echo met > meet, needs: []}
""",
    )
    alone = abreast("run", "flow.yaml", "--width", "1", "--json", PATIENCE="0.2")
    assert (alone.code, json.loads(alone.out)["error"]) == (1, "exit code 124")
    assert abreast("resume", "w-1", "--json", PATIENCE="0.2").code == 1
    beside = abreast("resume", "w-1", "--width", "2", "--json", PATIENCE="60")
    assert json.loads(beside.out)["steps"]["a"]["output"]["stdout"] == "met\n"
    said = abreast("run", "flow.yaml", "--width", "0")
    assert (said.code, said.out) == (2, "")
    abreast.file("sample.yaml", "sample: {prompt: hi}\n")
    assert abreast("run", "sample.yaml", "--width", "2").code == 2


@pytest.mark.parametrize("size", [99_999, 100_000, 2_000_000])
def test_a_prompt_too_long_for_an_argument_goes_by_stdin(abreast, size):
    count = (
        "import sys; print(len(sys.argv) - 1, sum(map(len, sys.argv[1:])), len(sys.stdin.read()))"
    )
    argv = json.dumps([sys.executable, "-c", count, "{prompt}"])
    glued = "['echo', '--p={prompt}']"
    tables = {"mine": argv, "glued": glued, "other": f"{glued}\nstdin = ['wc', '-c']"}
    abreast.file(
        "abreast.toml",
        "\n".join(f"[runners.{name}]\nargv = {words}" for name, words in tables.items()),
    )
    text = "x" * (size - 3)
    abreast.file(
        "flow.yaml",
        "workflow: {id: long}\nsteps:\n  - {id: list, type: python, call: 'texts:long'}\n"
        "  - {id: a, command: c, integration: '{{ steps.list.output.who }}',\n"
        "     input: {args: '{{ steps.list.output.text }}'}}\n",
    )
    for who, said in (
        ("mine", f"1 {size} 0\n" if size < 100_000 else f"0 0 {size}\n"),
        ("other", None),
        ("glued", None),
    ):
        abreast.file(
            "texts.py", f"def long():\n    return {{'who': {who!r}, 'text': 'x' * {len(text)}}}\n"
        )
        found = abreast("run", "flow.yaml", "--json")
        step = json.loads(found.out)["steps"]["a"]
        if said is not None:
            assert (found.code, step["output"]["stdout"]) == (0, said)
        elif size < 100_000:
            assert step["output"]["stdout"] == f"--p=/c {text}\n"
        elif who == "other":
            assert step["output"]["stdout"] == f"{size}\n"
        else:
            assert (found.code, step["status"]) == (1, "failed")
            assert "too long for an argument: let {prompt} stand alone" in step["error"]


def test_a_step_has_an_environment_and_a_directory_of_its_own(abreast):
    abreast.file("sub/here.txt", "in sub\n")
    abreast.file(
        "abreast.toml",
        "[runners.mine]\nargv = ['sh', '-c', 'echo $WHO; cat here.txt', '{prompt}']\n",
    )
    abreast.file(
        "flow.yaml",
        """
workflow: {id: e}
steps:
  - {id: a, type: shell, run: 'echo "$WHO $KEPT"; cat here.txt', cwd: "{{ 'sub' }}", env: \
{WHO: "{{ 'me; $(id)' }}"}}
  - {id: b, command: c, integration: mine, cwd: sub, env: {WHO: 3}}
  - {id: c, type: shell, run: 'echo "[$WHO]"; ls here.txt', continue_on_error: true}
  - {id: d, type: shell, run: ls, cwd: nowhere}
""",
    )
    said = abreast("run", "flow.yaml", "--json", KEPT="kept")
    steps = json.loads(said.out)["steps"]
    assert steps["a"]["output"]["stdout"] == "me; $(id) kept\nin sub\n"
    assert steps["b"]["output"]["stdout"] == "3\nin sub\n"
    assert "env" not in steps["b"]["output"]
    assert (steps["c"]["status"], steps["c"]["output"]["stdout"]) == ("failed", "[]\n")
    assert (said.code, steps["d"]["status"]) == (1, "failed")
    assert "nowhere" in steps["d"]["error"]


# --- secrets -------------------------------------------------------------------------------------

SECRET = "s3cr3t-0f-7"
SECRET_FLOW = """
workflow: {id: hidden, model: scripted/replies.jsonl}
inputs:
  token: {type: string, required: true, secret: true}
  plain: {type: string, default: seen}
steps:
  - {id: shell, type: shell, run: 'echo x >> ran; echo "{{ inputs.token }} $TOKEN {{ inputs.plain }}"; echo "{{ inputs.token }}" >&2; echo "{{ inputs.token }}" > got', env: {TOKEN: "{{ inputs.token }}"}}
  - {id: ask, type: prompt, prompt: "Use {{ inputs.token }}"}
  - {id: call, type: python, call: "own:give", with: {token: "{{ inputs.token }}"}}
  - {id: each, type: fan-out, items: ["{{ inputs.token }}", b], max_concurrency: 2, step: {id: x, type: shell, run: 'echo {{ item }} {{ inputs.token }}'}}
  - {id: both, type: if, condition: "{{ inputs.token == '' }}", then: [{id: never, type: shell, run: ls}]}
  - {id: file, type: workflow, workflow: inner.yaml, input: {key: "{{ inputs.token }}", open: "{{ inputs.token }}"}}
  - {id: bad, type: shell, run: 'echo "wrong {{ inputs.token }}" >&2; exit 1', continue_on_error: true}
  - {id: boom, type: python, call: "own:boom", with: {token: "{{ inputs.token }}"}, continue_on_error: true}
  - {id: drawn, type: sample, sample: {prompt: "Use {{ inputs.token }}", breadth: 1}}
  - {id: look, type: gate, message: "Send {{ inputs.token }}?"}
outputs:
  all: {value: "{{ inputs.token }} {{ steps.shell.output.stdout }}"}
"""  # noqa: E501 - a file
SECRET_INNER = """
workflow: {id: inner}
inputs: {key: {secret: true, required: true}, open: {}}
steps:
  - {id: a, type: shell, run: 'echo "{{ inputs.key }}" > inner-got; \
echo "{{ inputs.open }} {{ inputs.key }}"'}
"""


def test_a_secret_input_reaches_the_steps_and_nothing_that_is_stored_or_shown(abreast):
    abreast.file("flow.yaml", SECRET_FLOW)
    abreast.file("inner.yaml", SECRET_INNER)
    give = (
        "def give(token):\n    open('given', 'w').write(token)\n"
        "    return {'length': len(token), 'it': [token]}\n"
    )
    abreast.file("own.py", give + "def boom(token):\n    raise ValueError(f'bad {token}')\n")
    reply = {"prompt": f"Use {SECRET}", "reply": f"used {SECRET}"}
    abreast.file("replies.jsonl", json.dumps(reply) + "\n" + json.dumps(reply) + "\n")
    everything = []

    def run(*words, code=0):
        said = abreast(*words)
        everything.append(said.out + said.err)
        assert said.code == code, said
        return said

    found = json.loads(run("run", "flow.yaml", "-i", f"token={SECRET}", "--json").out)
    assert found["status"] == "paused"
    steps = found["steps"]
    assert [
        (abreast.folder / name).read_text().strip() for name in ("got", "given", "inner-got")
    ] == [SECRET] * 3
    assert steps["shell"]["output"]["stdout"] == "*** *** seen\n"
    assert steps["call"]["output"] == {"length": len(SECRET), "it": ["***"]}
    assert steps["ask"]["output"]["text"] == "used ***"
    assert steps["bad"]["error"] == "exit code 1: wrong ***"
    assert steps["boom"]["error"] == "ValueError: bad ***"
    assert steps["file:a"]["output"]["stdout"] == "*** ***\n"
    assert steps["look"]["output"]["message"] == "Send ***?"
    assert "never" not in steps
    stored = b"".join(
        path.read_bytes() for path in abreast.store.parent.rglob("*") if path.is_file()
    )
    assert SECRET.encode() not in stored
    assert "is required" in run("resume", "hidden-1", "-i", "look=approve", code=2).err
    again = run("resume", "hidden-1", "-i", "look=approve", "-i", "token=an0ther")
    assert again.out == "*** *** *** seen\n"
    assert "token" not in again.err
    assert (
        abreast.folder / "ran"
    ).read_text() == "x\n"  # another value of a secret runs nothing again
    run("show", "hidden-1")
    run("export", "hidden-1")
    run("run", "flow.yaml", "-i", f"token={SECRET}", "--dry-run")
    run("run", "flow.yaml", "-i", f"token={SECRET}", "--simulate", "--json")
    stored = b"".join(
        path.read_bytes() for path in abreast.store.parent.rglob("*") if path.is_file()
    )
    for text in (SECRET, "an0ther"):
        assert text.encode() not in stored
        assert text not in "".join(everything)


@pytest.mark.parametrize("more", ["default: x", "type: number"])
def test_a_secret_input_is_a_text_that_does_not_stand_in_the_file(abreast, more):
    abreast.file(
        "flow.yaml",
        (
            f"workflow: {{id: s}}\ninputs: {{a: {{secret: true, {more}}}}}\n"
            "steps: [{id: x, type: shell, run: ls}]"
        ),
    )
    said = abreast("run", "flow.yaml", "--check")
    assert said.code == 2
    assert "the input 'a' is secret: it must be a string, without a default" in said.err


def test_what_is_wrong_with_a_secret_is_said_without_it(abreast):
    abreast.file(
        "flow.yaml",
        (
            "workflow: {id: s}\ninputs: {a: {secret: true, enum: [x]}}\n"
            "steps: [{id: x, type: shell, run: ls}]"
        ),
    )
    said = abreast("run", "flow.yaml", "-i", f"a={SECRET}")
    assert said.code == 2
    assert SECRET not in said.err
