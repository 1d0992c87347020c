"""The documentation of the storm: its examples run, and its tables match the code."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import MISSING, fields

from abreast.testing.storm import BATCH_FAULTS, FAULTS, Settings
from tests.docs.pages import ROOT, blocks_of

PAGE = "docs/storm.md"


def test_every_block_of_python_runs(capsys):
    blocks = [block for block in blocks_of(PAGE) if block.language == "python"]
    for block in blocks:
        result = eval(
            compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {}
        )
        if asyncio.iscoroutine(result):
            asyncio.run(result)
    assert len(blocks) == 3
    assert capsys.readouterr().out.startswith("200 None\n200 None\n429 1\nhttp://127.0.0.1:")


def test_its_tables_have_every_setting_and_every_fault_with_what_the_code_says_of_it():
    text = (ROOT / PAGE).read_text("utf-8")
    rows = [f"| `{fault.name}` | {fault.doc} |" for fault in FAULTS.values()]
    rows += [f"| `{name}` | {doc} |" for name, doc in BATCH_FAULTS.items()]
    for each in fields(Settings):
        default = "none" if each.default in (MISSING, None, ()) else f"`{each.default}`"
        rows.append(f"| `{each.name}` | {default} | {each.metadata['doc']} |")
    assert [row for row in rows if f"{row}\n" not in text] == []
