"""The litellm adapter with a loopback server, run by this interpreter or one with litellm."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PEER = ROOT / ".peers" / "litellm" / "bin" / "python"
PYTHON = sys.executable if find_spec("litellm") is not None else str(PEER)

pytestmark = pytest.mark.skipif(
    not Path(PYTHON).exists(), reason="litellm is not installed: make bench-peers"
)


@pytest.fixture(scope="module")
def seen():
    """The results of `litellm_calls.py`, in order; nothing else may be on stdout."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")
    }
    ended = subprocess.run(
        [PYTHON, Path(__file__).with_name("litellm_calls.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def of(seen, call):
    return [
        {name: value for name, value in one.items() if name != "call"}
        for one in seen
        if one["call"] == call
    ]


def test_a_reply_has_its_text_and_usage(seen):
    assert of(seen, "reply") == [{"text": "green", "finish": "stop", "used": [1, 5, 2]}]


def test_a_status_becomes_the_error_that_all_adapters_raise(seen):
    assert {one["status"]: one["became"] for one in of(seen, "error")} == {
        400: "RequestRefused",
        401: "KeyRefused",
        429: "Throttled",
        503: "ServerFault",
    }


def test_a_cancelled_call_closes_its_connection_whatever_the_provider(seen):
    found = of(seen, "cancelled")
    assert [one["provider"].partition("/")[0] for one in found] == [
        "openai",
        "anthropic",
        "mistral",
    ]
    assert all(one["cancelled"] and one["closed"] for one in found), found
