"""Output about a workflow's run: `--json`, the line about a failure, `show`, `export`, the page."""

import json
import sys

import pytest


def no_such_number(name):
    raise AssertionError(f"{name} is not JSON")


def strictly(text):
    """Parse strict JSON: infinity and NaN are errors."""
    return json.loads(text, parse_constant=no_such_number)


INFINITE = """
workflow: {id: infinite}
steps:
  - {id: said, type: shell, run: "echo '[NaN, Infinity, -1e999]'", output_format: json, input: \
{most: .inf}}
  - {id: fan, type: fan-out, items: [.inf, .nan, 1], max_concurrency: .inf,
     step: {id: one, type: shell, run: "echo {{ item }}"}}
  - {id: all, type: fan-in, wait_for: [said], output: {none: .nan, least: -.inf}}
  - {id: choose, type: switch, expression: .inf, cases: {inf: [{id: chosen, type: shell, run: \
"echo y"}]}}
  - {id: look, type: gate, message: .nan}
outputs:
  items: {value: "{{ steps.fan.output.items }}"}
"""


def test_infinity_and_nan_give_strict_json(abreast):
    abreast.file("flow.yaml", INFINITE)
    for more in (
        ["--json", "--simulate"],
        ["--json", "--dry-run"],
        ["--json", "--check"],
        ["--json", "-i", "look=approve"],
    ):
        said = abreast("run", "flow.yaml", *more)
        assert (said.code, said.err) == (0, "")
        found = strictly(said.out)
    assert found["status"] == "completed"
    assert found["steps"]["said"]["output"]["data"] == ["nan", "inf", "-inf"]
    assert found["steps"]["fan"]["output"]["items"] == ["inf", "nan", 1]
    assert found["steps"]["fan"]["output"]["max_concurrency"] == "inf"
    assert found["outputs"] == {"items": ["inf", "nan", 1]}
    for line in abreast("export", "infinite").lines:
        strictly(line)
    strictly(abreast("show", "infinite", "--json").out)


TOLD = """
workflow: {id: told}
inputs: {last: {type: number, default: 1}}
steps:
  - {id: place, type: slot, name: more checks}
  - id: again
    type: do-while
    condition: "{{ steps.count.output.data < 3 }}"
    steps:
      - {id: count, type: shell, run: "echo x >> counted; wc -l < counted", output_format: json}
  - id: fan
    type: fan-out
    items: [1, 2]
    step: {id: one, type: shell, run: 'echo "out {{ item }}"; echo "err {{ item }}" >&2; \
[ {{ item }} = 1 ]'}
"""


def test_json_has_the_keys_of_spec_kit_beside_ours(abreast):
    abreast.file("flow.yaml", TOLD)
    found = json.loads(abreast("run", "flow.yaml", "--json").out)
    assert {
        word: found[word] for word in ("run", "run_id", "workflow_id", "status", "current_step_id")
    } == {
        "run": "told-1",
        "run_id": "told-1",
        "workflow_id": "told",
        "status": "failed",
        "current_step_id": "fan:one:1",
    }
    assert found["current_step_index"] == 2
    assert "gate" not in found


def test_a_plain_id_is_the_newest_round_and_each_round_is_told_by_its_own(abreast):
    abreast.file("flow.yaml", TOLD)
    steps = json.loads(abreast("run", "flow.yaml", "--json").out)["steps"]
    assert [
        steps[name]["output"]["data"]
        for name in ("again:count:0", "again:count:1", "again:count:2", "count")
    ] == [1, 2, 3, 3]


def test_outputs_hold_the_condition_and_the_template_as_they_are_written_and_a_slot_is_skipped(
    abreast,
):
    abreast.file("flow.yaml", TOLD)
    steps = json.loads(abreast("run", "flow.yaml", "--json").out)["steps"]
    assert (steps["place"]["status"], steps["place"]["output"]) == (
        "skipped",
        {"slot": "more checks"},
    )
    assert steps["again"]["output"]["condition"] == "{{ steps.count.output.data < 3 }}"
    assert steps["fan"]["output"]["step_template"]["run"].startswith('echo "out {{ item }}"')


def test_a_gate_that_is_waited_for_or_was_rejected_is_told(abreast):
    gate = "{id: look, type: gate, message: 'Send {{ item }}?'}"
    fan = f"{{id: fan, type: fan-out, items: [a, b], step: {gate}}}"
    abreast.file(
        "flow.yaml", f"workflow: {{id: g}}\nsteps: [{{id: s, type: shell, run: echo s}}, {fan}]\n"
    )
    found = json.loads(abreast("run", "flow.yaml", "--json", "-i", "fan:look:0=approve").out)
    asked = {"step_id": "fan:look:1", "message": "Send b?", "options": ["approve", "reject"]}
    assert (found["status"], found["gate"]) == ("paused", {**asked, "choice": None})
    assert (found["current_step_id"], found["current_step_index"]) == ("fan:look:1", 1)
    found = json.loads(abreast("resume", "g", "--json", "-i", "fan:look:1=reject").out)
    assert (found["status"], found["gate"]) == ("aborted", {**asked, "choice": "reject"})


def test_the_line_about_a_failure_names_the_step(abreast):
    abreast.file("flow.yaml", TOLD)
    said = abreast("run", "flow.yaml")
    assert said.code == 1
    assert "failed: the step 'fan:one:1': exit code 1: err 2 (8 steps, 2 not done)" in said.err
    assert abreast("runs", "--json").rows[0]["reason"] == "the step 'fan:one:1': exit code 1: err 2"


def test_what_a_failed_step_wrote_is_in_show_and_export_and_on_the_page(abreast):
    abreast.file("flow.yaml", TOLD)
    abreast("run", "flow.yaml")
    shown = abreast("show", "told", "fan:one:1")
    assert shown.code == 0
    assert "--- stdout\nout 2\n--- stderr\nerr 2\n" in shown.out
    (row,) = (one for one in abreast("export", "told").rows if one["state"] == "failed")
    assert (row["exit_code"], row["stdout"], row["stderr"]) == (1, "out 2\n", "err 2\n")
    page = abreast("export", "told", "--html", "-o", "-").out
    assert "out 2" in page
    assert "err 2" in page


def test_a_step_is_shown_by_its_full_id(abreast):
    abreast.file("flow.yaml", TOLD)
    abreast("run", "flow.yaml")
    found = {
        name: abreast("show", "told", name, "--json").rows[0]
        for name in ("fan:one:0", "again:count:0", "count")
    }
    assert found["fan:one:0"]["path"] == "told/fan/0000"
    assert found["fan:one:0"]["value"]["output"]["stdout"] == "out 1\n"
    assert [found[name]["value"]["output"]["data"] for name in ("again:count:0", "count")] == [1, 3]
    assert "  fan:one:1: exit code 1: err 2\n" in abreast("show", "told").out
    assert abreast("show", "told", "fan:one:2").code == 2


def test_a_step_knows_the_directory_of_its_own_file(abreast):
    step = "{id: %s, type: shell, run: 'echo \"$SPECKIT_WORKFLOW_DIR\" {{ context.workflow_dir }}'}"
    head = "workflow: {id: dirs}\nsteps:\n"
    abreast.file(
        "flows/outer.yaml",
        f"{head}  - {step % 'a'}\n  - {{id: w, type: workflow, workflow: deep/inner.yaml}}\n",
    )
    abreast.file("flows/deep/inner.yaml", f"{head}  - {step % 'b'}\n")
    steps = json.loads(abreast("run", "flows/outer.yaml", "--json").out)["steps"]
    outer, inner = (str((abreast.folder / name).resolve()) for name in ("flows", "flows/deep"))
    assert steps["a"]["output"]["stdout"] == f"{outer} {outer}\n"
    assert steps["w:b"]["output"]["stdout"] == f"{inner} {inner}\n"


def test_a_run_has_just_the_id_that_spec_kits_variable_gives(abreast):
    abreast.file(
        "flow.yaml",
        "workflow: {id: hi}\nsteps: [{id: a, type: shell, run: 'echo {{ context.run_id }}'}]\n",
    )
    assert abreast("run", "flow.yaml", SPECKIT_WORKFLOW_RUN_ID="nightly_7").out == "nightly_7\n"
    assert abreast("show", "nightly_7", "--json").rows[0]["run"] == "nightly_7"
    assert (
        abreast("run", "flow.yaml", "--name", "mine", SPECKIT_WORKFLOW_RUN_ID="nightly_7").out
        == "mine-1\n"
    )
    assert abreast("run", "flow.yaml", SPECKIT_WORKFLOW_RUN_ID=" ").out == "hi-1\n"


@pytest.mark.parametrize("given", ["last", "../up", "a b", "-x"])
def test_what_can_not_be_the_id_of_a_run_is_refused(abreast, given):
    abreast.file("flow.yaml", "workflow: {id: hi}\nsteps: [{id: a, type: shell, run: touch ran}]\n")
    said = abreast("run", "flow.yaml", SPECKIT_WORKFLOW_RUN_ID=given)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert f"SPECKIT_WORKFLOW_RUN_ID: {given!r} can't be the id of a run" in said.err
    assert not (abreast.folder / "ran").exists()


def test_an_id_that_a_run_has_already_is_refused_and_that_run_stays_as_it_is(abreast):
    gate = "{id: ask, type: gate, message: Go on?, options: [approve, reject]}"
    after = "{id: b, type: shell, run: 'echo {{ context.run_id }}; echo once >> ran'}"
    abreast.file("flow.yaml", f"workflow: {{id: hi}}\nsteps: [{gate}, {after}]\n")
    assert abreast("run", "flow.yaml", SPECKIT_WORKFLOW_RUN_ID="mine").code == 0
    before = abreast("show", "mine", "--json").out
    said = abreast("run", "flow.yaml", SPECKIT_WORKFLOW_RUN_ID="mine")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert (
        "there is a run 'mine' already; go on with it by `abreast resume`, or choose another id"
        in said.err
    )
    assert abreast("show", "mine", "--json").out == before
    assert abreast("resume", "mine", "--input", "ask=approve").out == "mine\n"
    assert (abreast.folder / "ran").read_text() == "once\n"


def test_a_workflow_that_a_step_starts_does_not_take_the_id_of_the_run_around_it(abreast):
    abreast.file(
        "inner.yaml",
        "workflow: {id: inner}\nsteps: [{id: a, type: shell, run: 'echo {{ context.run_id }}'}]\n",
    )
    nested = f"{sys.executable} -m abreast run inner.yaml"
    abreast.file(
        "flow.yaml", f"workflow: {{id: outer}}\nsteps: [{{id: a, type: shell, run: {nested}}}]\n"
    )
    said = abreast("run", "flow.yaml", SPECKIT_WORKFLOW_RUN_ID="mine")
    assert (said.code, said.out) == (0, "inner-1\n"), said


STEPS = """
workflow: {id: steps}
steps:
  - {id: first, type: shell, run: echo one}
  - {id: each, type: fan-out, items: [1, 2], step: {id: one, type: shell, run: "echo {{ item }}"}}
"""


def test_a_log_of_ci_has_a_line_for_each_step_and_verbose_one_for_each_item(abreast):
    abreast.file("flow.yaml", STEPS)

    def told(*options, **variables):
        said = abreast("run", "flow.yaml", *options, **variables)
        assert (said.code, said.out) == (0, "1\n2\n")
        return [line.split()[1] for line in said.err.splitlines()]

    assert told() == []
    assert told(CI="true") == ["first:", "each:", "each:", "completed:"]
    assert told("--quiet", CI="true") == []
    items = told("--verbose")
    assert [items.count(name) for name in ("first:", "each/0000:", "each/0001:")] == [2, 2, 2]
