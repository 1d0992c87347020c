"""The figures of the benchmark of decomposition are what they say."""

import pytest

from abreast.jobs.plan.settings import MAX_TOKENS
from benchmarks.decomposition import figures, quality, repositories, scale
from tests.jobs.plan.repositories import fill


def test_shares_are_of_imports_and_of_tests():
    parts = {"a": "1", "b": "1", "c": "2"}
    assert figures.cut_share(parts, [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")]) == 0.5
    assert figures.cut_share(parts, []) == 0
    assert figures.together(parts, {"a": "b", "c": "b"}) == 0.5


def test_directories_are_parts_that_are_filled_up_to_the_bound():
    third = MAX_TOKENS // 3
    sizes = {
        "a/one.py": third,
        "a/two.py": third,
        "b/deep/x.py": third,
        "b/deep/y.py": third,
        "b/large.py": MAX_TOKENS + 1,
        "c.py": 1,
    }
    found = figures.by_folders(sizes)
    groups = [sorted(path for path in sizes if found[path] == part) for part in {*found.values()}]
    assert sorted(groups) == [
        ["a/one.py", "a/two.py"],
        ["b/deep/x.py", "b/deep/y.py"],
        ["b/large.py"],
        ["c.py"],
    ]


def test_a_small_edit_keeps_most_files_in_their_part(tmp_path):
    layout = {
        f"p{folder}/m{number:02}.py": f"import p{folder}.m{number * 7 % 30:02}\n".ljust(8_000, "#")
        for folder in range(6)
        for number in range(30)
    }
    fill(tmp_path, layout)
    divided = figures.Divided.of(tmp_path)
    assert figures.within_bounds(divided.plan) == (1.0, 0)
    assert len(divided.edges) == 144  # those of 36 files lead to themselves
    added, edited = figures.stability(divided)
    assert added > 0.8
    assert edited > 0.8


def test_what_can_not_be_fetched_is_skipped_with_a_sentence(tmp_path, monkeypatch, capsys):
    def fail(package, folder):
        raise OSError("no network")

    broken = repositories.Repository("x", "Python", "x==1", fail, "*")
    monkeypatch.setattr(repositories, "CACHE", tmp_path)
    with pytest.raises(repositories.NotFetched, match="x==1 can't be fetched: no network"):
        broken.place()
    monkeypatch.setattr(quality, "REPOSITORIES", (broken,))
    monkeypatch.setattr(quality, "metis_python", lambda: tmp_path)
    assert quality.print_quality([]) == 0
    assert "x: skipped, x==1 can't be fetched: no network\n" in capsys.readouterr().out


def test_a_generated_repository_is_measured_in_a_child(capsys):
    for language in scale.LANGUAGES:
        files = dict(scale.sources(language, 100))
        assert len(files) == 100
        assert sum("test" in path for path in files) == 20
    scale.print_scale(150)
    python, typescript = capsys.readouterr().out.splitlines()
    assert python.startswith("150 files of Python: ")
    assert "subplans, depth" in typescript
