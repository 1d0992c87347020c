"""The command line reference is generated from the commands' help, and a stale one is detected."""

import importlib.util

import pytest

from abreast.cli.config import SETTINGS
from abreast.cli.jobs.map import template
from abreast.cli.main import cli
from tests.docs.pages import ROOT


@pytest.fixture
def script():
    """The script from its file, as it is no part of a package."""
    spec = importlib.util.spec_from_file_location(
        "cli_reference", ROOT / "scripts" / "cli_reference.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def write(script, tmp_path):
    """Call the script for a project of its own; the exit code."""
    (tmp_path / "docs").mkdir()
    return lambda *arguments: script.main(["--root", str(tmp_path), *arguments])


@pytest.fixture
def page(tmp_path):
    return tmp_path / "docs" / "cli.md"


def test_it_has_a_part_for_every_command(write, page):
    assert write() == 0

    names = cli.list_commands(None)
    assert "map" in names
    assert [name for name in names if f"\n## abreast {name}\n" not in page.read_text("utf-8")] == []
    assert "\n## abreast demo crash\n" in page.read_text("utf-8")


def test_it_names_every_option_of_map(write, page):
    write()
    command = cli.get_command(None, "map")

    options = [
        name
        for option in command.params
        if not getattr(option, "hidden", False)
        for name in option.opts
    ]

    assert [
        name for name in options if name.startswith("-") and name not in page.read_text("utf-8")
    ] == []


def test_it_names_every_setting_and_placeholder(write, page):
    write()
    text = page.read_text("utf-8")

    assert [
        setting.name
        for setting in SETTINGS
        if f"| `{setting.name}` | `{setting.variable}` |" not in text
    ] == []
    marks = [
        mark
        for mark in ("", "#", ".field", *template._ABOUT, *template._PATHS)
        if f"| `{{{mark}}}` |" not in text
    ]
    assert marks == []


def test_it_is_the_same_on_any_terminal(write, page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    write()
    narrow = page.read_text("utf-8")

    monkeypatch.setenv("COLUMNS", "200")
    write()

    assert page.read_text("utf-8") == narrow


def test_a_page_just_written_passes_the_check(write, capsys):
    write()

    assert write("--check") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "spoil", [lambda text: text.replace("--width", "--breadth", 1), lambda text: text + "\n"]
)
def test_a_stale_page_fails_the_check_and_stays_as_it_was(write, page, capsys, spoil):
    write()
    stale = spoil(page.read_text("utf-8"))
    page.write_text(stale, "utf-8")

    assert write("--check") == 1
    assert capsys.readouterr().err.endswith(
        "docs/cli.md is out of date; write it again with: make reference\n"
    )
    assert page.read_text("utf-8") == stale


def test_a_missing_page_fails_the_check(write):
    assert write("--check") == 1
