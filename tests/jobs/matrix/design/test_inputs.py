"""Inputs from frames, rows and files."""

import datetime as dt
import decimal
import enum
import json
from pathlib import Path

import pandas as pd
import pytest

from abreast.jobs.matrix.design.input_files import files_of, inputs_of_file
from abreast.jobs.matrix.design.plain_rows import rows_in


class Colour(enum.Enum):
    RED = "red"


class PolarsLike:
    """A frame with the two attributes by which one of polars is known."""

    columns = ("a",)

    def iter_rows(self, *, named):
        assert named
        return iter([{"a": 1}, {"a": None}])


def test_a_frame_of_pandas_becomes_rows_of_plain_values():
    frame = pd.DataFrame(
        {
            "n": [1, 2],
            "share": [0.5, float("nan")],
            "when": [pd.Timestamp("2026-01-02"), pd.NaT],
            "maybe": pd.array([1, None], dtype="Int64"),
            "yes": [True, False],
        }
    )
    rows = rows_in(frame)
    assert rows == [
        {"n": 1, "share": 0.5, "when": "2026-01-02T00:00:00", "maybe": 1, "yes": True},
        {"n": 2, "share": None, "when": None, "maybe": None, "yes": False},
    ]
    assert {type(value) for row in rows for value in row.values()} <= {
        int,
        float,
        str,
        bool,
        type(None),
    }
    assert json.loads(json.dumps(rows)) == rows


def test_frames_of_polars_series_generators_and_values_are_rows_too():
    assert rows_in(PolarsLike()) == [{"a": 1}, {"a": None}]
    assert rows_in(pd.Series(["x", "y"])) == ["x", "y"]
    assert rows_in({"n": n} for n in range(2)) == [{"n": 0}, {"n": 1}]
    made = {
        "at": dt.date(2026, 1, 2),
        "price": decimal.Decimal("1.50"),
        "colour": Colour.RED,
        "path": Path("a.png"),
        "parts": ({"x": (1, 2)},),
    }
    assert rows_in([made]) == [
        {
            "at": "2026-01-02",
            "price": "1.50",
            "colour": "red",
            "path": "a.png",
            "parts": [{"x": [1, 2]}],
        }
    ]


def test_what_is_no_row_is_refused_with_its_place():
    with pytest.raises(ValueError, match=r"^inputs\[1\]\['a'\]\[0\] is of the type bytes; "):
        rows_in([{"a": []}, {"a": [b"x"]}])
    with pytest.raises(TypeError, match="a mapping, which is one row: put it into a list"):
        rows_in({"a": 1})
    with pytest.raises(TypeError, match="not int"):
        rows_in(3)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "id,x\n1,y\n2,\n", [{"id": "1", "x": "y"}, {"id": "2", "x": None}]),
        ("a.tsv", "x\ty\n1\t2\n", [{"x": "1", "y": "2"}]),
        ("a.jsonl", '{"x": 1}\n\n"two"\n', [{"x": 1}, "two"]),
        ("a.json", '[{"x": 1}, 2]', [{"x": 1}, 2]),
        ("a.json", '{"x": 1}', [{"x": 1}]),
        ("a.txt", "hello", [{"text": "hello"}]),
    ],
)
def test_each_kind_of_file_gives_its_rows(tmp_path, name, text, found):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    assert [value for _, value in inputs_of_file(path)] == found


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.json", b"[1,\n2", "a.json:2 is no JSON"),
        ("a.json", b"3", "a.json must hold a list of inputs, or one mapping"),
        ("a.jsonl", b"{}\n{", "a.jsonl:2 is no JSON"),
        ("a.csv", b"x,y\n1\n", "a.csv:2 has 1 values, and there are 2 fields"),
        ("a.txt", b"\xff", "a.txt is not UTF-8; convert it"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_its_line(tmp_path, name, data, why):
    path = tmp_path / name
    path.write_bytes(data)
    assert [one[: len(why)] for one in inputs_of_file(path) if isinstance(one, str)] == [why]


def test_a_parquet_file_gives_rows_or_the_extra_that_it_needs(tmp_path):
    path = tmp_path / "a.parquet"
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        path.write_bytes(b"")
        (why,) = inputs_of_file(path)
        assert "a.parquet: Parquet needs pyarrow, which is not installed" in why
        return
    when = dt.date(2026, 1, 2)
    pyarrow.parquet.write_table(pa.table({"x": [1, None], "when": [when, when]}), path)
    assert [value for _, value in inputs_of_file(path)] == [
        {"x": 1, "when": "2026-01-02"},
        {"x": None, "when": "2026-01-02"},
    ]
    path.write_bytes(b"no table")
    assert [one[:29] for one in inputs_of_file(path)] == ["a.parquet is no Parquet file:"]


def test_a_directory_is_its_files_and_a_pattern_its_matches(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden", "c.md"):
        (tmp_path / name).write_text(name, "utf-8")
    (tmp_path / "deeper").mkdir()
    named = [path.name for path in files_of(tmp_path.parent, tmp_path.name)]
    assert named == ["a.txt", "b.txt", "c.md"]
    assert files_of(tmp_path, "*.txt") == files_of(Path("/"), f"{tmp_path}/*.txt")
    assert files_of(tmp_path, "lost.txt") == []
