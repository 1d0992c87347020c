"""The Python of pages is cut into programs as a reader would, and programs of users do run."""

import importlib
import importlib.util

import pytest

from tests.docs.pages import ROOT

PROGRAMS = {
    "maps": "0000 1.0\n0001 0.5\n0002 division by zero\n1.5\nA B {'first': 'A', 'second': 'B'}\n",
    "stored_run": (
        "the budget is spent: 2 of 2 requests used, and the next call asks for 1\nNone\n23\n"
    ),
    "typed_replies": "20\n[20, 20]\n",
    "checked_sample": "True red\n",
    "plain_script": "yes=True yes ['passed']\n",
}

PAGE = """
```python
import abreast
```
Then:
```python
abreast.map
```
```sh
cat > words.py <<'END'
import sys
END
python words.py
```
```python
# named.py
await later
```
```python
import mellea
```
```python
mellea.m
```
"""


@pytest.fixture
def script():
    place = ROOT / "scripts" / "check_doc_types.py"
    spec = importlib.util.spec_from_file_location("check_doc_types", place)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look for the module that they are defined in
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(importlib.import_module("sys").modules, "check_doc_types", module)
        spec.loader.exec_module(module)
        yield module


def test_a_page_is_cut_into_programs_that_keep_their_lines(script):
    found = {
        program.line: program.source({}).splitlines()
        for program in script.programs_of("p.md", PAGE)
    }
    assert sorted(found) == [2, 10, 15]
    # A block without an import goes on where the one before it ended.
    assert [(number, line) for number, line in enumerate(found[2], 1) if line] == [
        (3, "import abreast"),
        (7, "abreast.map"),
    ]
    # A file that a shell writes.
    assert found[10][10:] == ["import sys"]
    # What awaits is inside a function. What needs another library, and goes on with it, is left.
    assert found[15][14:] == ["async def main() -> None:", "    # named.py", "    await later"]


def test_every_program_is_typed_and_run():
    files = {path.stem for path in (ROOT / "tests/docs/programs").glob("*.py")}
    assert files == {"__init__", *PROGRAMS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_as_a_user_would_write_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    importlib.import_module(f"tests.docs.programs.{name}").main()
    assert capsys.readouterr().out == PROGRAMS[name]
