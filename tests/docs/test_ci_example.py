"""The example for CI does what it says: its commands are run, on a study that asks nothing."""

import os
import subprocess
from xml.etree import ElementTree as ET

import yaml

from tests.docs.pages import PATIENCE, ROOT, environment, fork_commands, project

STUDY = """
matrix:
  models: [scripted/replies.jsonl]
  strategies: {plain: {prompt: "Is it good? {{ input.text }}"}}
  inputs: [{id: a, text: a kettle, truth: "yes"}, {id: b, text: a zip, truth: "no"}]
  scores: [exact]
"""
REPLIES = '{{"prompt": "Is it good? a kettle", "reply": "yes"}}\n{}'


def test_a_mean_that_is_too_small_fails_the_check_and_what_is_recorded_is_not_asked(
    tmp_path, forks
):
    steps = yaml.safe_load((ROOT / "examples/ci/study.yml").read_text("utf-8"))
    commands = [step["run"] for step in steps["jobs"]["study"]["steps"] if "run" in step]
    here = project(tmp_path / "here")
    (here / "study.yaml").write_text(STUDY, "utf-8")
    line = forks.suiting(["matrix"]).line
    told = environment(here) | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    fork_commands(tmp_path / "tools", line)

    def play(replies):
        (here / "replies.jsonl").write_text(replies, "utf-8")
        codes = [
            subprocess.run(
                ["sh", "-ec", command],
                cwd=here,
                env=told,
                timeout=PATIENCE,
                pass_fds=(line,),
                check=False,
            ).returncode
            for command in commands[1:]
        ]
        return codes, ET.parse(here / "study.xml").getroot()

    codes, found = play(REPLIES.format('{"prompt": "Is it good? a zip", "reply": "yes"}\n'))
    assert codes == [1, 0]
    assert "0.500" in (tmp_path / "summary.md").read_text("utf-8")
    assert [case.get("name") for case in found.iter("testcase") if len(case.findall("failure"))]

    os.truncate(tmp_path / "summary.md", 0)
    codes, found = play("")  # as if the model were gone: the store has the replies
    assert codes == [1, 0]
    assert not list(found.iter("error"))
