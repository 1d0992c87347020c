"""A few functions of the corpus: who is taken for what. `make corpus` has all of them."""

import pytest

from benchmarks.corpus import KINDS, Result, by_behaviour, faults, specimens, table
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
@pytest.mark.parametrize("name", [*NAMES, *(pytest.param(name, marks=pytest.mark.soak) for name in MORE)])
async def test_every_kind_is_taken_for_what_it_is(name, tmp_path, monkeypatch):
    """By what it does alone: its text is not looked at."""
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
    assert faults([Result("f", "fast-correct", "wrong", "why")], "same") == ["f/fast-correct was wrong: why"]
    assert faults([*good, Result("f", "slower", "faster", "")], "same") == ["f/slower was faster"]
    assert "fast-wrong" in table(good)
