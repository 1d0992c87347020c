"""The verdicts on a few functions of the corpus; `make corpus` runs all of them."""

import tarfile

import pytest

from benchmarks import packages
from benchmarks.corpus import (
    KINDS,
    Result,
    Told,
    by_behaviour,
    by_optimizing,
    faults,
    known,
    specimens,
    table,
)
from benchmarks.measuring import SERIES, rows_of, summary
from tests.jobs.candidates.watched import use_cache

NAMES = ("common_prefix", "polynomial", "word_counts")
MORE = ("digital_root", "evens", "unique")
EXPECTED = {
    **dict.fromkeys(("fast-correct", "same-speed", "slower"), "same"),
    **dict.fromkeys(("cheating", "memory-bomb", "writes-outside"), "refused"),
    "fast-wrong": "wrong",
    "hanging": "timeout",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [*NAMES, *(pytest.param(name, marks=pytest.mark.soak) for name in MORE)]
)
async def test_every_kind_is_taken_for_what_it_is(name, tmp_path, monkeypatch):
    """By behaviour alone: the check of the source text is off."""
    use_cache(monkeypatch, tmp_path)
    results = await by_behaviour(specimens([name]), 2, text_check=False, told=lambda _: None)
    assert len(results) >= 4
    for one in results:
        assert one.verdict == EXPECTED[one.kind], one


def test_the_corpus_has_every_kind_many_times():
    found = [
        path.stem.rpartition("-")[0] if path.stem[-1].isdigit() else path.stem
        for one in specimens()
        for path in one.candidates
    ]
    assert len(specimens()) >= 40
    assert {kind: found.count(kind) >= 10 for kind in KINDS} == dict.fromkeys(KINDS, True)
    assert set(found) == set(KINDS)


def test_what_was_taken_for_something_else_is_a_fault():
    good = [
        Result("f", "fast-correct", "same", ""),
        Result("f", "fast-wrong", "wrong", ""),
        Result("f", "slower", "same", ""),
    ]
    assert faults(good, "same") == []
    for kind in ("fast-wrong", "cheating", "hanging", "memory-bomb", "writes-outside"):
        assert faults([*good, Result("f", kind, "same", "")], "same") == [f"f/{kind} was same"]
    assert faults([Result("f", "fast-correct", "wrong", "why")], "same") == [
        "f/fast-correct was wrong: why"
    ]
    assert faults([*good, Result("f", "slower", "faster", "")], "same") == ["f/slower was faster"]
    assert "fast-wrong" in table(good)


def test_stopped_it_goes_on_with_what_is_not_known_and_what_has_changed(tmp_path):
    median, top_k, unique = chosen = specimens(["median", "top_k", "unique"])
    path = tmp_path / "known.jsonl"
    told = [
        Told("median", median.digest, (Result("median", "slower", "same", "why"),), 2.0),
        Told("top_k", "another text", ()),
    ]
    path.write_text(
        "".join(one.line() for one in told) + told[0].line().replace("median", "unique")[:40]
    )
    assert known(path, chosen) == {"median": told[0]}
    assert by_optimizing([median], 2, path, lambda _: None) == [told[0]]  # nothing is run
    assert {top_k.digest, unique.digest, median.digest} & {"another text"} == set()


def test_a_series_of_measurements_goes_on_after_what_is_written_and_says_whether_it_is_good(
    tmp_path,
):
    path = tmp_path / "aa.jsonl"
    row = (
        '{"run": 0, "verdict": "same", "ratio": 1.0, '
        '"noise_floor": 0.01, "seconds": 0.001, "took": 8.0, '
    )
    path.write_text(row + '"blocks": 8, "load": 0.5}\n{"run": 1, "verd')
    assert [one["run"] for one in rows_of(path)] == [0]
    assert summary("aa", rows_of(path)).startswith("aa: 1 runs: 1 same")
    assert [SERIES["aa"].good(faster, 200) for faster in (0, 1, 2)] == [True, True, False]
    assert [SERIES["planted"].good(faster, 100) for faster in (94, 95, 100)] == [False, True, True]


def test_functions_of_packages_have_candidates_that_can_take_their_place(tmp_path):
    every = packages.functions([])
    assert len(every) >= 10
    assert len({one.name for one in every}) == len(every)
    for one in every:
        kinds = {path.stem for path in one.folder.glob("*.py")}
        assert "fast-wrong" in kinds, one.name
        assert kinds <= set(KINDS), one.name
        name = one.target.rpartition("::")[2].rpartition(".")[2]
        for path in one.folder.glob("*.py"):
            assert f"def {name}(" in path.read_text(), path
    folders = {path.parent for path in packages.CANDIDATES.rglob("*.py")}
    assert folders == {one.folder for one in every}
    assert [one.name for one in packages.functions(["toolz", "networkx.groups"])] == [
        "toolz.frequencies",
        "toolz.merge_with",
        "toolz.partition_all",
        "networkx.groups",
    ]
    with pytest.raises(SystemExit, match="not among the packages: nothing"):
        packages.functions(["nothing"])


def test_what_is_known_of_packages_is_told_in_a_table_for_each(tmp_path, capsys):
    first, second = packages.functions(["toolz.frequencies", "networkx.groups"])
    path = tmp_path / "known.jsonl"
    good = (Result(first.name, "fast-correct", "faster", ""),)
    bad = (Result(second.name, "fast-wrong", "faster", ""),)
    lines = [Told(first.name, first.digest, good).line(), Told(second.name, "old", bad).line()]
    path.write_text("".join(lines) + "{")
    found = packages.known(path, [first, second])
    assert list(found) == [first.name]
    assert packages.say(list(found.values()))
    assert not packages.say([*found.values(), Told(second.name, second.digest, bad)])
    printed = capsys.readouterr().out
    assert printed.count("\ntoolz\n") + printed.startswith("toolz\n") == 2
    assert "networkx.groups/fast-wrong was faster" in printed


def test_an_archive_is_unpacked_without_its_first_directory_and_committed(tmp_path):
    (tmp_path / "pkg-1.0").mkdir()
    (tmp_path / "pkg-1.0/mod.py").write_text("x = 1\n")
    with tarfile.open(tmp_path / "pkg.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "pkg-1.0", "pkg-1.0")
    packages._unpack(tmp_path / "pkg.tar.gz", tmp_path / "tree")
    packages._commit(tmp_path / "tree")
    assert (tmp_path / "tree/mod.py").read_text() == "x = 1\n"
    assert (tmp_path / "tree/pytest.ini").exists()
    assert (tmp_path / "tree/.git").is_dir()
