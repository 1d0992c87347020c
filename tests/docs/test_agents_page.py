"""The page of agents names the tests that hold what it says: each of them exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_test_that_the_page_of_agents_names_exists():
    page = (ROOT / "docs/agents.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 10
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        functions = ast.FunctionDef | ast.AsyncFunctionDef
        assert name in {one.name for one in tree.body if isinstance(one, functions)}, (file, name)
