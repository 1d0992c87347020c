"""Small parts of the command line: amounts, placeholders, input lines."""

import os
from importlib import metadata

import pytest

from abreast.cli.errors import UsageError, one_line
from abreast.cli.jobs.map.input_lines import InputLines
from abreast.cli.jobs.map.template import ItemTemplate, UnstartedItem
from abreast.cli.terminal.tables import duration_text
from abreast.jobs.files import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30", 30),
        ("30s", 30),
        ("1.5 min", 90),
        ("2m", 120),
        ("1h", 3600),
        ("30d", 2_592_000),
        ("1w", 604_800),
        (5, 5),
        (0.5, 0.5),
    ],
)
def test_times_are_read(text, seconds):
    assert units.duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("1k", 1024), ("1kB", 1000), ("2MiB", 2 << 20), ("1G", 1 << 30), ("1.5M", 3 << 19)],
)
def test_sizes_are_read(text, size):
    assert units.size(text) == size


@pytest.mark.parametrize("given", [None, True, [], "1 2", "\u0661s", "1__0", "0x10"])
def test_what_is_no_amount_is_refused(given):
    with pytest.raises(ValueError, match="must be"):
        units.duration(given)
    with pytest.raises(ValueError, match="must be"):
        units.number(given, least=0)


def test_values_in_messages_are_on_one_line_and_not_endless():
    assert len(units.quoted("x" * 1000)) == 60
    assert one_line("a\x1b[2Jb\nc\x00") == "a [2Jb c"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (3700, "1 h 01 min")],
)
def test_lengths_of_time_are_said(seconds, said):
    assert duration_text(seconds) == said


@pytest.mark.parametrize(
    ("path", "filled"),
    [
        ("a/b.c", ["a/b", "b.c", "a", "b"]),
        ("b.c", ["b", "b.c", ".", "b"]),
        ("/x", ["/x", "x", "/", "x"]),
        (".", [".", ".", ".", "."]),
    ],
)
def test_parts_of_paths(path, filled):
    template = ItemTemplate(["{.}", "{/}", "{//}", "{/.}"], json_items=False, option="x")
    assert template.fill(path, UnstartedItem(0, "k")) == filled


def test_braces_that_are_no_placeholders_stay():
    template = ItemTemplate(["{print $1}", "{", "}", "{{}}", "{a.b}"], json_items=False, option="x")
    assert template.fill("v", UnstartedItem(0, "k")) == ["{print $1}", "{", "}", "{v}", "{a.b}"]


def items_of(data, **options):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        os.write(write_end, data)
        os._exit(0)
    os.close(write_end)
    lines = InputLines(
        f"/dev/fd/{read_end}",
        **{"json_items": False, "null": False, "check": lambda *_: None, **options},
    )
    try:
        return list(lines)
    finally:
        os.close(read_end)
        os.waitpid(pid, 0)


def test_lines_are_put_together_from_pieces():
    long = "x" * 200_000
    assert items_of(f"a\n{long}\nb".encode()) == ["a", long, "b"]
    assert items_of(b"\r\n \n\n") == [" "]
    assert items_of(b' \n{"a": 1}\n', json_items=True) == [{"a": 1}]
    assert items_of(b"a\0\0b\n", null=True) == ["a", "b\n"]


def test_the_place_of_a_bad_line_counts_empty_ones():
    with pytest.raises(UsageError, match="line 4: it is not UTF-8"):
        items_of(b"a\n\n\n\xff\n")


def test_the_script_starts_as_the_module_does():
    [script] = metadata.entry_points(group="console_scripts", name="abreast")
    assert script.value == "abreast.__main__:main"  # which sees to it that the start is quick
