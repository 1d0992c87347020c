"""A verdict given on resume answers the gate's current question, and no later one."""

import pytest

FLOW = """
workflow: {id: gated}
inputs:
  text: {type: string, default: hello}
steps:
  - {id: draft, type: shell, run: "echo {{ inputs.text }}"}
  - {id: look, type: gate, message: "Send {{ steps.draft.output.stdout | trim }}?", on_reject: \
retry}
  - {id: send, type: shell, run: "echo sent {{ steps.draft.output.stdout | trim }} | tee -a sent"}
"""


@pytest.fixture
def gated(abreast):
    abreast.file("flow.yaml", FLOW)
    assert "the gate 'look' waits for a decision" in abreast("run", "flow.yaml").err
    return abreast


def test_an_approval_counts_and_is_not_asked_for_again(gated):
    assert gated("resume", "gated", "--input", "look=approve").out == "sent hello\n"
    assert gated("resume", "gated", "--input", "text=hello").out == "sent hello\n"
    assert (gated.folder / "sent").read_text() == "sent hello\n"


def test_an_approval_of_something_else_does_not_count(gated):
    gated("resume", "gated", "--input", "look=approve")
    said = gated("resume", "gated", "--input", "text=goodbye")
    assert said.code == 0
    assert "the gate 'look' waits for a decision" in said.err
    assert (gated.folder / "sent").read_text() == "sent hello\n"
    assert gated("resume", "gated", "--input", "look=approve").out == "sent goodbye\n"


def test_a_rejected_gate_that_may_be_asked_again_is(gated):
    assert (
        "was rejected, and is asked again" in gated("resume", "gated", "--input", "look=reject").err
    )
    assert "the gate 'look' waits for a decision" in gated("resume", "gated").err
    assert gated("resume", "gated", "--input", "look=approve").out == "sent hello\n"
